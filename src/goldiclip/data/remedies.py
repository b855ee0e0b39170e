"""What to do about each thing that can be wrong with a shard: the doctor's book."""

from __future__ import annotations

import re

# By reason, as BadSample, `meta["dropped"]` and the tar index name it; {} stands for caption, region or question.
REMEDIES: dict[str, str] = {
    # archives
    "cut short": "the tar ends early or is damaged inside: copy or download it again; what lies before is used",
    "data after the end": "joined tars are read up to the first one's end: pack them anew, or keep them apart",
    "duplicate key": "the first sample under a key is used: give each sample a key of its own",
    "second member": "the first image or record under a key is used: keep one of each",
    "member ignored": "only KEY.jpg, .jpeg, .png, .webp, .json and .txt are read: rename what should be read",
    "link or device": "a link is not followed: pack the files themselves (tar --dereference)",
    "name refused": "the name would leave the archive (`..`, absolute, drive letter): pack with relative names",
    "no sample": "nothing in this shard has an image, record or text under a key: look at it with tar -tf",
    "shard listed twice": "its samples come twice per epoch: name it once",
    "key in several shards": "joins by key will mix these up: were the shards copied, or numbered anew in each?",
    # samples
    "no image": "put the image beside the record under the same key, as .jpg, .png or .webp",
    "empty image": "the download failed: fetch the image again, or leave the sample out",
    "image too large": "shrink it: longer side 1,024 pixels is more than training can see",
    "image too small": "leave it out: there is nothing to see in so few pixels",
    "undecodable image": "the bytes are damaged or no image: fetch it again, or leave the sample out",
    "no caption": 'add "captions" to the record (docs/data.md), or a .txt beside the image',
    "record too large": "a record is some kilobytes: keep masks, features and embeddings elsewhere",
    "unreadable JSON": "write it with a JSON library, as UTF-8; NaN is none of JSON's numbers",
    "unknown schema": "it was written by another version: read it with that one, or write it anew",
    "read failed": "the disk or the network failed: try again, then copy the shard",
    "shard changed": "it was written to while it was read: let its writer finish first",
    # parts of samples
    "key twice in the record": "the last one counts: write each key of the JSON once",
    "unknown caption source": 'sources are "raw", "short" and "long"',
    "more than 1,000 {}s": "the first thousand are used",
    "{} not a text": "captions are strings, or lists of strings",
    "{} too long": "over 20,000 characters is a document, not a caption",
    "{} empty": "None, NaN and empty strings say nothing: leave them out when writing",
    "{}s not a list": "write a list of objects (docs/data.md)",
    "{} not an object": "write objects with named fields (docs/data.md)",
    "region without phrase": 'give each region a "phrase"',
    "score not a number": "write the detector's score as a finite number, or leave it out",
    "box not four numbers": 'write "box" as [x0, y0, x1, y1], finite numbers',
    "box outside the image": "boxes are fractions of the stored image in 0…1: divide pixels by its width and height",
    "box reversed": "write [x0, y0, x1, y1] with x0 < x1 and y0 < y1; [x, y, width, height] must be converted",
    "box without area": "a box without area shows nothing: leave it out",
    "question without text": 'give each question a "question" and an "answer"',
    "question without answer": 'give each question a "question" and an "answer"',
}


def remedy(reason: str) -> str:
    """What to do about a reason; empty when there is nothing to say."""
    general = re.sub(r"\b(caption|region|question)(?=s?\b)", "{}", reason)
    return REMEDIES.get(reason) or REMEDIES.get(general, "")
