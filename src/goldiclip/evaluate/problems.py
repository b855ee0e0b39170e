"""What is wrong with someone's data, by file and key. Strict evaluation stops at the first; else all are counted."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

import torch

from goldiclip.config import ConfigError
from goldiclip.types import Alone, Ranks


@dataclass(frozen=True, slots=True)
class Problem:
    kind: str  # missing image, unreadable image, bad entry, mask size, class list
    where: str  # the file
    key: str  # the entry in it
    found: str  # what was found, and what was expected

    def __str__(self) -> str:
        return f"{self.kind}: {self.where}, {self.key}: {self.found}"


class BadData(ConfigError):
    """A problem that evaluation cannot go on with, or any problem under `strict`."""


@dataclass
class Problems:
    """Problems met by one rank. What has a problem is left out of the evaluation.

    Under `strict` a lone process stops at once; several stop together when they next `settle`, lest some wait for ever.
    """

    strict: bool = False
    ranks: Ranks = field(default_factory=Alone)
    device: torch.device = torch.device("cpu")  # noqa: RUF009
    found: list[Problem] = field(default_factory=list)
    everyones: list[str] = field(default_factory=list)
    settled: int = 0

    def add(self, kind: str, where: Path | str, key: object, found: str) -> None:
        self.found.append(Problem(kind, str(where), str(key), found))
        if self.strict and self.ranks.size == 1:
            raise self._error()

    def settle(self) -> None:
        """All ranks together: share what was found since the last time, and stop if it is to stop."""
        fresh = "\0".join(str(problem) for problem in self.found[self.settled :])
        self.settled = len(self.found)
        if self.ranks.size == 1:
            text = [fresh]
        else:
            raw = torch.tensor(list(f"{fresh}\0\0".encode()), dtype=torch.uint8, device=self.device)
            text = bytes(self.ranks.gather(raw).cpu().tolist()).decode().split("\0")
        self.everyones += [one for part in text for one in part.split("\0") if one]
        if self.strict and self.everyones:
            raise self._error()

    def of_all(self) -> list[str]:
        """What every rank has said by the last settling, each thing once."""
        return list(dict.fromkeys(self.everyones))

    def _error(self) -> BadData:
        first = self.everyones[0] if self.everyones else str(self.found[0])
        return BadData(f"{first}; without --strict it would be left out")
