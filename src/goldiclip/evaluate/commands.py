"""The commands that measure and compare, one short function each; what they need is imported when they run."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Literal

from tyro.conf import Positional


def evaluate(
    model: Positional[str],
    *,
    data: Path | None = None,
    only: str = "",
    mode: str = "",
    out: Path | None = None,
    custom: tuple[Path, ...] = (),
    shortlist: int = 0,
    segmentation: str = "value,sink",
    spaced: bool = False,
    fit: Literal["own", "crop", "whole"] = "own",
    overlays: int = 8,
    strict: bool = False,
    precision: str = "",
    batch: int = 64,
) -> None:
    """Measure a model on every set found: `goldiclip evaluate runs/first --data sets`. Under torchrun, on all ranks.

    Args:
        model: An encoder folder, a run, a hub name, flair:FILE, cosmos:FILE, open_clip:FILE or open_clip:MODEL/TAG.
        data: Folder that holds the sets. What is missing is listed with its licence, source and layout.
        only: Sets by name, parted by commas, such as coco,docci_fg.
        mode: tc, ta, or both; those the model has unless you say otherwise.
        out: Folder for results and overlays; evaluation/ beside the model unless you say otherwise.
        custom: CSV and JSONL files and folders of your own.
        shortlist: Also two-stage retrieval: this many candidates by ta, ordered by tc.
        segmentation: value, the paper's; sink; attention; parted by commas. A model is measured in those that it has.
        spaced: Segmentation class names with their spaces back.
        fit: Crop the centre, squeeze in the whole image, or what the model itself was made for.
        overlays: Segmentations of each set saved to look at.
        strict: Stop at the first problem of the data instead of leaving it out.
        precision: fp32 or bf16; bf16 on a GPU unless you say otherwise.
        batch: Images in a block.
    """
    from goldiclip.evaluate import command
    from goldiclip.train.launch import seated
    from goldiclip.train.parallel import current_ranks
    from goldiclip.train.report import write_report

    how = {"fit": None if fit == "own" else fit, "spaced": spaced, "overlays": overlays, "strict": strict}
    options = command.options(only, mode, segmentation, custom, shortlist, **how)
    with seated() as seat:
        given: dict[str, Any] = {"device": seat.device, "precision": precision, "batch": batch}
        file = command.run(model, data, options, out=out, ranks=current_ranks(), **given)
        run = command.run_of(file)
        if run is not None and seat.is_first:
            print(write_report(run))


def compare(
    runs: Positional[tuple[Path, ...]], *, against: str = "", method: str = "GoldiCLIP", size: str = "30M"
) -> None:
    """Show a run's numbers beside the paper's or another run's, or several runs as an ablation table.

    Args:
        runs: Folders with results of `goldiclip evaluate`; several make an ablation table, in their order.
        against: paper, or another run.
        method: Of the paper's rows, the one differences are to.
        size: That row's training data: 3M, 30M, 2B, 10B, CC3M-recap, …
    """
    from goldiclip.evaluate.command import compare as show

    for page in show(runs, against, method, size):
        print(page)
