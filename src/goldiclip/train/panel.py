"""What a person sees of a run: a live panel in a terminal, a rare line in a file."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Mapping
from typing import Any

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.panel import Panel as Frame
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

BLOCKS = "▁▂▃▄▅▆▇█"
QUIET_SECONDS = 30.0


class Panel:
    """Listens to the log. In a terminal it redraws twice a second; elsewhere it prints a line every half minute."""

    def __init__(self, title: str, total: int, batch: int, console: Console | None = None) -> None:
        self.title, self.total, self.batch = title, total, batch
        self.console = console or Console()
        self.history: dict[str, deque[float]] = {}
        self.record: Mapping[str, Any] = {}
        self.held_out: Mapping[str, Any] = {}
        self.news = ""
        self.last_line, self.lines = -QUIET_SECONDS, 0
        self.live: Live | None = None
        if self.console.is_terminal:
            self.live = Live(get_renderable=self.draw, console=self.console, refresh_per_second=2)
            self.live.start()

    def __call__(self, record: Mapping[str, Any]) -> None:
        if "event" in record:
            self._event(record)
            return
        self.record = record
        for name, value in {"total": record["total"], **record["terms"]}.items():
            self.history.setdefault(name, deque(maxlen=400)).append(value)
        if self.live is None:
            self._line(record)

    def close(self) -> None:
        if self.live is not None:
            self.live.stop()
            self.live = None

    def say(self, message: str) -> None:
        """A sentence that stays on the screen, above the panel."""
        self.console.print(Text(message), soft_wrap=True)

    def _event(self, record: Mapping[str, Any]) -> None:
        if record["event"] == "held_out":
            self.held_out = record
        if message := record.get("message"):
            self.news = f"step {record['step']}: {message}"
            if record["event"] in ("alarm", "spike", "held_out") or self.live is None:
                self.say(self.news)

    def _line(self, record: Mapping[str, Any]) -> None:
        now = time.monotonic()
        if self.lines >= 2 and now - self.last_line < QUIET_SECONDS and record["samples"] < self.total:
            return
        self.last_line, self.lines = now, self.lines + 1
        terms = "  ".join(f"{name} {value:.3f}" for name, value in record["terms"].items())
        self.say(
            f"step {record['step']}/{self.total // self.batch}  loss {record['total']:.3f}  {terms}  "
            f"{record['images_per_second']:.0f} img/s  data wait {record['data_wait']:.0%}"
        )

    # --- the live panel ---------------------------------------------------------------------------------------------

    def draw(self) -> Frame:
        if not self.record:
            return Frame(Text("the first step…", style="dim"), title=self.title)
        parts: list[RenderableType] = [self._progress(), Text(), self._terms(), Text(), self._numbers()]
        if self.held_out:
            recalls = "   ".join(f"{name} {value:.1%}" for name, value in self.held_out["recall"].items())
            parts.append(Text(f"held-out R@1   {recalls}   (step {self.held_out['step']})"))
        if self.news:
            parts.append(Text(self.news, style="dim", overflow="ellipsis", no_wrap=True))
        return Frame(Group(*parts), title=self.title, border_style="dim")

    def _progress(self) -> Table:
        samples, speed = self.record["samples"], self.record["images_per_second"]
        left = (self.total - samples) / speed if speed else 0.0
        row = Table.grid(padding=(0, 2), expand=True)
        row.add_column(ratio=1)
        row.add_column(no_wrap=True)
        row.add_row(
            ProgressBar(total=self.total, completed=samples),
            f"{self.record['step']:,}/{self.total // self.batch:,} steps · {duration(left)} left",
        )
        return row

    def _terms(self) -> Table:
        table = Table.grid(padding=(0, 2))
        for style in ("bold", "cyan", "magenta", "dim"):
            table.add_column(style=style, justify="left" if style in ("bold", "dim") else "right")
        table.add_row("term", "loss", "weight", "")
        rows = {"total": self.record["total"], **self.record["terms"]}
        for name, value in rows.items():
            weight = self.record["task_weight"].get(name)
            table.add_row(
                name, f"{value:.3f}", f"{weight:.2f}" if weight is not None else "", sparkline(self.history[name], 32)
            )
        return table

    def _numbers(self) -> Text:
        record = self.record
        norms = record["gradient_norm"]
        parts = [
            f"{record['images_per_second']:,.0f} img/s",
            f"data wait {record['data_wait']:.0%}",
            f"{record['memory_gigabytes']:.1f} GB",
            *([f"MFU {record['mfu']:.0%}"] if record.get("mfu") else []),
            f"lr {record['lr']:.1e}",
            f"scale {record['scale']:.1f}",
            f"bias {record['bias']:.1f}",
            f"gradient {norms['all']:.2g}" if "all" in norms else "",
        ]
        return Text("   ".join(part for part in parts if part))


def sparkline(values: deque[float], width: int) -> str:
    """The history as one line of blocks, the newest at the right."""
    points = list(values)
    if len(points) > width:
        chunk = len(points) / width
        points = [_mean(points[int(i * chunk) : max(int(i * chunk) + 1, int((i + 1) * chunk))]) for i in range(width)]
    low, high = min(points), max(points)
    if not high > low:
        return BLOCKS[0] * len(points)
    return "".join(BLOCKS[min(7, int(8 * (point - low) / (high - low)))] for point in points)


def _mean(values: list[float]) -> float:
    return sum(values) / len(values)


def duration(seconds: float) -> str:
    minutes, seconds = divmod(int(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    days, hours = divmod(hours, 24)
    if days:
        return f"{days} d {hours} h"
    return f"{hours} h {minutes:02} min" if hours else f"{minutes} min {seconds:02} s"
