"""Where each sample lies in a tar: found by walking its headers once, as plain numbers.

The walk reads 512 bytes per member and nothing else. Members other than images, JSON and text are ignored, names that
would leave an archive are refused, a cut tar yields the whole samples before the cut; all of it is counted by reason.
Nothing is ever extracted, unpickled or executed.
"""

from __future__ import annotations

import os
import struct
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from goldiclip.data.shard_paths import NOT_COMPRESSED, ShardError

BLOCK = 512
IMAGE_SUFFIXES = ("jpg", "jpeg", "png", "webp")
# A sample's three members: the encoded image, its JSON record, its plain-text caption.
IMAGE, RECORD, TEXT = range(3)
_KIND = {**dict.fromkeys(IMAGE_SUFFIXES, IMAGE), "json": RECORD, "txt": TEXT}
MAX_NAME_BYTES = 4_096
MAX_EXTENSION_BYTES = 1 << 20

# What a walk counts, in the order that index files keep: append only.
COUNTS = (
    "cut short",
    "data after the end",
    "duplicate key",
    "second member",
    "member ignored",
    "link or device",
    "name refused",
)

# start and size of the three members; `present` has one bit for each, since an empty member is not an absent one
SAMPLE = np.dtype(
    [("start", "<u8", 3), ("size", "<u4", 3), ("key_start", "<u4"), ("key_size", "<u2"), ("present", "<u2")]
)

_PLACE = struct.Struct("<3Q3IIHH")  # SAMPLE, read one at a time

_ZEROS = bytes(BLOCK)
_COMPRESSED = (b"\x1f\x8b", b"BZh", b"\xfd7zXZ", b"\x28\xb5\x2f\xfd", b"PK\x03\x04")
_REGULAR = b"0\0007"
_WITHOUT_DATA = b"123456"
_DIRECTORY = ord("5")
_SPARSE = ord("S")


@dataclass(frozen=True)
class TarIndex:
    """Every sample of one tar, in 44 bytes and its key."""

    samples: NDArray[np.void]  # dtype SAMPLE
    keys: bytes  # all keys, end to end
    counts: dict[str, int]

    def __len__(self) -> int:
        return len(self.samples)

    def place(self, row: int) -> Place:
        """Where the members of one sample lie."""
        *numbers, key_start, key_size, present = _PLACE.unpack_from(self.samples.data, row * SAMPLE.itemsize)
        key = self.keys[key_start : key_start + key_size].decode("utf-8", "replace")
        return Place(key, (numbers[0], numbers[1], numbers[2]), (numbers[3], numbers[4], numbers[5]), present)


class Place(NamedTuple):
    """One sample in its tar: start and size by member kind, and a bit for each kind that is there."""

    key: str
    start: tuple[int, int, int]
    size: tuple[int, int, int]
    present: int

    def has(self, kind: int) -> bool:
        return bool(self.present >> kind & 1)


class Member(NamedTuple):
    """A member as its headers describe it; `kind` is the tar type flag, 0 when an extension says it is not plain."""

    name: str
    kind: int
    start: int
    size: int


def index_tar(descriptor: int, path: str) -> TarIndex:
    """The samples of an open tar: every key that has an image, a record or a text. `path` is for messages."""
    if os.pread(descriptor, 6, 0).startswith(_COMPRESSED):
        raise ShardError(f"{path}: {NOT_COMPRESSED}")
    builder = _Builder(end=os.fstat(descriptor).st_size)
    for member in walk(descriptor, builder.counts):
        builder.add(member)
    return builder.finish()


# --- headers --------------------------------------------------------------------------------------------------------


def walk(descriptor: int, counts: dict[str, int]) -> Iterator[Member]:
    """Every member in order. Ends at the end mark, or where the archive stops making sense, which counts as a cut."""
    end = os.fstat(descriptor).st_size
    position, extension = 0, _Extension()
    while True:
        header = os.pread(descriptor, BLOCK, position)
        if header == _ZEROS:
            counts["data after the end"] += bool(os.pread(descriptor, 64 << 10, position).strip(b"\0"))
            return
        size = _size(header) if _is_header(header) else -1
        if size < 0:
            counts["cut short"] += 1
            return
        kind, start = header[156], position + BLOCK
        if kind in b"xgLK":
            position = start + _blocks(size)
            if position > end:
                counts["cut short"] += 1
                return
            extension.read(kind, os.pread(descriptor, min(size, MAX_EXTENSION_BYTES), start))
            continue
        if kind == _SPARSE:
            start = _after_sparse_map(descriptor, header, start)
        size = extension.size if extension.size is not None else size
        yield Member(extension.name or _name(header), 0x7F if extension.is_sparse else kind, start, size)
        if start + size > end:
            counts["cut short"] += 1
            return
        position = start if kind in _WITHOUT_DATA else start + _blocks(size)
        extension = _Extension()


def _is_header(header: bytes) -> bool:
    """Whether the block's checksum holds. Adler's lower half is one plus the plain sum of bytes, modulo 65,521."""
    stored = _octal(header[148:156])
    if len(header) < BLOCK or stored < 0:
        return False
    return (stored - 256 + sum(header[148:156]) + 1 - (zlib.adler32(header) & 0xFFFF)) % 65_521 == 0


def _octal(field: bytes) -> int:
    """An octal field, -1 when it is none."""
    text = field.split(b"\0", 1)[0].strip()
    return int(text, 8) if text.isdigit() and not (b"8" in text or b"9" in text) else (-1 if text else 0)


