"""On PYTHONPATH this hides what extras alone bring, as if `pip install goldiclip` were all that had been done."""

from __future__ import annotations

import sys
from importlib.machinery import ModuleSpec, PathFinder
from typing import Any

NAMES = """
boto3 faiss fastapi hypothesis lance moto onnx onnxruntime onnxscript playwright pyarrow pytest ray s3fs scipy sklearn
spacy torchmetrics transformers uvicorn
"""
HIDDEN = frozenset(NAMES.split())


class Bare(PathFinder):
    @classmethod
    def find_spec(cls, fullname: str, path: Any = None, target: Any = None) -> ModuleSpec | None:
        return None if fullname.partition(".")[0] in HIDDEN else super().find_spec(fullname, path, target)


sys.meta_path[:] = [Bare if finder is PathFinder else finder for finder in sys.meta_path]  # type: ignore[comparison-overlap]
