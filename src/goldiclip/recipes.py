"""A run is a function; an ablation is a diff of it."""

from __future__ import annotations

import difflib
from collections.abc import Callable
from dataclasses import replace

from goldiclip.config import (
    Config,
    ConfigError,
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
    resolve,
)

VIT_B16 = Model()


def cc3m() -> Config:
    """The paper's CC3M-recap run: all six signals, learned balance."""
    return Config(
        recipe="cc3m",
        model=VIT_B16,
        optim=Optim(lr=5e-4, betas=(0.9, 0.98), eps=1e-8, weight_decay=0.5),
        run=Run(batch=2_560, epochs=35),
    )


def open30m() -> Config:
    """The paper's Open-30M run."""
    config = cc3m()
    return replace(
        config,
        recipe="open30m",
        optim=replace(config.optim, eps=1e-6, weight_decay=0.2),
        run=replace(config.run, batch=6_400),
    )


def demo() -> Config:
    """All six signals on the embedded corpus, for a laptop's two cores: few samples, so each has to teach much."""
    return Config(
        recipe="demo",
        model=Model(
            vision=Vision(image_size=96, patch_size=16, width=128, depth=4, heads=4),
            text=Text(width=128, depth=2, heads=4),
            embedding=128,
            pooling_heads=4,
            decoder_depth=1,
            decoder_heads=4,
            init_logit_bias=-3.5,  # about −ln(batch): there is no time to come back from −10
        ),
        data=Data(
            vocabulary="corpus",
            captions=3,
            max_sentences=2,
            caption_weights=(0.25, 1.0, 1.0),
            views=Views(num_local=2, local_size=48),
            workers=1,
            window_shards=4,
        ),
        objective=Objective(
            retrieval=Retrieval(equal_texts="ignore"),
            distill=Distill(prototypes=512, momentum=0.99),
            balance="learned",
        ),
        optim=Optim(method="muon", lr=4e-3, weight_decay=0.1, scalar_lr=2e-2, warmup_steps=50, clip_norm=1.0),
        run=Run(batch=32, epochs=4, precision="fp32", compile=False, save_every_minutes=1.0, sinks=()),
    )


def demo_gpu() -> Config:
    """The same, larger, for minutes on one GPU: too short a run for compiling to pay."""
    config = demo()
    model = Model(
        vision=Vision(image_size=96, patch_size=12, width=256, depth=6, heads=4),
        text=Text(width=256, depth=4, heads=4),
        embedding=256,
        pooling_heads=4,
        decoder_depth=3,
        decoder_heads=4,
        init_logit_bias=-6.0,
    )
    data = replace(config.data, captions=4, views=replace(config.data.views, num_local=4), workers=14)
    distill = replace(config.objective.distill, prototypes=4_096)
    return replace(
        config,
        recipe="demo_gpu",
        model=model,
        data=data,
        objective=replace(config.objective, distill=distill),
        optim=replace(config.optim, lr=3e-3),
        run=replace(config.run, batch=512, epochs=10, precision="bf16"),
    )


def tiny() -> Config:
    """The smallest run with every part in it: for tests and smoke runs."""
    return Config(
        recipe="tiny",
        model=Model(
            vision=Vision(image_size=32, patch_size=8, width=32, depth=2, heads=2),
            text=Text(width=32, depth=2, heads=2),
            embedding=32,
            pooling_heads=2,
            decoder_depth=2,
            decoder_heads=2,
        ),
        data=Data(captions=3, views=Views(num_local=2, local_size=16), workers=0, window_shards=4),
        objective=Objective(
            retrieval=Retrieval(equal_texts="ignore"),
            distill=Distill(prototypes=64, momentum=0.99),
            balance="learned",
        ),
        optim=Optim(lr=1e-3, weight_decay=0.1, scalar_lr=2e-2, warmup_steps=50, clip_norm=1.0),
        run=Run(batch=8, epochs=1.0, precision="fp32", compile=False, save_every_minutes=2.0),
    )


# --- ablations: each row of the paper's table, from any full recipe --------------------------------------------------


