"""An estimate for a person to read."""

from __future__ import annotations

from rich.console import Console, Group, RenderableType
from rich.table import Table
from rich.text import Text

from goldiclip.plan.estimate import USABLE, Estimate


def show(found: Estimate, console: Console | None = None) -> None:
    """Parts, memory, time, money; and what to change when it does not fit."""
    (console or Console()).print(Group(*_rows(found)))


def _rows(found: Estimate) -> list[RenderableType]:
    config, device = found.config, found.device
    source = "calibrated on this GPU" if device.is_measured else "a prediction: scaled from an H200"
    title = f"{config.recipe} on {found.gpus} × {device.name} ({source})"
    return [Text(title, style="bold"), Text(), _parts(found), Text(), _memory(found), Text(), _summary(found)]


def _table(*columns: str) -> Table:
    table = Table(box=None, pad_edge=False, header_style="dim", padding=(0, 2, 0, 0))
    for number, column in enumerate(columns):
        table.add_column(column, justify="left" if number == 0 else "right")
    return table


def _parts(found: Estimate) -> Table:
    table = _table("part", "parameters", "GFLOP/image", "ms/step", "share")
    by_name = {part.name: part for part in found.parts}
    for name, seconds in found.seconds.items():
        part = by_name.get(name)
        parameters = f"{part.parameters / 1e6:.1f} M" if part and part.parameters else ""
        flops = f"{part.step_flops / 1e9:.3g}" if part else ""
        table.add_row(name, parameters, flops, f"{1e3 * seconds:.1f}", f"{seconds / found.step_seconds:.0%}")
    total = sum(part.parameters for part in found.parts) / 1e6
    table.add_row("all", f"{total:.1f} M", f"{found.gflops_per_image:.4g}", f"{1e3 * found.step_seconds:.1f}", "")
    return table


def _memory(found: Estimate) -> Table:
    table = _table(f"memory of one GPU, {found.micro_batch} images at once", "GB")
    for name, size in found.gigabytes.items():
        table.add_row(name, f"{size:.1f}")
    verdict = "fits" if found.fits else "does not fit"
    whole = sum(found.gigabytes.values())
    table.add_row(f"all: {verdict} {USABLE:.0%} of {found.device.gigabytes:.0f} GB", f"{whole:.1f}")
    return table


def _summary(found: Estimate) -> Table:
    table = _table("", "")
    table.columns[1].justify = "left"
    config, hours = found.config, found.hours
    rows = {
        "images per second": f"{found.images_per_second:,.0f}, {found.images_per_second / found.gpus:,.0f} per GPU",
        "model-FLOP utilisation": f"{found.mfu:.0%}",
        "the run": f"{found.samples:,} samples, {found.samples // config.run.batch:,} steps of {config.run.batch:,}",
        "time": f"{hours:,.1f} h ({hours / 24:.1f} days)" if hours >= 1 else f"{60 * hours:.1f} min",
        "cost": f"${found.dollars:,.0f} at ${found.dollars_per_hour:.2f} per GPU and hour",
        "largest micro-batch": _micro_batch(found),
        "network": f"{found.network_gigabytes:.2f} GB per GPU and step" if found.gpus > 1 else "none",
        "loader": f"{found.loader_cores} cores per GPU; at least {found.shards} shards",
    }
    for name, value in rows.items():
        table.add_row(name, value)
    return table


def _micro_batch(found: Estimate) -> str:
    if not found.largest_micro_batch:
        return "not even one image fits: a smaller model, run.layout=fsdp or run.checkpoint_activations=True"
    if found.fits:
        return f"{found.largest_micro_batch:,} of {found.share:,} images per GPU"
    return f"{found.largest_micro_batch:,} images: set run.micro_batch={found.even_micro_batch}"
