"""How far a run is: a live bar with rate and time left where someone is looking, a line now and then elsewhere."""

from __future__ import annotations

import sys
import time
from collections.abc import Mapping
from types import TracebackType
from typing import Any

LINE_EVERY_SECONDS = 30.0
_MAX_COUNTS = 4


class Meter:
    def __init__(self, what: str, total: int, *, unit: str = "samples", quiet: bool = False) -> None:
        self.what, self.total, self.unit, self.done = what, total, unit, 0
        self.quiet = quiet or not total
        self._started = self._said = time.monotonic()
        self._bar: Any = None

    def __enter__(self) -> Meter:
        if not self.quiet and sys.stderr.isatty():
            self._bar = _bar(self.what, self.total)
            self._bar.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._bar is not None:
            self._bar.stop()
        elif not self.quiet and kind is None:
            self._say({})

    def spare(self, amount: int) -> None:
        """So many were done before: they are neither left to do nor part of the rate."""
        self.total -= amount
        if self._bar is not None:
            self._bar.update(0, total=self.total)

    def reach(self, done: int, counts: Mapping[str, int]) -> None:
        """As far as this."""
        self.advance(done - self.done, counts)

    def advance(self, amount: int, counts: Mapping[str, int]) -> None:
        self.done += amount
        if self._bar is not None:
            self._bar.update(0, completed=self.done, said=_said(counts))
        elif not self.quiet and time.monotonic() - self._said > LINE_EVERY_SECONDS:
            self._say(counts)

    def _say(self, counts: Mapping[str, int]) -> None:
        self._said = time.monotonic()
        seconds = max(self._said - self._started, 1e-9)
        rate = self.done / seconds
        left = f", {_duration((self.total - self.done) / rate)} left" if 0 < self.done < self.total else ""
        said = f"{self.what}: {self.done:,} of {self.total:,} {self.unit}, {_rate(rate)}{left}"
        print(f"{said}; {_said(counts)}" if counts else said, file=sys.stderr, flush=True)


def _bar(what: str, total: int) -> Any:
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    class Rate(TextColumn):
        def render(self, task: Any) -> Any:
            from rich.text import Text

            return Text(_rate(task.speed or 0.0), style="cyan")

    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), Rate(""), TimeRemainingColumn())
    bar = Progress(
        *columns, TextColumn("[dim]{task.fields[said]}"), console=Console(stderr=True), speed_estimate_period=300
    )
    bar.add_task(what, total=total, said="")
    return bar


def _rate(per_second: float) -> str:
    """Per minute where that is less than one a second."""
    return (
        f"{per_second:,.0f}/s"
        if per_second >= 10 or not per_second
        else (f"{per_second:.1f}/s" if per_second >= 1 else f"{60 * per_second:.1f}/min")
    )


def _said(counts: Mapping[str, int]) -> str:
    """The largest counts."""
    largest = sorted(counts.items(), key=lambda item: -item[1])[:_MAX_COUNTS]
    return ", ".join(f"{count:,} {reason}" for reason, count in largest)


def _duration(seconds: float) -> str:
    minutes, seconds = divmod(int(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02d}:{seconds:02d}"
