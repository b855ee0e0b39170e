"""The nouns of goldiclip: what moves from a shard to an update.

    shard -> Sample -> Example -> Batch -> features -> terms -> total -> update

One legend of dimension letters for the whole repository:

    B  images here             D  embedding width
    M  candidate texts         T  tokens, packed
    K  captions of one image   V  global views of one image
    L  patches of one image    C  local views of one image

Shapes stand in the comments beside the fields; a suffix (``texts_MD``) is used only where tensors of many ranks mix.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal, Protocol

import torch
from torch import Tensor

CaptionSource = Literal["raw", "short", "long"]
CAPTION_SOURCES: tuple[CaptionSource, ...] = ("raw", "short", "long")

# The decoder's tasks; a text's task is its index here.
DECODER_TASKS = ("cap", "ref", "grd", "vqa")
# Every supervision signal, in the paper's order.
TERMS = ("ret", *DECODER_TASKS, "sd")

Box = tuple[float, float, float, float]  # x0, y0, x1, y1


@dataclass(frozen=True, slots=True)
class Caption:
    """One text about an image; a long one is several sentences."""

    text: str
    source: CaptionSource = "raw"


@dataclass(frozen=True, slots=True)
class Region:
    """A phrase, the sentence it came from, and where it is: the box in fractions of the stored image."""

    phrase: str
    box: Box
    sentence: str = ""
    score: float = 1.0


@dataclass(frozen=True, slots=True)
class Question:
    question: str
    answer: str
    kind: str = ""


@dataclass(frozen=True, slots=True)
class Sample:
    """One record as it lies on disk: the encoded image and everything said about it."""

    key: str
    image: bytes
    captions: tuple[Caption, ...] = ()
    regions: tuple[Region, ...] = ()
    questions: tuple[Question, ...] = ()
    meta: Mapping[str, Any] = field(default_factory=dict)  # url, width, height and whatever else the shard holds
    origin: str = ""  # the shard it was read from, for messages


@dataclass(frozen=True, slots=True)
class Texts:
    """Token sequences laid end to end, without padding. A row begins with SOT and ends with EOT unless it was cut."""

    ids: Tensor  # (T,) int64
    lengths: Tensor  # (M,) int64
    truncated: Tensor  # (M,) bool: the row lost tokens to the context limit
    target_start: Tensor | None = None  # (M,) int64: a task text's first target position; None for captions
    max_length: int = 0  # the longest row: a Python number, so that no kernel launch waits for the device

    @classmethod
    def pack(
        cls,
        rows: Sequence[Sequence[int]],
        truncated: Sequence[bool] | None = None,
        target_start: Sequence[int] | None = None,
    ) -> Texts:
        """Lay rows of token ids end to end."""
        flat = [token for row in rows for token in row]
        return cls(
            ids=torch.tensor(flat, dtype=torch.int64),
            lengths=torch.tensor([len(row) for row in rows], dtype=torch.int64),
            truncated=torch.tensor(list(truncated) if truncated is not None else [False] * len(rows), dtype=torch.bool),
            target_start=None if target_start is None else torch.tensor(list(target_start), dtype=torch.int64),
            max_length=max((len(row) for row in rows), default=0),
        )

    @classmethod
    def cat(cls, parts: Iterable[Texts]) -> Texts:
        """Several packs as one, in order. Either all of them carry targets or none does."""
        parts = list(parts)
        if not parts:
            return cls.pack([])
        starts = [part.target_start for part in parts if part.target_start is not None]
        if starts and len(starts) != len(parts):
            raise ValueError("Texts.cat: some packs carry target_start and some do not")
        return cls(
            ids=torch.cat([part.ids for part in parts]),
            lengths=torch.cat([part.lengths for part in parts]),
            truncated=torch.cat([part.truncated for part in parts]),
            target_start=torch.cat(starts) if starts else None,
            max_length=max(part.max_length for part in parts),
        )

    def __len__(self) -> int:
        return self.lengths.shape[0]

    @property
    def offsets(self) -> Tensor:
        """(M+1,) int32: where each row starts, and where the last one ends."""
        return torch.nn.functional.pad(self.lengths.cumsum(0), (1, 0)).to(torch.int32)

    @property
    def last(self) -> Tensor:
        """(M,) the position of each row's last token: EOT, whose output is the text's embedding."""
        return self.lengths.cumsum(0) - 1

    def rows(self) -> list[list[int]]:
        """The token ids of every text, as Python lists."""
        return [part.tolist() for part in self.ids.split(self.lengths.tolist())]

    def slice(self, start: int, stop: int) -> Texts:
        """Texts start..stop as a pack of their own."""
        ends = [0, *self.lengths.cumsum(0).tolist()]
        lengths = self.lengths[start:stop]
        return Texts(
            ids=self.ids[ends[start] : ends[stop]],
            lengths=lengths,
            truncated=self.truncated[start:stop],
            target_start=None if self.target_start is None else self.target_start[start:stop],
            max_length=int(lengths.max()) if len(lengths) else 0,
        )

    def to(self, device: torch.device | str, non_blocking: bool = False) -> Texts:
        return _move(self, device, non_blocking)


@dataclass(frozen=True, slots=True)
class Example:
    """One training item: the views and texts drawn from one sample. No bytes: only tensors leave a worker."""

    global_views: Tensor  # (V, 3, S, S) uint8
    local_views: Tensor  # (C, 3, s, s) uint8
    photometrics: Tensor  # (C, P) float32: colour and blur drawn for each local view, applied on the device
    captions: Texts  # K rows
    shared_caption: int  # which of the K this image lends to the others as a negative and as a distillation query
    tasks: tuple[str, ...]  # the decoder tasks this sample has, each a row of task_texts
    task_texts: Texts
    counts: Mapping[str, int] = field(default_factory=dict)  # truncations, drops and substitutions, by reason


@dataclass(frozen=True, slots=True)
class Batch:
    """What one rank computes on: B images, K captions each, and whatever decoder tasks their samples had."""

    global_views: Tensor  # (B, V, 3, S, S) uint8, or float once rendered
    local_views: Tensor  # (B, C, 3, s, s) uint8, or float once rendered
    photometrics: Tensor  # (B, C, P)
    captions: Texts  # B·K rows, image by image
    caption_hash: Tensor  # (B·K,) int64: equal texts have equal hashes
    shared_caption: Tensor  # (B,) int64 in [0, K)
    task_texts: Texts  # with target_start
    task: Tensor  # (len(task_texts),) int64 index into DECODER_TASKS
    task_owner: Tensor  # (len(task_texts),) int64 index of the image here
    samples: int = 0  # samples the whole run has seen when this batch is done
    counts: Mapping[str, int] = field(default_factory=dict)
    num_targets: tuple[int, ...] = ()  # target tokens of each decoder task: Python numbers, which `to` fills in

    def __len__(self) -> int:
        return self.global_views.shape[0]

    @property
    def captions_per_image(self) -> int:
        return len(self.captions) // len(self)

    def slice(self, start: int, stop: int) -> Batch:
        """Images start..stop with their captions and task texts, as a batch of their own."""
        num_captions = self.captions_per_image
        first, last = (
            int(i) for i in torch.searchsorted(self.task_owner, torch.tensor([start, stop]).to(self.task_owner))
        )
        return replace(
            self,
            global_views=self.global_views[start:stop],
            local_views=self.local_views[start:stop],
            photometrics=self.photometrics[start:stop],
            captions=self.captions.slice(start * num_captions, stop * num_captions),
            caption_hash=self.caption_hash[start * num_captions : stop * num_captions],
            shared_caption=self.shared_caption[start:stop],
            task_texts=self.task_texts.slice(first, last),
            task=self.task[first:last],
            task_owner=self.task_owner[first:last] - start,
            counts={},
            num_targets=(),
        )

    def count_targets(self) -> Tensor:
        """(tasks,) int64: the tokens each decoder task has to predict here; a text's first token is never one."""
        starts = self.task_texts.target_start
        if starts is None:
            return self.task.new_zeros(len(DECODER_TASKS))
        per_text = (self.task_texts.lengths - starts.clamp(min=1)).clamp(min=0)
        return ((torch.arange(len(DECODER_TASKS), device=self.task.device)[:, None] == self.task) * per_text).sum(1)

    def to(self, device: torch.device | str, non_blocking: bool = False) -> Batch:
        """This batch on a device, its targets counted before they leave, so that nobody has to ask the device."""
        counted = self if self.num_targets else replace(self, num_targets=tuple(self.count_targets().tolist()))
        return _move(counted, device, non_blocking)

    def pin_memory(self) -> Batch:
        return _map_tensors(self, Tensor.pin_memory)


