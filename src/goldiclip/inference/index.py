"""Search in two stages: a shortlist by text-agnostic vectors, then a second look at its patches through the query.

    index = Index.create("my.index", Engine.load("runs/demo"))
    index.add(images_in("photos"))
    for hit in index.search("a red umbrella left of a dog"): print(hit.score, hit.id)

An index lies in a folder, or as a Lance table anywhere (a path ending in .lance, or a URL).
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from goldiclip.config import ConfigError
from goldiclip.inference.blocks import BlockFormat, Precision, block_format
from goldiclip.inference.engine import Engine, join
from goldiclip.inference.header import IndexMismatch, difference, open_store, read_header, write_header
from goldiclip.inference.lookers import lookers
from goldiclip.inference.pictures import Picture, grouped
from goldiclip.inference.sources import Item, picture_of, place_of
from goldiclip.inference.stores import Row, Store
from goldiclip.model.goldiclip import GoldiCLIP
from goldiclip.types import ImageFeatures, TextFeatures

SCHEMA_VERSION = 1
SEGMENT = 1_024
# Blocks that a core reads and scores at once: enough to be worth a call, few enough that others are read meanwhile.
GROUP = 25


@dataclass(frozen=True)
class Hit:
    """One found picture. `score` ranks; `text_agnostic` is the first stage's cosine, `first_rank` its place there."""

    id: str
    score: float
    text_agnostic: float
    first_rank: int
    record: Mapping[str, Any]


@dataclass(frozen=True)
class Shortlist:
    """The first stage's findings, best first, and what was asked for."""

    places: np.ndarray
    cosines: np.ndarray
    scores: Tensor
    store: Store  # the one these places are of
    texts: TextFeatures | None = None
    seen: Tensor | None = None


@dataclass(frozen=True)
class Added:
    added: int
    present: int
    failed: Mapping[str, str]  # id: reason


