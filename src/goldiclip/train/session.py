"""A run, built: every part of it, made once at the place where the run goes on, and closed however it ends."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace

import torch
from torch import nn

from goldiclip.config import Config, ConfigError, to_yaml
from goldiclip.data.loader import Loader, open_sources
from goldiclip.data.tokenizer import Tokenizer
from goldiclip.kernels import fp8
from goldiclip.kernels.switch import HAS_TRITON, is_too_old, turn_off, why_plain
from goldiclip.learner import Learner
from goldiclip.model.pretrained import save_model
from goldiclip.train.accumulate import split
from goldiclip.train.checkpoint import Checkpoints, Progress, load, newest, read_progress
from goldiclip.train.feed import Feed
from goldiclip.train.folder import RunFolder, keep_config, kept_once_begun, versions, writing
from goldiclip.train.guard import Watch
from goldiclip.train.held_out import HeldOut
from goldiclip.train.launch import Agreement, Seat
from goldiclip.train.measure import Meter
from goldiclip.train.optim import build_optimizer, lock
from goldiclip.train.parallel import Distributed, compile_towers, parallelize
from goldiclip.train.schedule import SaveClock, total_samples
from goldiclip.train.start import begin_from, fit_scalars, starting_model
from goldiclip.train.voice import Voice
from goldiclip.types import Alone, Ranks


@dataclass
class Session:
    """What the loop works with."""

    config: Config
    folder: RunFolder
    seat: Seat
    ranks: Ranks
    learner: Learner
    model: nn.Module  # what is called in the learner's place
    optimizer: torch.optim.AdamW
    feed: Feed
    total: int  # samples of the whole run
    progress: Progress
    checkpoints: Checkpoints
    clock: SaveClock
    held_out: HeldOut | None
    voice: Voice
    watch: Watch
    meter: Meter
    agreement: Agreement


@contextmanager
def opened(config: Config, folder: RunFolder, seat: Seat, init: str | None) -> Iterator[Session]:
    """Everything of a run, at the place where it goes on."""
    ranks: Ranks = Distributed() if seat.ranks > 1 else Alone()
    with ExitStack() as stack:
        if seat.is_first and not folder.resumes:
            stack.enter_context(kept_once_begun(folder))
        voice = Voice(seat)
        stack.callback(voice.close)
        before = read_progress(newest(folder.path)) if folder.resumes else Progress()
        loader = open_loader(config, seat, before.samples)
        if folder.resumes:
            check_data(folder, before, loader)
        learner = Learner(config, ranks)
        if init and not folder.resumes:
            begin(learner, init, config, folder, seat, voice)
        model, optimizer = spread(learner, config, seat, voice)
        if folder.resumes:
            load(newest(folder.path), learner, optimizer)
        if seat.is_first:
            keep_config(folder, config)
        progress = signed(before, config, seat, loader)
        checkpoints = Checkpoints(folder.checkpoints, config.run.keep_last, config.run.keep_best)
        stack.callback(checkpoints.wait)
        total = total_samples(config, loader.num_samples)
        voice.open(config, folder, progress, total)
        feed = Feed(loader, seat.device, config.run.micro_batch, voice.complain)
        stack.callback(feed.close)
        yield Session(
            config=config,
            folder=folder,
            seat=seat,
            ranks=ranks,
            learner=learner,
            model=model,
            optimizer=optimizer,
            feed=feed,
            total=total,
            progress=progress,
            checkpoints=checkpoints,
            clock=SaveClock(config.run, progress.step, progress.samples),
            held_out=HeldOut(config) if config.data.held_out else None,
            voice=voice,
            watch=Watch(config.objective.distill.prototypes),
            meter=Meter(config, seat, progress.seconds),
            agreement=Agreement(seat),
        )


def open_loader(config: Config, seat: Seat, start: int, batches: int = 0) -> Loader:
    """This rank's part of the run's batches from `start` to the run's end; or of the first few of them."""
    sources = open_sources(config)
    stop = total_samples(config, sum(int(sum(source.lengths)) for source in sources))
    return Loader(
        config,
        Tokenizer.of(config.model.text),
        rank=seat.rank,
        ranks=seat.ranks,
        start=start,
        stop=min(stop, batches * config.run.batch) if batches else stop,
        sources=sources,
    )


