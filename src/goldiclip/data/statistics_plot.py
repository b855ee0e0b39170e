"""The numbers of `goldiclip shards stats` as one picture."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from goldiclip.data.statistics import CONTEXT, Statistics
from goldiclip.types import CAPTION_SOURCES

COLOURS = {"raw": "#8d99ae", "short": "#e0a526", "long": "#2a6f97"}
INK, FAINT, GOLD = "#2b2d42", "#d9dce3", "#e0a526"
_STYLE: Any = {
    "font.family": "DejaVu Sans",
    "font.size": 9,
    "axes.titlesize": 11,
    "axes.titleweight": "bold",
    "axes.titlelocation": "left",
    "axes.titlepad": 10,
    "axes.edgecolor": "#9aa0ac",
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.labelcolor": INK,
    "text.color": INK,
    "xtick.color": INK,
    "ytick.color": INK,
    "axes.axisbelow": True,
    "figure.facecolor": "white",
}


def plot(statistics: Statistics, path: Path) -> Path:
    """Six panels as a PNG: token lengths, captions per image, image sizes, box places, box areas, questions."""
    import matplotlib
    from matplotlib.figure import Figure
    from matplotlib.layout_engine import ConstrainedLayoutEngine

    with matplotlib.rc_context(_STYLE):
        layout = ConstrainedLayoutEngine(w_pad=0.12, h_pad=0.12, wspace=0.04, hspace=0.06)
        figure = Figure(figsize=(13, 7.6), dpi=130, layout=layout)
        panels = figure.subplots(2, 3).ravel()
        for panel, draw in zip(panels, (_tokens, _per_image, _sizes, _places, _areas, _questions)):
            draw(panel, statistics)
        path.parent.mkdir(parents=True, exist_ok=True)
        figure.savefig(path)
    return path


def _tokens(axes: Any, statistics: Statistics) -> None:
    axes.set_title("Caption length")
    longest = max((max(values) for values in statistics.tokens.values() if values), default=CONTEXT)
    end = max(min(longest, 3 * CONTEXT), CONTEXT + 8)
    bins = np.arange(0, end + 2, max(1, round(end / 60))) - 0.5
    for source in CAPTION_SOURCES:
        values = statistics.tokens[source]
        if values:
            label = f"{source}: {statistics.truncated(source):.1%} over {CONTEXT}"
            weights = np.full(len(values), 100 / len(values))
            shown = np.minimum(values, bins[-1])
            axes.hist(
                shown, bins, weights=weights, color=COLOURS[source], alpha=0.35, histtype="stepfilled", label=label
            )
            axes.hist(shown, bins, weights=weights, color=COLOURS[source], histtype="step", linewidth=1.3)
    axes.set_ylim(0, axes.get_ylim()[1] * 1.25)
    axes.axvline(CONTEXT, color=INK, linewidth=1, linestyle=(0, (4, 3)))
    axes.set(xlabel="tokens, start and end included", ylabel="% of the source's captions")
    _grid(axes, "y")
    axes.legend(facecolor="white", edgecolor="white", framealpha=1, loc="upper right")


def _per_image(axes: Any, statistics: Statistics) -> None:
    axes.set_title("Per image")
    rows = [(f"{source} captions", values, COLOURS[source]) for source, values in statistics.num_captions.items()]
    rows += [("regions", statistics.num_regions, "#588157"), ("questions", statistics.num_questions, "#a4508b")]
    names = [name for name, _, _ in rows]
    means = [float(np.mean(values)) for _, values, _ in rows]
    bars = axes.barh(names, means, color=[colour for _, _, colour in rows], height=0.62)
    labels = [f"{mean:.1f}  in {np.mean(np.array(values) > 0):.0%}" for mean, (_, values, _) in zip(means, rows)]
    axes.bar_label(bars, labels, padding=5)
    axes.set_xlim(0, max(*means, 1e-9) * 1.35)
    axes.invert_yaxis()
    axes.set_xlabel("mean number; share of the images with any")
    axes.spines["left"].set_visible(False)
    axes.tick_params(axis="y", length=0)
    _grid(axes, "x")


def _sizes(axes: Any, statistics: Statistics) -> None:
    axes.set_title("Image size")
    width, height = np.array(statistics.sizes).T
    alpha = float(np.clip(300 / len(width), 0.03, 0.6))
    axes.scatter(width, height, s=16, color=COLOURS["long"], alpha=alpha, linewidths=0)
    limit = 1.12 * max(np.percentile(width, 99.5), np.percentile(height, 99.5))
    axes.plot([0, limit], [0, limit], color="#9aa0ac", linewidth=1, linestyle=(0, (4, 3)))
    axes.set(xlim=(0, limit), ylim=(0, limit), xlabel="width, pixels", ylabel="height, pixels")
    axes.text(
        0.03, 0.95, f"median {np.median(width):.0f} × {np.median(height):.0f}", transform=axes.transAxes, va="top"
    )
    _grid(axes, "both")


def _places(axes: Any, statistics: Statistics) -> None:
    axes.set_title("Where the boxes are")
    if not statistics.boxes:
        _nothing(axes, "no regions")
        return
    axes.imshow(
        _coverage(np.array(statistics.boxes)), cmap=_map(), extent=(0, 1, 1, 0), vmin=0, interpolation="bilinear"
    )
    axes.set(xticks=[0, 0.5, 1], yticks=[0, 0.5, 1], xlabel=f"{len(statistics.boxes):,} boxes, fractions of the image")
    for spine in axes.spines.values():
        spine.set(visible=True, color=FAINT)


def _coverage(boxes: Any, side: int = 48) -> Any:
    """How many boxes cover each cell of a grid: corners counted with signs, then summed along both axes."""
    x0, y0, x1, y1 = np.rint(boxes.T * side).astype(int)
    x1, y1 = np.maximum(x1, x0 + 1), np.maximum(y1, y0 + 1)
    corners = np.zeros((side + 2, side + 2))
    for y, x, sign in ((y0, x0, 1), (y0, x1, -1), (y1, x0, -1), (y1, x1, 1)):
        np.add.at(corners, (y, x), sign)
    return corners.cumsum(0).cumsum(1)[:side, :side]


def _areas(axes: Any, statistics: Statistics) -> None:
    axes.set_title("Box size and score")
    if not statistics.boxes:
        _nothing(axes, "no regions")
        return
    boxes, scores = np.array(statistics.boxes), np.array(statistics.scores)
    side = np.sqrt((boxes[:, 2] - boxes[:, 0]) * (boxes[:, 3] - boxes[:, 1]))
    bins = np.linspace(0, 1, 41)
    sure = scores >= 0.3
    axes.hist([side[sure], side[~sure]], bins, stacked=True, color=[GOLD, FAINT], label=_score_labels(sure))
    axes.set(xlabel="side of the box, √area, share of the image's", ylabel="boxes", xlim=(0, 1))
    axes.legend(frameon=False)
    _grid(axes, "y")


def _score_labels(sure: Any) -> list[str]:
    return [f"score ≥ 0.3: {sure.mean():.0%}, trained on", "score below 0.3"]


def _questions(axes: Any, statistics: Statistics) -> None:
    axes.set_title("Questions by kind")
    if not statistics.kinds:
        _nothing(axes, "no questions")
        return
    kinds = statistics.kinds.most_common(10)
    bars = axes.barh([name for name, _ in kinds], [count for _, count in kinds], color="#a4508b", height=0.62)
    axes.bar_label(bars, [f"{count:,}" for _, count in kinds], padding=5)
    axes.set_xlim(0, kinds[0][1] * 1.25)
    axes.invert_yaxis()
    axes.spines["left"].set_visible(False)
    axes.tick_params(axis="y", length=0)
    _grid(axes, "x")


def _nothing(axes: Any, words: str) -> None:
    axes.text(0.5, 0.5, words, ha="center", va="center", color="#9aa0ac", fontsize=12, transform=axes.transAxes)
    axes.set(xticks=[], yticks=[])
    for spine in axes.spines.values():
        spine.set_visible(False)


def _grid(axes: Any, axis: str) -> None:
    axes.grid(axis=axis, color=FAINT, linewidth=0.7)


def _map() -> Any:
    from matplotlib.colors import LinearSegmentedColormap

    return LinearSegmentedColormap.from_list("gold", ["#ffffff", "#f6d98b", GOLD, "#9c5f0a", INK])
