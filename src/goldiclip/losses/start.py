"""What each term should be before the first step. A dry run shows these beside the real numbers.

An untrained model knows nothing, so every number follows from sizes and starting constants:

    ret   cosines are N(0, 1/D), so ℓ = s·cos + b: near b everywhere; the positives cost −b each, the negatives e^b
    cap…  logits of a head N(0, 0.02) on unit-variance tokens are N(0, 0.02²·D): ln(vocabulary) + half their variance
    sd    y is N(0, 1/D) per prototype, and the teacher, a copy, says of the whole image nearly what the student says of
          a part: the cross-entropy of one such draw with itself, at the two temperatures
"""

from __future__ import annotations

import math

import torch
import torch.nn.functional as F

from goldiclip.config import Config

HEAD_STD = 0.02


def expected_start(config: Config) -> dict[str, float]:
    """Each active term's value at initialisation; a term that sizes alone do not tell is left out."""
    found = {task: expected_token_loss(config) for task in config.decoder_tasks}
    if "ret" in config.terms:
        found["ret"] = sum(expected_retrieval(config).values())
    if "sd" in config.terms and config.objective.distill.normalize:
        distill, views = config.objective.distill, config.data.views
        pairs = views.num_global * views.num_local * (distill.text_agnostic + distill.text_conditioned)
        found["sd"] = pairs * expected_cross_entropy(config)
    return {term: found[term] for term in config.terms if term in found}


def expected_retrieval(config: Config) -> dict[str, float]:
    """L_ta and L_tc, those that are active. N is the global batch."""
    retrieval, num_images, num_captions = config.objective.retrieval, config.run.batch, config.data.captions
    cosine = torch.special.ndtri(torch.linspace(0, 1, 4_097, dtype=torch.float64)[1:-1]) / config.model.embedding**0.5
    logits = math.exp(config.model.init_logit_scale) * cosine + config.model.init_logit_bias
    positive, negative = F.softplus(-logits).mean().item(), F.softplus(logits).mean().item()
    parts = {}
    if retrieval.text_agnostic:
        parts["ta"] = positive + (num_images - 1) * negative
    if retrieval.text_conditioned:
        per_image = num_captions * positive + (num_images - 1) * negative
        parts["tc"] = num_images / (num_images + num_captions - 1) * per_image
    return parts


def expected_token_loss(config: Config) -> float:
    return math.log(config.model.text.vocabulary) + config.model.embedding * HEAD_STD**2 / 2


def expected_cross_entropy(config: Config) -> float:
    """Of one pair of views in one pool."""
    distill, rng = config.objective.distill, torch.Generator().manual_seed(0)
    y = torch.randn(32, distill.prototypes, generator=rng) / config.model.embedding**0.5
    target = (y / distill.teacher_temperature).softmax(-1)
    return -(target * (y / distill.student_temperature).log_softmax(-1)).sum(-1).mean().item()
