"""The command that compares; what it needs is imported when it runs."""

from __future__ import annotations

from pathlib import Path

from tyro.conf import Positional


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