def without_term(config: Config, *terms: str) -> Config:
    """`config` without some of the six terms."""
    weights = replace(config.objective.weights, **dict.fromkeys(terms, 0.0))
    return replace(config, objective=replace(config.objective, weights=weights))


def ablation_ca(full: Config) -> Config:
    """CA: cross-attention pooling under the sigmoid loss, alone."""
    return _uniform(without_term(full, "cap", "ref", "grd", "vqa", "sd"))


def ablation_dc(full: Config) -> Config:
    """+DC: the decoder without question answering."""
    return _uniform(without_term(full, "vqa", "sd"))


def ablation_vd(full: Config) -> Config:
    """+VD: the decoder with question answering."""
    return _uniform(without_term(full, "sd"))


def ablation_un(full: Config) -> Config:
    """+UN: learned balance."""
    return without_term(full, "sd")


def ablation_sd(full: Config) -> Config:
    """+SD: text-conditioned self-distillation; the whole method."""
    return full


def _uniform(config: Config) -> Config:
    return replace(config, objective=replace(config.objective, balance="uniform"))


# --- baselines ------------------------------------------------------------------------------------------------------


def baseline_flair(full: Config) -> Config:
    """FLAIR: one projection for keys and values, both sigmoid losses at half weight, nothing else."""
    config = ablation_ca(full)
    weights = replace(config.objective.weights, ret=0.5)
    return replace(
        config, model=replace(config.model, tie_key_value=True), objective=replace(config.objective, weights=weights)
    )


def baseline_flair_tcsd(full: Config) -> Config:
    """FLAIR + TC-SD: FLAIR with our self-distillation of both embeddings."""
    return _with_distillation(baseline_flair(full), full, text_conditioned=True)


def baseline_silc(full: Config) -> Config:
    """SILC-style: FLAIR with self-distillation of the text-agnostic embedding alone."""
    return _with_distillation(baseline_flair(full), full, text_conditioned=False)


def _with_distillation(config: Config, full: Config, text_conditioned: bool) -> Config:
    weights = replace(config.objective.weights, sd=full.objective.weights.sd)
    distill = replace(config.objective.distill, text_conditioned=text_conditioned)
    return replace(config, objective=replace(config.objective, weights=weights, distill=distill))


def baseline_sigmoid(full: Config) -> Config:
    """SigLIP's loss on the text-agnostic embedding: the plainest dual encoder."""
    config = ablation_ca(full)
    return replace(
        config,
        objective=replace(config.objective, retrieval=replace(config.objective.retrieval, text_conditioned=False)),
    )


RUNS: dict[str, Callable[[], Config]] = {
    "demo": demo,
    "demo_gpu": demo_gpu,
    "cc3m": cc3m,
    "open30m": open30m,
    "tiny": tiny,
}
VARIANTS: dict[str, Callable[[Config], Config]] = {
    "ca": ablation_ca,
    "dc": ablation_dc,
    "vd": ablation_vd,
    "un": ablation_un,
    "sd": ablation_sd,
    "flair": baseline_flair,
    "flair_tcsd": baseline_flair_tcsd,
    "silc": baseline_silc,
    "sigmoid": baseline_sigmoid,
}


def names() -> list[str]:
    """Every recipe: `run` or `run/variant`."""
    return [*RUNS, *(f"{run}/{variant}" for run in RUNS for variant in VARIANTS)]


def recipe(name: str) -> Config:
    """The configuration of `cc3m`, `demo/flair`, …"""
    run, _, variant = name.partition("/")
    if run not in RUNS or (variant and variant not in VARIANTS):
        near = difflib.get_close_matches(name, names(), n=3, cutoff=0.4)
        nearest = f"nearest: {', '.join(near)}; " if near else ""
        every = f"{', '.join(RUNS)}, each plain or with /{', /'.join(VARIANTS)}"
        raise ConfigError(f"{name!r} is no recipe; {nearest}there are {every}")
    config = RUNS[run]()
    return resolve(replace(VARIANTS[variant](config) if variant else config, recipe=name))