@dataclass(frozen=True, slots=True)
class ImageFeatures:
    """What the vision tower says of B images. Embeddings are as projected; `score` makes them unit vectors."""

    embedding: Tensor  # (B, D) text-agnostic
    keys: Tensor  # (B, L, D) what text queries are matched with; also the decoder's memory
    values: Tensor  # (B, L, D)
    grid: tuple[int, int] = (0, 0)  # rows and columns of the L patches

    def __len__(self) -> int:
        return self.embedding.shape[0]


@dataclass(frozen=True, slots=True)
class TextFeatures:
    """What the text tower says of M texts."""

    embedding: Tensor  # (M, D) the projected token at EOT
    tokens: Tensor  # (T, D) every projected token: the decoder's input
    lengths: Tensor  # (M,)
    max_length: int = 0  # the longest row, as in Texts; 0 is read off the lengths, which waits for the device

    def __len__(self) -> int:
        return self.embedding.shape[0]


@dataclass(frozen=True, slots=True)
class Conditioned:
    """B images seen through M texts."""

    embedding: Tensor  # (B, M, D)
    attention: Tensor  # (B, M, L) mean over heads; what is missing to 1 went to the sink


@dataclass(frozen=True, slots=True)
class Losses:
    total: Tensor  # what is differentiated
    terms: Mapping[str, Tensor]  # detached; a term whose task is absent from the whole step is absent here
    metrics: Mapping[str, Tensor] = field(default_factory=dict)  # detached numbers worth logging