def _size(header: bytes) -> int:
    """The size field: octal, or big-endian binary above 8 GiB."""
    field = header[124:136]
    if field[0] == 0x80:
        return int.from_bytes(field[1:], "big")
    return _octal(field)


def _blocks(size: int) -> int:
    return (size + BLOCK - 1) // BLOCK * BLOCK


def _name(header: bytes) -> str:
    name = header[:100].split(b"\0", 1)[0]
    if header[257:263] == b"ustar\0" and header[345]:
        name = header[345:500].split(b"\0", 1)[0] + b"/" + name
    return name.decode("utf-8", "replace")


def _after_sparse_map(descriptor: int, header: bytes, start: int) -> int:
    """Where the data of an old GNU sparse member begins: its map may go on for further blocks."""
    more = header[482]
    while more:
        block = os.pread(descriptor, BLOCK, start)
        start += BLOCK
        more = block[504] if len(block) == BLOCK else 0
    return start


class _Extension:
    """What PAX and GNU long-name members say about the member that follows them."""

    def __init__(self) -> None:
        self.name = ""
        self.size: int | None = None
        self.is_sparse = False

    def read(self, kind: int, payload: bytes) -> None:
        if kind == ord("L"):
            self.name = payload.split(b"\0", 1)[0].decode("utf-8", "replace")
        elif kind == ord("x"):
            for key, value in _pax_records(payload):
                self._apply(key, value)

    def _apply(self, key: bytes, value: bytes) -> None:
        if key == b"path":
            self.name = value.decode("utf-8", "replace")
        elif key == b"size" and value.isdigit() and len(value) < 20:
            self.size = int(value)
        elif key.startswith(b"GNU.sparse"):
            self.is_sparse = True


def _pax_records(payload: bytes) -> Iterator[tuple[bytes, bytes]]:
    """`length key=value\\n`, one after the other, until one does not make sense."""
    while payload:
        digits = payload[:20].split(b" ", 1)[0]
        length = int(digits) if digits.isdigit() else 0
        if not len(digits) < length <= len(payload):
            return
        key, equals, value = payload[len(digits) + 1 : length - 1].partition(b"=")
        if equals:
            yield key, value
        payload = payload[length:]


# --- members into samples -------------------------------------------------------------------------------------------


class _Builder:
    """Groups members by key: what stands before the first dot of a member's base name."""

    def __init__(self, end: int) -> None:
        self.end = end
        self.counts = dict.fromkeys(COUNTS, 0)
        self.rows: dict[str, list[int]] = {}  # key -> start, size per kind
        self.last_key = ""
        self.repeated = False  # the last key had been closed before

    def add(self, member: Member) -> None:
        key, kind = self._place(member)
        if not key:
            return
        if member.start + member.size > self.end:
            self.rows.pop(key, None)  # a sample is whole or it is not there
            return
        if key != self.last_key:
            self.last_key, self.repeated = key, key in self.rows
            self.counts["duplicate key"] += self.repeated
        row = self.rows.setdefault(key, [-1, 0, -1, 0, -1, 0])
        if row[2 * kind] < 0:
            row[2 * kind : 2 * kind + 2] = member.start, min(member.size, 0xFFFFFFFF)
        elif not self.repeated:
            self.counts["second member"] += 1

    def _place(self, member: Member) -> tuple[str, int]:
        """The key and kind of a member that is read; ("", 0) for one that is not, and why is counted."""
        name = member.name.removeprefix("./")
        if member.kind not in _REGULAR:
            is_link = member.kind in _WITHOUT_DATA and member.kind != _DIRECTORY
            self.counts["link or device"] += is_link
            self.counts["member ignored"] += not is_link and member.kind != _DIRECTORY
            return "", 0
        if _leaves_archive(name):
            self.counts["name refused"] += 1
            return "", 0
        dot = name.find(".", name.rfind("/") + 1)
        kind = _KIND.get(name[dot + 1 :].lower())
        if kind is None or dot <= name.rfind("/") + 1:
            self.counts["member ignored"] += 1
            return "", 0
        return name[:dot], kind

    def finish(self) -> TarIndex:
        if self.counts["cut short"]:
            self._drop_half_sample()
        keys = [key.encode("utf-8", "replace") for key in self.rows]
        sizes = np.array([len(key) for key in keys], dtype=np.int64)
        table = np.array(list(self.rows.values()), dtype=np.int64).reshape(-1, 3, 2)
        samples = np.zeros(len(keys), dtype=SAMPLE)
        samples["start"], samples["size"] = np.maximum(table[:, :, 0], 0), table[:, :, 1]
        samples["present"] = ((table[:, :, 0] >= 0) * [1, 2, 4]).sum(axis=1)
        samples["key_start"], samples["key_size"] = np.cumsum(sizes) - sizes, sizes
        return TarIndex(samples, b"".join(keys), self.counts)

    def _drop_half_sample(self) -> None:
        """Where a cut falls between members, the last sample is whole if it has what the first one has."""
        if self.last_key not in self.rows:
            return
        first, last = ([start >= 0 for start in self.rows[key][::2]] for key in (next(iter(self.rows)), self.last_key))
        image, record, text = last
        is_whole = image and (record or text)
        if len(self.rows) > 1:
            is_whole = all(mine or not theirs for mine, theirs in zip(last, first))
        if not is_whole:
            del self.rows[self.last_key]


def _leaves_archive(name: str) -> bool:
    """Absolute paths, `..`, drive letters and absurd names: no such name is ever a sample's."""
    if len(name) > MAX_NAME_BYTES or name.startswith(("/", "\\")) or "\0" in name:
        return True
    return name[1:2] == ":" or (".." in name and ".." in name.replace("\\", "/").split("/"))
