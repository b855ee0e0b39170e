"""Train a first-rate vision-language encoder on millions of images instead of billions.

`load` or `Engine.load` a trained encoder, `Index` pictures for search, `train` a `Config`; the command line does the rest.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from goldiclip.config import Config
    from goldiclip.inference.engine import Engine
    from goldiclip.inference.index import Index
    from goldiclip.train.loop import train

    load = Engine.load

__version__ = "0.1.0"
__all__ = ["Config", "Engine", "Index", "load", "train"]

# Where each public name lives; imported when first asked for, so that `import goldiclip` stays immediate.
_HOMES = {
    "Config": "goldiclip.config",
    "Engine": "goldiclip.inference.engine",
    "Index": "goldiclip.inference.index",
    "train": "goldiclip.train.loop",
}


def __getattr__(name: str) -> Any:
    if name == "load":
        return import_module("goldiclip.inference.engine").Engine.load
    if name in _HOMES:
        return getattr(import_module(_HOMES[name]), name)
    raise AttributeError(f"goldiclip has no {name!r}; it has {', '.join(__all__)}")