class Index:
    def __init__(self, engine: Engine, format: BlockFormat, uri: str, options: Mapping[str, Any] | None = None) -> None:
        self.engine, self.format, self.uri, self.options = engine, format, uri, dict(options or {})
        self.store: Store = open_store(uri, format, self.options)

    # --- make and open ----------------------------------------------------------------------------------------------

    @classmethod
    def create(
        cls, uri: str | Path, engine: Engine, precision: Precision = "int8", tokens: int = 0, **options: Any
    ) -> Index:
        """A new index for this engine's embeddings, or the one that is there if it was made alike: a build goes on.

        precision  int8, float16, or none: nothing is kept of the patches, and the second look reads the pictures anew
        tokens     patches kept per image, as means over squares of neighbours; 0 keeps all of them

        Of an engine that never looks twice nothing is kept whatever is asked for.
        """
        size = engine.image_size
        precision = precision if "tc" in engine.modes else "none"
        format = block_format(engine.encode_images(torch.zeros(3, size, size, dtype=torch.uint8)), precision, tokens)
        header = {"schema": SCHEMA_VERSION, "encoder": fingerprint(engine), "format": asdict(format)}
        found = read_header(str(uri), options)
        if found is None:
            write_header(str(uri), {**header, "engine": _lasting(engine.name)}, options)
        elif json.loads(json.dumps(header)) != {key: found.get(key) for key in header}:
            raise IndexMismatch(
                f"{uri}: an index made otherwise is there ({difference(found, header)}); choose another place"
            )
        return cls(engine, format, str(uri), options)

    @classmethod
    def open(cls, uri: str | Path, engine: Engine, **options: Any) -> Index:
        """An index that is there, with the engine whose embeddings it holds."""
        found = read_header(str(uri), options)
        if found is None:
            raise FileNotFoundError(f"{uri}: no index there; make one with: goldiclip index IMAGES --out {uri}")
        if found["encoder"] != fingerprint(engine):
            raise IndexMismatch(
                f"{uri}: made with another encoder ({found['encoder']}); open it with that one, or index anew"
            )
        grid = tuple(found["format"]["grid"])
        format = BlockFormat(**{**found["format"], "grid": grid})
        return cls(engine, format, str(uri), options)

    def __len__(self) -> int:
        return len(self.store)

    # --- change -----------------------------------------------------------------------------------------------------

    def add(self, items: Iterable[Item], *, update: bool = False, progress: Any = None) -> Added:
        """Embed and store what is not there yet; with `update`, replace what is. An unreadable picture is named."""
        known, met = self.store.ids(), set[str]()
        counts = {"added": 0, "present": 0}
        failed: dict[str, str] = {}
        for group in grouped(items, SEGMENT):
            first = list(_first_met(group, met, failed))
            fresh = [item for item in first if update or item.id not in known]
            counts["present"] += len(first) - len(fresh)
            rows = list(self._rows(fresh, failed))
            self.store.append(rows, [row.id for row in rows if row.id in known])
            counts["added"] += len(rows)
            if progress is not None:
                progress(len(group))
        return Added(failed=failed, **counts)

    def _rows(self, items: Sequence[Item], failed: dict[str, str]) -> Iterator[Row]:
        for batch in grouped(items, self.engine.batch):
            readable, features = self._encode(batch, failed)
            if features is not None:
                yield from self.rows(readable, features)

    def rows(self, items: Sequence[Item], features: ImageFeatures) -> Iterator[Row]:
        """What is stored of these pictures."""
        vectors = F.normalize(features.embedding.float(), dim=-1).half().cpu().numpy()
        for item, vector, block in zip(items, vectors, self.format.pack(features)):
            record = dict(item.record)
            if isinstance(item.picture, (str, Path)):
                record |= place_of(item.picture)
            yield Row(item.id, vector, block, record)

    def _encode(self, items: Sequence[Item], failed: dict[str, str]) -> tuple[list[Item], ImageFeatures | None]:
        """The batch at once; where a picture is broken, one by one, and the broken ones are named."""
        try:
            return list(items), self.engine.encode_images([item.picture for item in items])
        except (ValueError, TypeError, OSError) as error:
            if len(items) == 1:
                failed[items[0].id] = str(error)
                return [], None
        parts = [self._encode([item], failed) for item in items]
        good = [(item, part) for found, part in parts if part is not None for item in found]
        return [item for item, _ in good], join([part for _, part in good]) if good else None

    def delete(self, ids: Sequence[str]) -> int:
        return self.store.delete(ids)

    def compact(self) -> None:
        self.store.compact()

    def refresh(self) -> None:
        """See what others have changed since this index was opened. Searches under way go on in what they began in."""
        fresh = open_store(self.uri, self.format, self.options)
        if fresh.version != self.store.version:
            fresh.nearest(np.zeros(self.format.width, np.float16), 1)  # builds what it needs before anybody waits
            self.store = fresh

    # --- search -----------------------------------------------------------------------------------------------------

    def search(
        self,
        query: str | None = None,
        k: int = 10,
        *,
        image: Picture | None = None,
        shortlist: int = 200,
        where: Mapping[str, str] | None = None,
    ) -> list[Hit]:
        """The k best pictures for a text, for a picture, or for both at once (their scores add up).

        Of `shortlist` pictures a second look is taken, where the engine can; 0 trusts the first.
        """
        if k < 1:
            raise ConfigError(f"k is {k}; allowed: 1 or more")
        looks_twice = query is not None and shortlist > 0 and self.looks_twice
        found = self.shortlist(query, max(k, shortlist) if looks_twice else k, image=image, where=where)
        return self.hits(self.look_again(found) if looks_twice else found, k)

    @property
    def looks_twice(self) -> bool:
        return "tc" in self.engine.modes

    @torch.inference_mode()
    def shortlist(
        self,
        query: str | None = None,
        count: int = 200,
        *,
        image: Picture | None = None,
        where: Mapping[str, str] | None = None,
    ) -> Shortlist:
        """The first stage: the `count` pictures whose text-agnostic vectors are nearest."""
        if query is None and image is None:
            raise ValueError("nothing to search for: expected a text, a picture, or both")
        texts = None if query is None else self.engine.encode_texts(query)
        seen = None if image is None else self.engine.embed_images(image)[0]
        said = None if texts is None else F.normalize(texts.embedding[0].float(), dim=-1)
        vector = torch.stack([part for part in (said, seen) if part is not None]).sum(0)
        store = self.store
        places, cosines = store.nearest(F.normalize(vector, dim=0).cpu().numpy(), count, where)
        cosines = np.ascontiguousarray(cosines, np.float32)
        return Shortlist(places, cosines, torch.from_numpy(cosines), store, texts, seen)

    @torch.inference_mode()
    def look_again(self, found: Shortlist) -> Shortlist:
        """The second stage: text-conditioned logits in place of the first stage's cosines."""
        if found.texts is None or not len(found.places):
            return found
        scores = self._second_look(found.store, found.places.tolist(), found.texts)
        if found.seen is not None:
            scores = scores + self._alike(found.store, found.places.tolist(), found.seen)
        return replace(found, scores=scores)

    def hits(self, found: Shortlist, k: int) -> list[Hit]:
        """The k best of a shortlist."""
        order = found.scores.argsort(descending=True, stable=True)[:k].tolist()
        records = found.store.records([int(found.places[i]) for i in order])
        return [
            Hit(record.pop("id"), float(found.scores[i]), float(found.cosines[i]), i, record)
            for i, record in zip(order, records)
        ]

    @torch.inference_mode()
    def maps(self, ids: Sequence[str], texts: TextFeatures) -> Tensor:
        """(n, rows, columns) where in pictures of the index a text looks, from what is stored of them."""
        store = self.store
        places = [store.place(id) for id in ids]
        return self.engine.patch_maps(self._features(store, places), texts)[:, 0].cpu()

    def record(self, id: str) -> dict[str, Any]:
        """What is known of one picture; KeyError if there is none of that id."""
        store = self.store
        return store.records([store.place(id)])[0]

    def _features(self, store: Store, places: list[int]) -> ImageFeatures:
        if self.format.precision == "none":
            return self.engine.encode_images([picture_of(record) for record in store.records(places)])
        return self.format.unpack(store.blocks(places), self.engine.device)

    def _second_look(self, store: Store, places: list[int], texts: TextFeatures) -> Tensor:
        """Text-conditioned logits of the pictures at these places."""
        if self.format.precision == "none" or not isinstance(self.engine.model, GoldiCLIP):
            return torch.cat(
                [
                    self.engine.score(self._features(store, some), texts, "tc")[:, 0].cpu()
                    for some in grouped(places, 64)
                ]
            )
        is_cpu = self.engine.device.type == "cpu"
        size = min(GROUP, -(-len(places) // torch.get_num_threads())) if is_cpu else 256
        reads = [self._readers.submit(store.blocks, some) for some in grouped(places, size)]
        each = lookers().map if is_cpu else map
        return torch.cat(list(each(lambda read: self._look(read.result(), texts), reads))).float().cpu()

    @torch.inference_mode()
    def _look(self, blocks: np.ndarray, texts: TextFeatures) -> Tensor:
        model = self.engine.model
        assert isinstance(model, GoldiCLIP)
        keys, values = self.format.stored(blocks, self.engine.device)
        with self.engine.autocast():
            return model.score_stored(keys, values, texts, self.format.step)[:, 0]

    @cached_property
    def _readers(self) -> ThreadPoolExecutor:
        return ThreadPoolExecutor(8, thread_name_prefix="blocks")

    def _alike(self, store: Store, places: list[int], seen: Tensor) -> Tensor:
        """How much each looks like the query's picture, on the scale of logits."""
        embedding = torch.from_numpy(store.vectors(places).astype(np.float32)).to(seen.device)
        features = ImageFeatures(embedding, embedding[:, None], embedding[:, None])
        return self.engine.score(features, _as_text(seen), "ta")[:, 0].cpu()


def _first_met(items: Iterable[Item], met: set[str], failed: dict[str, str]) -> Iterator[Item]:
    """Items whose ids were not met before; a second picture of the same id would hide the first."""
    for item in items:
        if item.id in met:
            failed[item.id] = "another picture here has this id too; index a folder that holds both"
        else:
            met.add(item.id)
            yield item


def _as_text(embedding: Tensor) -> TextFeatures:
    return TextFeatures(embedding[None], embedding[None], torch.ones(1, dtype=torch.int64))


def _lasting(name: str) -> str:
    """An encoder's name as it is understood from other working directories too: kind:FILE, a folder, or the hub's."""
    kind, colon, rest = name.rpartition(":")
    return f"{kind}{colon}{Path(rest).resolve()}" if name and Path(rest).exists() else name


def fingerprint(engine: Engine) -> str:
    """What an encoder's embeddings depend on: its weights and how pictures are fed to it."""
    digest = hashlib.sha256(f"{engine.image_size}".encode())
    if isinstance(engine.model, torch.nn.Module):
        for name, tensor in sorted(engine.model.state_dict().items()):
            if not name.startswith(("decoder.", "head.")):
                flat = tensor.detach().flatten()
                digest.update(f"{name}{tuple(tensor.shape)}".encode())
                digest.update(flat[:: max(1, len(flat) // 1024)].float().cpu().numpy().tobytes())
    return digest.hexdigest()[:16]
