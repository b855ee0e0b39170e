"""What each equation costs by itself, per image: arithmetic, and bytes held until its gradient is taken.

The towers' costs are in `arithmetic`; this is what stands on top of them. `whole_bytes` is what the same equation holds
when it is written down plainly: every conditioned embedding, every logit, every softmax. In half precision a product's
result has two bytes, a number that a sum or a logarithm is taken of has four.
"""

from __future__ import annotations

from dataclasses import dataclass

from goldiclip.config import Config
from goldiclip.plan.arithmetic import Lengths, vision_sizes

TARGET_SHARE = 0.6  # of a task text's tokens


@dataclass(frozen=True, slots=True)
class LossCost:
    """One equation, one image."""

    name: str
    flops: float  # of a step: one forward and two backward passes, the teacher's side once
    recomputed_flops: float  # done a second time so that less has to be held
    kept_bytes: float
    whole_bytes: float


def loss_costs(config: Config, lengths: Lengths | None = None) -> list[LossCost]:
    """Of every active equation, in the order of a step."""
    lengths, retrieval, distill = lengths or Lengths(), config.objective.retrieval, config.objective.distill
    found = []
    if "ret" in config.terms:
        found += [_text_agnostic(config)] if retrieval.text_agnostic else []
        found += [_text_conditioned(config)] if retrieval.text_conditioned else []
    found += [_tokens(config, task, getattr(lengths, task)) for task in config.decoder_tasks]
    if "sd" in config.terms:
        found += [_prototypes(config, "ta")] if distill.text_agnostic else []
        found += [_prototypes(config, "tc")] if distill.text_conditioned else []
    return found


def _text_agnostic(config: Config) -> LossCost:
    """Every image against all N·K captions: a cosine, a signed logit and a mask per pair."""
    pairs, width = config.run.batch * config.data.captions, config.model.embedding
    return LossCost("ret/ta", 3 * 2 * pairs * width, 0, 9 * pairs, 9 * pairs)


def _text_conditioned(config: Config) -> LossCost:
    """Queries, keys and values once; attention, output projection and cosine per pair, made again for the gradient."""
    width, num_captions = config.model.embedding, config.data.captions
    per_other = num_captions if config.objective.retrieval.negatives == "all" else 1
    patches, pairs = _patches(config, config.model.vision.image_size), num_captions + (config.run.batch - 1) * per_other
    per_pair = pairs * (4 * patches * width + 2 * width**2)
    projections = 4 * patches * width**2 + 2 * num_captions * width**2
    kept = 9 * pairs + 2 * 4 * patches * width  # keys and values, before and after their projection
    # pooled and projected in half precision, and the unit vectors of both sides of the cosine
    whole = kept + pairs * width * (2 + 2 + 4 + 4)
    return LossCost("ret/tc", 3 * (per_pair + projections), per_pair, kept, whole)


def _tokens(config: Config, task: str, length: float) -> LossCost:
    """The vocabulary head on target tokens; its logits are made a block at a time, and again for the gradient."""
    targets, width, words = TARGET_SHARE * length, config.model.embedding, config.model.text.vocabulary
    logits = 2 * targets * width * words
    return LossCost(task, 3 * logits, logits, targets * (2 * width + 12), targets * words * (2 + 4))


def _prototypes(config: Config, pool: str) -> LossCost:
    """W and the cross-entropy, whose gradient is formed at once; for tc the mean attention of all queries before it."""
    distill, views, width = config.objective.distill, config.data.views, config.model.embedding
    student, teacher, prototypes = views.num_local, views.num_global, distill.prototypes
    flops, again = 2.0 * (3 * student + teacher) * width * prototypes, 0.0
    kept, whole = 4.0 * student * width, prototypes * (student * (2 + 4 + 4) + teacher * (2 + 4))
    if pool == "tc":
        queries = config.run.batch * (config.data.captions if distill.queries == "all" else 1)
        local, seen = (
            student * _patches(config, views.local_size),
            teacher * _patches(config, config.model.vision.image_size),
        )
        again = 2 * queries * local * width
        flops += 3 * again + 2 * queries * seen * width
        kept += 2 * 4 * local * width
        whole += queries * local * config.model.pooling_heads * (2 + 4) + queries * student * width * (2 + 2)
    return LossCost(f"sd/{pool}", flops, again, kept, whole)


def _patches(config: Config, size: int) -> int:
    return vision_sizes(config.model.vision).tokens(size) - 1


def cost_table(config: Config) -> str:
    """`loss_costs` as docs/method.md shows it."""
    rows = ["| equation | GFLOP | of which again | MB held | MB held, written plainly |", "|---|---|---|---|---|"]
    for cost in loss_costs(config):
        total, again = (cost.flops + cost.recomputed_flops) / 1e9, cost.recomputed_flops / 1e9
        rows.append(
            f"| {cost.name} | {total:.2f} | {again:.2f} | {cost.kept_bytes / 1e6:.2f} | {cost.whole_bytes / 1e6:.1f} |"
        )
    return "\n".join(rows)
