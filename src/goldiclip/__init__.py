"""Train and use vision-language encoders.

load    an Engine from an encoder folder, a run, the hub, or the weights of others: flair:FILE, open_clip:FILE
Engine  pictures and words to embeddings, scores, heatmaps, masks, captions, answers and boxes
Index   search in two stages
Config  what a run is made of
train   a run
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from goldiclip.config import Config
    from goldiclip.inference.engine import Engine
    from goldiclip.inference.index import Index
    from goldiclip.inference.load import load_engine as load
    from goldiclip.train.loop import train

__all__ = ["Config", "Engine", "Index", "load", "train"]

_HOMES = {
    "Config": ("config", "Config"),
    "Engine": ("inference.engine", "Engine"),
    "Index": ("inference.index", "Index"),
    "load": ("inference.load", "load_engine"),
}


def __getattr__(name: str) -> Any:
    """Imported when first asked for: `import goldiclip` itself takes no time."""
    if name == "train":
        return importlib.import_module("goldiclip.train")  # which can be called
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}; it has {', '.join(__all__)}")
    module, attribute = _HOMES[name]
    found = getattr(importlib.import_module(f"{__name__}.{module}"), attribute)
    globals()[name] = found
    return found
