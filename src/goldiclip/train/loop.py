"""The loop. A run goes from batch to batch; all it needs to go on after anything is its last checkpoint."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, replace
from pathlib import Path

from torch.distributed.tensor import DTensor

from goldiclip.config import Config
from goldiclip.data.vocabulary import with_vocabulary
from goldiclip.train.accumulate import backward
from goldiclip.train.checkpoint import CheckpointError
from goldiclip.train.feed import Delivered
from goldiclip.train.folder import open_folder, writing
from goldiclip.train.guard import NonFinite, blame, join, not_finite, write_failure
from goldiclip.train.launch import Interrupted, Signals, first_decides, seated
from goldiclip.train.measure import Numbers, device_name, record_of
from goldiclip.train.optim import clip_gradients, gradient_norms, set_learning_rate
from goldiclip.train.schedule import learning_rate
from goldiclip.train.seeds import seed_step
from goldiclip.train.session import Session, determinism, opened
from goldiclip.train.start import write_encoder
from goldiclip.types import Batch, Losses


def train(
    config: Config,
    *,
    out: Path | None = None,
    resume: Path | None = None,
    init: str | None = None,
    requeue: bool = False,
) -> Path:
    """Run `config` to its end and return its folder.

    out      the folder of a new run; by default runs/NAME
    resume   the folder of a run to go on with, from its newest checkpoint
    init     weights a new run begins from: an encoder, run or checkpoint folder, or `open_clip:FILE` and the like
    requeue  go on with the run in `out` if there is one: the same command may be started again and again
    """
    config = with_vocabulary(config)
    with seated() as seat, Signals() as signals, determinism(config.run.deterministic):
        folder, config = first_decides(seat, lambda: open_folder(config, out, resume, requeue))
        with opened(config, folder, seat, init) as run:
            if init and not folder.resumes:
                evaluate(run)
            steps(run, signals)
            finish(run)
    return folder.path


def steps(run: Session, signals: Signals) -> None:
    """From where the run stands to its end, or to the moment it is asked to stop."""
    greet(run)
    for delivered in run.feed:
        samples = delivered.batches[0].samples
        set_learning_rate(run.optimizer, learning_rate(run.config, samples, run.total))
        seed_step(run.config.run.seed, samples, run.seat.rank)
        run.optimizer.zero_grad(set_to_none=True)
        losses = backward(run.model, delivered.batches)
        values = update(run, losses, delivered.batches)
        run.progress = replace(run.progress, step=run.progress.step + 1, samples=samples, score=None)
        asked, due, batch_hash = run.agreement.sum(signals.is_asking, run.clock.due_by_time(), delivered.hash)
        record(run, values, delivered, batch_hash)
        if is_evaluation_due(run):
            evaluate(run)
        if asked or due or run.clock.due(run.progress.step, samples) or is_best(run):
            save(run)
        elif complaint := run.checkpoints.poll():
            run.voice.tell("alarm", complaint, run.progress)
        if asked:
            interrupt(run, signals)


def greet(run: Session) -> None:
    """Say where and on what the run begins or goes on."""
    device, ranks = device_name(run.seat.device), run.seat.ranks
    trained = sum(parameter.numel() for parameter in run.learner.parameters() if parameter.requires_grad)
    verb = "goes on with" if run.progress.step else "begins on"
    message = f"{verb} {ranks} × {device}; {trained / 1e6:.1f} M trained parameters; {run.total:,} samples in all"
    run.voice.tell("started", message, run.progress, total=run.total, ranks=ranks, device=device, parameters=trained)
    run.meter.start()


def update(run: Session, losses: Losses, batches: Sequence[Batch]) -> dict[str, float]:
    """One step of the optimiser and the teacher, unless some number is none; returns the step's numbers.

    The fused optimiser is given the verdict on the device and skips a bad step by itself, so that the device has work
    while the host waits for the numbers. Sharded parameters cannot be given it: there the host looks first.
    """
    norms = gradient_norms(run.learner)
    numbers = Numbers(run.learner, losses, norms, run.ranks)
    if run.config.optim.clip_norm:
        clip_gradients(run.learner, norms["all"], run.config.optim.clip_norm)
    is_sharded = isinstance(next(run.learner.parameters()), DTensor)
    if not is_sharded:
        run.optimizer.found_inf = numbers.found_inf  # type: ignore[attr-defined]
        run.optimizer.step()
    values = numbers.read()
    if bad := not_finite({name: values[name] for name in numbers.watched}):
        stop(run, values, bad, batches)
    if is_sharded:
        run.optimizer.step()
    run.learner.student.scale.clamp_()
    run.learner.update_teacher()
    return values


def stop(run: Session, values: Mapping[str, float], bad: Sequence[str], batches: Sequence[Batch]) -> None:
    """A number that is none: say where it is, write what repeats the step, and end. No weight has been touched."""
    batch = join(batches)
    where = blame(run.learner, batch)
    path = run.folder.path / f"failure-step-{run.progress.step + 1:09d}.safetensors"
    facts = {"step": run.progress.step + 1, "samples": batch.samples, "bad": list(bad), "blame": where}
    run.optimizer.zero_grad(set_to_none=True)
    written = write_failure(path, run.learner, batch, run.config, facts | {"values": json.dumps(values)})
    kept = f"goldiclip replay {path} repeats it" if written else f"{path} could not be written"
    message = f"step {facts['step']}: {', '.join(bad)} not finite; {where}; no weight was changed; {kept}"
    run.voice.tell("alarm", message, run.progress)
    raise NonFinite(message)


def record(run: Session, values: Mapping[str, float], delivered: Delivered, batch_hash: int) -> None:
    """The step's record to the log, and what looks odd in it."""
    config, progress = run.config, run.progress
    costs = run.meter.step(delivered.waited_seconds)
    is_last = progress.samples >= run.total
    if progress.step % config.run.log_every_steps and progress.step > 1 and not is_last:
        return
    found = {
        "step": progress.step,
        "samples": progress.samples,
        **record_of(values, asdict(config.objective.weights)),
        "lr": learning_rate(config, progress.samples, run.total) * config.optim.lr,
        **costs,
        "counts": delivered.counts,
        "batch_hash": batch_hash,
    }
    run.voice.record(found)
    for event, message in run.watch.look(found):
        run.voice.tell(event, message, progress)


