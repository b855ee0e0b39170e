"""The model as ONNX graphs: image.onnx, text.onnx and, where it pools, pooling.onnx."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from goldiclip.config import Config
from goldiclip.data.tokenizer import Tokenizer
from goldiclip.inference.graphs import ImageGraph, PoolingGraph, TextGraph, padded
from goldiclip.inference.parity import Answers, Exported, Probe, compared, milliseconds
from goldiclip.model.goldiclip import GoldiCLIP
from goldiclip.model.similarity import cosines

ROWS_TRACED = 4


def export_onnx(model: GoldiCLIP, config: Config, folder: Path, probe: Probe) -> list[Exported]:
    """Each graph is compared with ours under onnxruntime, fed with what the other graphs gave."""
    folder.mkdir(parents=True, exist_ok=True)
    ids = padded(Tokenizer.of(config.model.text).encode(probe.texts), config.model.text.context)
    image = _Graph(ImageGraph(model), folder / "image.onnx", ["images"], ["image_embedding", "keys", "values"])
    text = _Graph(TextGraph(model), folder / "text.onnx", ["ids"], ["text_embedding"])
    for graph, given in ((image, probe.images), (text, ids)):
        graph.write(given)
    ours, theirs = zip(*(graph.both(given) for graph, given in ((image, probe.images), (text, ids))))
    scores = [cosines(side[0].numbers[0], side[1].numbers[0]) for side in (ours, theirs)]
    report = []
    for graph, mine, other in zip((image, text), ours, theirs):
        mine, other = (replace(side, scores=score) for side, score in zip((mine, other), scores))
        report.append(compared(graph.path.name, graph.path, mine, other, probe.owner))
    if model.pooling is None:
        return report
    pooling = _Graph(PoolingGraph(model), folder / "pooling.onnx", ["texts", "keys", "values"], ["score"])
    pooling.write(ours[1].numbers[0], *ours[0].numbers[1:])
    mine, _ = pooling.both(ours[1].numbers[0], *ours[0].numbers[1:])
    _, other = pooling.both(theirs[1].numbers[0], *theirs[0].numbers[1:])
    return [*report, compared(pooling.path.name, pooling.path, mine, other, probe.owner)]


class _Graph:
    def __init__(self, module: nn.Module, path: Path, inputs: Sequence[str], outputs: Sequence[str]) -> None:
        self.module, self.path, self.inputs, self.outputs = module.eval(), path, list(inputs), list(outputs)

    def write(self, *given: Tensor) -> None:
        """For any number of rows; traced with a few."""
        free = {name: {0: torch.export.Dim(f"num_{name}", min=1)} for name in self.inputs}
        if "keys" in free:  # an image's keys and values come together
            free["values"] = free["keys"]
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", "# The axis name")  # keys and values share one
            program = torch.onnx.export(
                self.module,
                tuple(tensor[:ROWS_TRACED].clone() for tensor in given),
                input_names=self.inputs,
                output_names=self.outputs,
                dynamic_shapes=tuple(free.values()),
                dynamo=True,
                verbose=False,
            )
        assert program is not None
        program.save(str(self.path))

    @torch.no_grad()
    def both(self, *given: Tensor) -> tuple[Answers, Answers]:
        """Ours and onnxruntime's; a first output of (pictures, texts) is a score too."""
        import onnxruntime

        session = onnxruntime.InferenceSession(str(self.path), providers=["CPUExecutionProvider"])
        feed = {name: tensor.numpy() for name, tensor in zip(self.inputs, given, strict=True)}
        one = {name: array[:1] for name, array in feed.items()}
        session.run(None, one)  # one row, where several were traced
        theirs = [torch.from_numpy(np.asarray(output)) for output in session.run(None, feed)]
        found: Any = self.module(*given)
        ours = list(found) if isinstance(found, tuple) else [found]
        spent = milliseconds(lambda: self.module(*given)), milliseconds(lambda: session.run(None, feed))
        return Answers(ours, ours[0], spent[0]), Answers(theirs, theirs[0], spent[1])