def begin(learner: Learner, init: str, config: Config, folder: RunFolder, seat: Seat, voice: Voice) -> None:
    """A new run from weights that exist: read them, keep a copy where the end needs one, fit scale and bias."""
    begin_from(learner, starting_model(init, config, voice.say))
    if config.run.wise_ft < 1 and seat.is_first:
        with writing(folder.start):
            save_model(learner.student, config, folder.start)
    batches = config.optim.fit_scalars_steps
    if batches:
        learner.to(seat.device)
        loader = open_loader(config, seat, 0, batches)
        pieces = (piece.to(seat.device) for batch in loader for piece in split(batch, config.run.micro_batch))
        scale, bias = fit_scalars(learner, pieces, learner.ranks)
        voice.say(f"scale {scale:.2f} and bias {bias:.2f} fitted on {batches} batches, the towers frozen")


def spread(learner: Learner, config: Config, seat: Seat, voice: Voice) -> tuple[nn.Module, torch.optim.AdamW]:
    """The learner on its device: locked, compiled and wrapped as the configuration says; and its optimiser."""
    if config.run.fp8 and not fp8.takes(seat.device):
        raise ConfigError("run.fp8 is True; allowed: False on this GPU, which has no products in 8 bits")
    learner.to(seat.device).train()
    if frozen := lock(learner, config.optim.lock):
        voice.say(f"optim.lock={config.optim.lock}: {len(frozen)} tensors stay as they are")
    learner.student.checkpoint_activations(config.run.checkpoint_activations)
    if reason := why_plain(seat.device, config.run.precision):
        voice.say(reason)
    if is_too_old(seat.device):
        turn_off()
    if config.run.compile and seat.device.type == "cuda" and HAS_TRITON:
        compile_towers(learner)
    elif config.run.compile:
        voice.say("run.compile is for CUDA devices with Triton: this run goes on uncompiled")
    model = parallelize(learner, config.run.layout)
    return model, build_optimizer(learner, config)


def signed(progress: Progress, config: Config, seat: Seat, loader: Loader) -> Progress:
    """A place in a run, with what its checkpoints say of the run besides."""
    return replace(
        progress,
        fingerprint=fingerprint_of(loader),
        config=to_yaml(config),
        seed=config.run.seed,
        ranks=seat.ranks,
        layout=config.run.layout,
        versions=versions(),
    )


def fingerprint_of(loader: Loader) -> str:
    """Of all the data the loader reads; sources that are no shards have none."""
    return "+".join(str(getattr(source, "fingerprint", "")) for source in loader.sources)


def check_data(folder: RunFolder, before: Progress, loader: Loader) -> None:
    """A place in one set of data means nothing in another."""
    if before.fingerprint != fingerprint_of(loader):
        raise ConfigError(
            f"{folder.path}: data.train is not what the run has read so far: a shard is missing, added or changed "
            f"(fingerprint {fingerprint_of(loader)}, was {before.fingerprint}); restore the shards, or start a new run "
            f"from these weights: --init {folder.path} --out ANOTHER"
        )


@contextmanager
def determinism(wanted: bool) -> Iterator[None]:
    """Algorithms whose result does not depend on who came first, for as long as the run lasts."""
    if not wanted:
        yield
        return
    os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")
    before = torch.are_deterministic_algorithms_enabled(), torch.backends.cudnn.benchmark
    torch.use_deterministic_algorithms(True)
    torch.backends.cudnn.benchmark = False
    try:
        yield
    finally:
        torch.use_deterministic_algorithms(before[0])
        torch.backends.cudnn.benchmark = before[1]
