"""Metrics as pure functions: tensors in, numbers out.

Ties are broken without luck. Where several candidates share a score, what is returned is the expectation over every
order they could stand in, in closed form: a scorer that says the same of everything gets exactly chance.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import Tensor

RESAMPLES = 1_000
INDICES_AT_ONCE = 4_000_000  # of a bootstrap: 32 MB


class Estimate(float):
    """A number with its 95 % interval; NaN bounds where none was computed."""

    low: float
    high: float

    def __new__(cls, value: float, low: float = float("nan"), high: float = float("nan")) -> Estimate:
        estimate = super().__new__(cls, value)
        estimate.low, estimate.high = low, high
        return estimate


# --- ranks ----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Standing:
    """Where each query's best positive stands among its candidates."""

    better: Tensor  # (Q,) candidates that score strictly higher
    tied: Tensor  # (Q,) candidates with the same score, itself included
    tied_positives: Tensor  # (Q,) how many of the tied ones are positives

    def hit_at(self, k: int) -> Tensor:
        """(Q,) probability that some positive is among the first k, over every order of the tied ones.

        k − better places are left for the tied ones; all of them going to negatives has the hypergeometric probability
        C(tied − positives, places) / C(tied, places).
        """
        places = (k - self.better).clamp(min=0).minimum(self.tied)
        missed = torch.ones(len(places), dtype=torch.float64, device=places.device)
        for place in range(min(k, int(places.max()) if len(places) else 0)):
            negatives = (self.tied - self.tied_positives - place).clamp(min=0)
            missed = torch.where(place < places, missed * negatives / (self.tied - place).clamp(min=1), missed)
        return torch.where(places > 0, 1 - missed, torch.zeros_like(missed))

    def where(self, condition: Tensor, other: Standing) -> Standing:
        """This standing for the queries that meet the condition, the other one for the rest."""
        names = ("better", "tied", "tied_positives")
        return Standing(*(torch.where(condition, getattr(self, name), getattr(other, name)) for name in names))


def standing(scores: Tensor, is_positive: Tensor) -> Standing:
    """Of every row's best positive: scores and is_positive are (Q, C)."""
    best = scores.masked_fill(~is_positive, -torch.inf).amax(dim=1, keepdim=True)
    tied = scores == best
    return Standing(count(scores > best, 1), count(tied, 1), count(tied & is_positive, 1))


def count(is_true: Tensor, dim: int) -> Tensor:
    """How many are true: on a CPU twice as fast as a sum of booleans."""
    return is_true.view(torch.uint8).sum(dim, dtype=torch.int32).long()


def recall_share_at(scores: Tensor, is_positive: Tensor, k: int) -> Tensor:
    """(Q,) expected |first k ∩ positives| / |positives|. Absent candidates of a ragged pool score −inf."""
    better = (scores.unsqueeze(1) > scores.unsqueeze(2)).sum(2)
    tied = (scores.unsqueeze(1) == scores.unsqueeze(2)).sum(2)
    chance = ((k - better) / tied).clamp(0, 1).double()
    return (chance * is_positive).sum(1) / is_positive.sum(1)


def top_at(scores: Tensor, labels: Tensor, k: int) -> Tensor:
    """(N,) probability that the labelled class is among the k highest scores of its row."""
    own = scores.gather(1, labels.unsqueeze(1))
    better, tied = (scores > own).sum(1), (scores == own).sum(1)
    return ((k - better) / tied).clamp(0, 1).double()


def mean_per_class(hits: Tensor, labels: Tensor, num_classes: int) -> float:
    """The mean over the classes that occur of their mean hit: what sklearn calls balanced accuracy."""
    sums = torch.zeros(num_classes, dtype=torch.float64).index_add_(0, labels, hits.double())
    counts = torch.bincount(labels, minlength=num_classes)
    return (sums / counts)[counts > 0].mean().item()


# --- areas ----------------------------------------------------------------------------------------------------------


def areas(predicted: Tensor, labelled: Tensor, num_classes: int, ignore: int = 255) -> Tensor:
    """(3, C) pixels of one image, by class: in both maps, in the prediction, in the label. Ignored ones count not."""
    counted = labelled != ignore
    predicted, labelled = predicted[counted].long(), labelled[counted].long()
    maps = (labelled[predicted == labelled], predicted, labelled)
    return torch.stack([torch.bincount(one, minlength=num_classes)[:num_classes] for one in maps])


def iou_per_class(total: Tensor) -> Tensor:
    """(…, C) intersection over union of (…, 3, C) areas; NaN for a class in neither map."""
    intersect, predicted, labelled = total.double().unbind(-2)
    return intersect / (predicted + labelled - intersect)


def mean_iou(per_image: Tensor) -> float:
    """As mmseg: areas of (N, 3, C) accumulate over all images, then the mean over the classes that occur."""
    return iou_per_class(per_image.sum(0)).nanmean().item()


# --- intervals ------------------------------------------------------------------------------------------------------


def resampled_means(values: Tensor, groups: Tensor | None = None, resamples: int = RESAMPLES, seed: int = 0) -> Tensor:
    """(R,) means of bootstrap resamples. Whole groups are drawn: captions of one image do not count as independent."""
    values = values.double().cpu()
    if groups is None:
        sums, counts = values, torch.ones_like(values)
    else:
        _, group = groups.cpu().unique(return_inverse=True)
        sums = torch.zeros(int(group.max()) + 1, dtype=torch.float64).index_add_(0, group, values)
        counts = torch.bincount(group).double()
    return torch.cat([sums[drawn].sum(1) / counts[drawn].sum(1) for drawn in _draws(len(sums), resamples, seed)])


def resampled_ious(per_image: Tensor, resamples: int = RESAMPLES, seed: int = 0) -> Tensor:
    """(R,) mean IoUs of bootstrap resamples of the images."""
    num_images, flat = len(per_image), per_image.double().flatten(1).cpu()
    means = []
    for drawn in _draws(num_images, resamples, seed):
        weights = torch.zeros(len(drawn), num_images, dtype=torch.float64).scatter_add_(
            1, drawn, torch.ones_like(drawn, dtype=torch.float64)
        )
        means.append(iou_per_class((weights @ flat).unflatten(1, per_image.shape[1:])).nanmean(1))
    return torch.cat(means)


def _draws(size: int, resamples: int, seed: int) -> Iterator[Tensor]:
    """Blocks of rows of bootstrap indices: (r, size), `resamples` rows in all."""
    generator = torch.Generator().manual_seed(seed)
    at_once = max(1, INDICES_AT_ONCE // max(1, size))
    for start in range(0, resamples, at_once):
        yield torch.randint(size, (min(at_once, resamples - start), size), generator=generator)


def interval(draws: Tensor) -> tuple[float, float]:
    """The middle 95 % of bootstrap draws."""
    low, high = draws.quantile(torch.tensor([0.025, 0.975], dtype=draws.dtype)).tolist()
    return low, high


def estimate(values: Tensor, groups: Tensor | None = None) -> Estimate:
    """The mean of per-query values, with its interval."""
    if not len(values):
        return Estimate(float("nan"))
    return Estimate(values.double().mean().item(), *interval(resampled_means(values, groups)))
