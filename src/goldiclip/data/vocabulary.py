"""The tokens that a corpus needs: a small model's vocabulary head and embedding need not know all of CLIP's 49,408.

Kept tokens are closed under merging, so training texts have the very tokens that CLIP's tokenizer gives them; other
words fall into smaller pieces, single bytes at worst. The choice stands in the configuration (`model.text.tokens`), and
with it in the folders of run and encoder.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from goldiclip.config import Config, resolve
from goldiclip.data.loader import open_sources
from goldiclip.data.many import progress
from goldiclip.data.schema import BadSample
from goldiclip.data.tasks import TASKS
from goldiclip.data.tokenizer import merged_tokens
from goldiclip.types import Sample

# Samples looked at, evenly spread: what occurs once in as many is rare enough to be spelled.
LOOKED_AT = 20_000


def with_vocabulary(config: Config) -> Config:
    """`config` with the tokens its corpus needs, where `data.vocabulary` asks for that and none were chosen yet."""
    if config.data.vocabulary == "clip" or config.model.text.tokens:
        return config
    text = replace(config.model.text, tokens=merged_tokens(corpus_texts(config)))
    return resolve(replace(config, model=replace(config.model, text=text)))


def corpus_texts(config: Config, most: int = LOOKED_AT) -> Iterator[str]:
    """Everything that training may read aloud: of a spread of samples, and the prompts of the tasks."""
    yield from (task.prompt.format("") for task in TASKS.values())
    for source in open_sources(config):
        total = int(sum(source.lengths))
        rows = range(0, total, -(-total // most))
        for index in progress(rows, "reading the corpus's words", len(rows)):
            try:
                yield from texts_of(source[index])
            except BadSample:
                continue


def texts_of(sample: Sample) -> Iterator[str]:
    yield from (caption.text for caption in sample.captions)
    for region in sample.regions:
        yield from (region.phrase, region.sentence)
    for question in sample.questions:
        yield from (question.question, question.answer)
