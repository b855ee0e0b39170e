"""Where an index lies: rows of (id, vector, block, record), appended whole, found by vector or by id."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy as np


@dataclass(frozen=True)
class Row:
    """One image: its id, its text-agnostic unit vector, its patch block, and what else is known of it."""

    id: str
    vector: np.ndarray  # (D,) float16
    block: bytes
    record: Mapping[str, Any] = field(default_factory=dict)


class Store(Protocol):
    """What `Index` asks of a store. Places are integers that stay valid until the next change."""

    def __len__(self) -> int: ...

    @property
    def version(self) -> str:
        """Another one after every change."""
        ...

    def ids(self) -> set[str]: ...

    def append(self, rows: Sequence[Row], replaced: Sequence[str] = ()) -> None:
        """All of the rows in place of the `replaced` ids, or after a crash nothing of it."""
        ...

    def delete(self, ids: Sequence[str]) -> int: ...

    def compact(self) -> None:
        """Give back the room of what was deleted, and make search fast again."""
        ...

    def refresh(self) -> None:
        """See what others have changed since."""
        ...

    def nearest(
        self, vector: np.ndarray, count: int, where: Mapping[str, str] | None = None
    ) -> tuple[np.ndarray, np.ndarray]:
        """The places and inner products of the rows whose vectors are nearest, best first."""
        ...

    def place(self, id: str) -> int: ...

    def vectors(self, places: Sequence[int]) -> np.ndarray:
        """(n, D) float16."""
        ...

    def blocks(self, places: Sequence[int]) -> np.ndarray:
        """(n, block bytes) uint8. May be called by several threads at once."""
        ...

    def records(self, places: Sequence[int]) -> list[dict[str, Any]]:
        """Each with its `id`."""
        ...
