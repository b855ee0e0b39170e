"""A run, written down: one frozen tree of dataclasses, from the model's widths to the checkpoint's schedule.

Recipes build it, `key=value` words on the command line change it, and the run's folder keeps the resolved tree as YAML.
Nothing here imports torch, so that `--help` is immediate.
"""

from goldiclip.config.tree import (
    BYTE_TOKENS,
    CLIP_TOKENS,
    Config,
    Data,
    Distill,
    Model,
    Objective,
    Optim,
    Retrieval,
    Run,
    Text,
    Views,
    Vision,
    Weights,
    flatten,
    split_sources,
)
from goldiclip.config.validation import ConfigError, resolve, validate
from goldiclip.config.words import SCHEMA_VERSION, from_yaml, override, to_yaml

__all__ = [
    "BYTE_TOKENS",
    "CLIP_TOKENS",
    "SCHEMA_VERSION",
    "Config",
    "ConfigError",
    "Data",
    "Distill",
    "Model",
    "Objective",
    "Optim",
    "Retrieval",
    "Run",
    "Text",
    "Views",
    "Vision",
    "Weights",
    "flatten",
    "from_yaml",
    "override",
    "resolve",
    "split_sources",
    "to_yaml",
    "validate",
]