class Encoder(Protocol):
    """What Engine and evaluations take: ours, FLAIR, COSMOS, open_clip and SigLIP models.

    A model without text-conditioned pooling has modes ("ta",); asking it for another raises and names the ones it has.
    """

    @property
    def modes(self) -> tuple[str, ...]: ...

    def encode_image(self, images: Tensor) -> ImageFeatures: ...

    def encode_text(self, texts: Texts) -> TextFeatures: ...

    def score(
        self, image: ImageFeatures, texts: TextFeatures, mode: str = "tc", pairs: tuple[Tensor, Tensor] | None = None
    ) -> Tensor: ...


class Ranks(Protocol):
    """The other processes of a run, as the objectives see them. Rows are ordered by rank."""

    rank: int
    size: int

    def gather(self, local: Tensor) -> Tensor:
        """Every rank's rows, one below the other, as many as each has; gradients flow back to their owners, summed."""
        ...

    def begin_gather(self, local: Tensor) -> Tensor:
        """The same, under way while something else is computed: not to be read before `wait`."""
        ...

    def wait(self) -> None:
        """What has begun is there from here on; on a device its stream waits, the host goes on."""
        ...

    def sum(self, value: Tensor) -> Tensor: ...

    def mean(self, value: Tensor) -> Tensor: ...

    def reduce_scatter(self, value: Tensor, counts: Sequence[int]) -> Tensor:
        """The sum over ranks of `value`, of which each rank keeps its own rows; counts says how many rows each has."""
        ...


class Alone:
    """A run of one process: every exchange is the identity."""

    rank = 0
    size = 1

    def gather(self, local: Tensor) -> Tensor:
        return local

    def begin_gather(self, local: Tensor) -> Tensor:
        return local

    def wait(self) -> None:
        pass

    def sum(self, value: Tensor) -> Tensor:
        return value

    def mean(self, value: Tensor) -> Tensor:
        return value

    def reduce_scatter(self, value: Tensor, counts: Sequence[int]) -> Tensor:
        return value


def _map_tensors(item: Any, change: Any) -> Any:
    """A copy of a dataclass with `change` applied to every tensor in it, nested ones included."""
    changes = {}
    for name in item.__dataclass_fields__:
        value = getattr(item, name)
        if isinstance(value, Tensor):
            changes[name] = change(value)
        elif isinstance(value, Texts):
            changes[name] = _map_tensors(value, change)
    return replace(item, **changes)


def _move(item: Any, device: torch.device | str, non_blocking: bool) -> Any:
    return _map_tensors(item, lambda tensor: tensor.to(device, non_blocking=non_blocking))
