"""Training: `train(config)` runs a configuration to its end, through whatever happens on the way."""

import sys
from pathlib import Path
from types import ModuleType
from typing import Any

from goldiclip.train.loop import train

__all__ = ["train"]


class _Callable(ModuleType):
    """`goldiclip.train` is this package and, when called, `train`: the public name of both."""

    def __call__(self, *args: Any, **options: Any) -> Path:
        return train(*args, **options)


sys.modules[__name__].__class__ = _Callable
