"""The embedded corpus: drawn scenes with captions, regions, questions and masks. Everything runs without a download.

`scene` and `to_sample` are pure functions of a number; `write_corpus` writes shards and the evaluation sets.
"""

from goldiclip.data.scenes.graph import Group, Look, Scene
from goldiclip.data.scenes.props import is_held_out
from goldiclip.data.scenes.sample import scene, to_sample
from goldiclip.data.scenes.settings import Settings
from goldiclip.data.scenes.write import write_corpus

__all__ = ["Group", "Look", "Scene", "Settings", "is_held_out", "scene", "to_sample", "write_corpus"]