def is_evaluation_due(run: Session) -> bool:
    every = run.config.run.evaluate_every_steps
    return every > 0 and run.progress.step % every == 0


def evaluate(run: Session) -> None:
    """Held-out retrieval of the weights as they are; an alarm when it has fallen."""
    if run.held_out is None:
        return
    recall = run.held_out.recall(run.learner.student, run.ranks, run.seat.device)
    score, best = recall.get("tc", recall.get("ta", 0.0)), run.progress.best
    start = score if run.progress.step == 0 else run.progress.start
    run.progress = replace(run.progress, score=score, start=start, best=max(score, best if best is not None else score))
    told = ", ".join(f"{mode} {value:.1%}" for mode, value in recall.items())
    run.voice.tell(
        "held_out", f"held-out recall@1 over {len(run.held_out)} images: {told}", run.progress, recall=recall
    )
    if best is not None and score < best - run.config.run.alarm_drop:
        since = f"; it began at {start:.1%}" if start is not None else ""
        message = (
            f"held-out recall@1 has fallen to {score:.1%} from {best:.1%}{since}: the best checkpoint is kept; "
            "a lower optim.lr, optim.layer_decay below 1 or optim.lock keep more of what was there"
        )
        run.voice.tell("alarm", message, run.progress)
    run.meter.start()


def is_best(run: Session) -> bool:
    """Whether these weights were just measured to be the best so far, and such are to be kept."""
    score = run.progress.score
    return run.config.run.keep_best > 0 and score is not None and score == run.progress.best


def save(run: Session) -> None:
    run.progress = replace(run.progress, seconds=run.meter.total_seconds())
    complaint = run.checkpoints.save(run.learner, run.optimizer, run.progress)
    run.clock.saved(run.progress.step, run.progress.samples)
    if complaint:
        run.voice.tell("alarm", complaint, run.progress)


def interrupt(run: Session, signals: Signals) -> None:
    """Asked to stop: the checkpoint is on its way; wait for it and leave."""
    complaint = run.checkpoints.wait()
    run.agreement.sum(0)  # all have saved: a launcher may kill the others as soon as one has left
    said = complaint or f"saved at step {run.progress.step}"
    name = signals.received.name if signals.received else "another rank's signal"
    run.voice.tell(
        "interrupted", f"{name}: {said}; go on with: goldiclip train --resume {run.folder.path}", run.progress
    )
    raise Interrupted(signals.exit_code)


def finish(run: Session) -> None:
    """The last measure, the last checkpoint, the encoder for use, and the report."""
    if run.progress.score is None:
        evaluate(run)
    run.checkpoints.wait()
    save(run)
    if complaint := run.checkpoints.wait():
        raise CheckpointError(f"{complaint}; then: goldiclip train --resume {run.folder.path}")
    with writing(run.folder.encoder, f"make room, then: goldiclip train --resume {run.folder.path}"):
        write_encoder(run.learner, run.config, run.folder, run.seat.is_first)
    run.voice.tell("finished", f"the encoder is in {run.folder.encoder}", run.progress)
    if run.seat.is_first:
        from goldiclip.train.report import write_report

        write_report(run.folder.path)
