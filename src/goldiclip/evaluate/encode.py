"""Pictures and texts of an evaluation to features: in blocks, bounded in memory, divided among ranks.

A block is the unit of everything. Which block a picture or text is in does not depend on the number of ranks, so that
the same numbers come out of one process and of many, to the last bit.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass

import torch
from torch import Tensor

from goldiclip.evaluate.datasets.items import picture_name
from goldiclip.evaluate.problems import Problems
from goldiclip.inference.engine import Engine
from goldiclip.inference.pictures import Fit, Picture, fit, pixels
from goldiclip.types import ImageFeatures, Ranks, TextFeatures

TEXT_BLOCK = 256
THREADS = 4


@dataclass(frozen=True, slots=True)
class Block:
    """Features of consecutive pictures."""

    index: Tensor  # (B,) where the pictures stand in the set
    features: ImageFeatures


class ImageBlocks:
    """This rank's share of a set's pictures, encoded block by block, as often as it is iterated over.

    Up to `keep_bytes` of features are kept for the next time. What cannot be read is said once, listed in `unreadable`,
    and keeps its row, which then means nothing.
    """

    def __init__(
        self,
        engine: Engine,
        pictures: Sequence[Picture],
        *,
        problems: Problems,
        ranks: Ranks,
        how: Fit = "crop",
        keep_bytes: int = 0,
    ) -> None:
        self.engine, self.pictures, self.problems, self.how = engine, pictures, problems, how
        starts = range(0, len(pictures), engine.batch)
        share = [torch.arange(start, min(start + engine.batch, len(pictures))) for start in starts]
        self.blocks = share[ranks.rank :: ranks.size]
        self.largest_share = sum(map(len, share[:: ranks.size]))  # the first rank's: what all can agree on
        self.index = torch.cat(self.blocks) if self.blocks else torch.zeros(0, dtype=torch.int64)
        self.unreadable: set[int] = set()
        self.keep_bytes = keep_bytes
        self._kept: dict[int, ImageFeatures] = {}

    def __iter__(self) -> Iterator[Block]:
        wanted = [number for number in range(len(self.blocks)) if number not in self._kept]
        fresh = self._encode(wanted)
        for number, index in enumerate(self.blocks):
            yield Block(index, self._kept[number] if number in self._kept else self._keep(number, next(fresh)))

    def _keep(self, number: int, features: ImageFeatures) -> ImageFeatures:
        size = sum(part.nbytes for part in (features.embedding, features.keys, features.values))
        if size <= self.keep_bytes:
            self.keep_bytes -= size
            self._kept[number] = features
        return features

    @torch.no_grad()
    def _encode(self, numbers: list[int]) -> Iterator[ImageFeatures]:
        """Features of some blocks; the pictures of the next one are decoded meanwhile."""
        with ThreadPoolExecutor(THREADS) as pool:
            waiting: list[list[Future[Tensor | Exception]]] = []
            for number in numbers[:1]:
                waiting.append(self._submit(pool, number))
            for place, number in enumerate(numbers):
                if place + 1 < len(numbers):
                    waiting.append(self._submit(pool, numbers[place + 1]))
                views = self._collect(number, waiting.pop(0))
                with self.engine.autocast():
                    features = self.engine.model.encode_image(self.engine.normalise(views.to(self.engine.device)))
                yield features

    def _submit(self, pool: ThreadPoolExecutor, number: int) -> list[Future[Tensor | Exception]]:
        return [pool.submit(self._read, self.pictures[place]) for place in self.blocks[number].tolist()]

    def _read(self, picture: Picture) -> Tensor | Exception:
        try:
            return fit(pixels(picture), self.engine.image_size, self.how)
        except (ValueError, OSError) as error:
            return error

    def _collect(self, number: int, jobs: list[Future[Tensor | Exception]]) -> Tensor:
        views = []
        for place, job in zip(self.blocks[number].tolist(), jobs, strict=True):
            view = job.result()
            if isinstance(view, Exception):
                if place not in self.unreadable:
                    name = picture_name(self.pictures, place)
                    self.problems.add("unreadable image", name, f"picture {place}", str(view).removeprefix(f"{name}: "))
                self.unreadable.add(place)
                view = torch.zeros(3, self.engine.image_size, self.engine.image_size, dtype=torch.uint8)
            views.append(view)
        return torch.stack(views)

    def readable(self, ranks: Ranks) -> Tensor:
        """(N,) bool over the whole set, once all of it has been read."""
        lost = torch.zeros(len(self.pictures), dtype=torch.int64, device=self.engine.device)
        lost[list(self.unreadable)] = 1
        self.problems.settle()
        return (ranks.sum(lost) == 0).cpu()


@torch.no_grad()
def encode_texts(engine: Engine, texts: Sequence[str], ranks: Ranks) -> tuple[TextFeatures, int]:
    """Features of all texts, without their tokens, and how many texts were cut at the context's end.

    Texts of like length share a block, so that little is padded; ranks encode every R-th block.
    """
    rows = engine.tokenizer.encode(list(texts))
    order = rows.lengths.argsort(stable=True)
    blocks = order.split(TEXT_BLOCK) if len(order) else ()
    all_ids = rows.rows()
    mine, places = [], []
    for block in blocks[ranks.rank :: ranks.size]:
        pack = type(rows).pack([all_ids[place] for place in block.tolist()])
        with engine.autocast():
            mine.append(engine.model.encode_text(pack.to(engine.device)).embedding)
        places.append(block)
    embedding = _from_ranks(mine, places, len(texts), engine, ranks)
    lengths = rows.lengths.to(engine.device)
    return TextFeatures(embedding, embedding[:0], lengths, rows.max_length), int(rows.truncated.sum())


def _from_ranks(mine: list[Tensor], places: list[Tensor], size: int, engine: Engine, ranks: Ranks) -> Tensor:
    """Every rank's embeddings, each where its text stands."""
    width = mine[0].shape[1] if mine else 0
    if ranks.size > 1:  # a rank without a block must know the width to take part
        width = int(ranks.gather(torch.tensor([width], device=engine.device)).max())
    embeddings = torch.cat(mine) if mine else torch.zeros(0, width, device=engine.device)
    place = torch.cat(places) if places else torch.zeros(0, dtype=torch.int64)
    gathered, at = ranks.gather(embeddings.float()), ranks.gather(place.to(engine.device))
    return torch.empty(size, width, device=engine.device).index_copy_(0, at, gathered)
