"""What a run says: records and events for the log and its listeners, sentences for whoever watches. Rank 0 speaks."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from typing import Any

from goldiclip.config import Config
from goldiclip.train.checkpoint import Progress
from goldiclip.train.folder import RunFolder
from goldiclip.train.launch import Seat
from goldiclip.train.log import Log, cut_log, open_sinks
from goldiclip.train.panel import Panel


class Voice:
    """Panel and log of a run on rank 0; elsewhere only complaints are heard, on stderr."""

    def __init__(self, seat: Seat) -> None:
        self.rank = seat.rank
        self.panel: Panel | None = None
        self.log: Log | None = None

    def open(self, config: Config, folder: RunFolder, progress: Progress, total: int) -> None:
        """Begin to write, after what the log held beyond `progress` has been put aside."""
        if self.rank != 0:
            return
        title = f"goldiclip · {config.run.name or config.recipe} · {folder.path}"
        self.panel = Panel(title, total, config.run.batch)
        cut_log(folder.log, progress.step)
        self.log = Log(folder.log, (self.panel, *open_sinks(config, folder.path, progress.step)), self.say)

    def say(self, text: str) -> None:
        if self.panel is not None:
            self.panel.say(text)
        elif self.rank == 0:
            print(text, flush=True)

    def complain(self, text: str) -> None:
        """Something this rank alone may know."""
        print(f"rank {self.rank}: {text}", file=sys.stderr, flush=True)

    def record(self, record: Mapping[str, Any]) -> None:
        if self.log is not None:
            self.log.write(record)

    def tell(self, event: str, message: str, progress: Progress, **facts: Any) -> None:
        """Something that happened, besides the steps."""
        self.record({"event": event, "step": progress.step, "samples": progress.samples, "message": message, **facts})

    def close(self) -> None:
        if self.log is not None:
            self.log.close()
