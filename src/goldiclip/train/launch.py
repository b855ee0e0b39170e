"""Who this process is among the ranks, how they agree, and how the outside world asks a run to stop.

One process needs nothing. torchrun, PyTorchJob and Ray Train set RANK and its companions; under `srun` the SLURM
variables say the same. A process group that stands already (Ray Train makes its own) is used and left standing.
"""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from types import FrameType
from typing import Any, TypeVar

import torch
import torch.distributed as dist
from torch._C._distributed_c10d import PrefixStore
from torch.distributed.rendezvous import rendezvous

from goldiclip.config import ConfigError

# EX_TEMPFAIL: "try again later". Slurm, Kubernetes and torchrun are told to start the same command again on it.
REQUEUE = 75

Answer = TypeVar("Answer")


class Interrupted(SystemExit):
    """The run was asked to stop, has saved, and can go on with `--resume`."""


@dataclass(frozen=True, slots=True)
class Seat:
    """This process among the ranks, and the device it computes on."""

    rank: int
    ranks: int
    device: torch.device

    @property
    def is_first(self) -> bool:
        return self.rank == 0


@contextmanager
def seated() -> Iterator[Seat]:
    """Take the seat the launcher gives this process; leave it as it was found."""
    rank, ranks, local = place_of(os.environ)
    device = torch.device("cuda", local) if torch.cuda.is_available() else torch.device("cpu")
    if device.type == "cuda":
        torch.cuda.set_device(device)
    owns = ranks > 1 and not dist.is_initialized()
    if owns:
        _join(device, rank, ranks)
    try:
        yield Seat(rank, ranks, device)
    finally:
        if owns and dist.is_initialized():
            dist.destroy_process_group()


def _join(device: torch.device, rank: int, ranks: int) -> None:
    """Meet the other ranks. Each attempt of a launcher meets anew: the addresses of dead ranks stay in its store."""
    store, rank, ranks = next(rendezvous("env://", rank, ranks))
    attempt = os.environ.get("TORCHELASTIC_RESTART_COUNT", "0")
    backend = "cpu:gloo,cuda:nccl" if device.type == "cuda" else "gloo"
    dist.init_process_group(backend, store=PrefixStore(f"attempt-{attempt}", store), rank=rank, world_size=ranks)


def place_of(environment: Mapping[str, str]) -> tuple[int, int, int]:
    """(rank, ranks, rank on this machine) as the launcher's variables have it."""
    if dist.is_initialized():
        return dist.get_rank(), dist.get_world_size(), int(environment.get("LOCAL_RANK", 0))
    for names in (("RANK", "WORLD_SIZE", "LOCAL_RANK"), ("SLURM_PROCID", "SLURM_NTASKS", "SLURM_LOCALID")):
        found = [environment.get(name) for name in names]
        if found[0] is not None and found[1] is not None:
            rank, ranks, local = int(found[0]), int(found[1]), int(found[2] or 0)
            if ranks > 1 and "MASTER_ADDR" not in environment:
                raise ConfigError(
                    f"{names[1]} says {ranks} ranks and MASTER_ADDR is not set, so they cannot find one another; "
                    "docs/cluster.md has the lines for torchrun, Slurm, Kubernetes and Ray"
                )
            return rank, ranks, local
    return 0, 1, 0


def is_restarted(environment: Mapping[str, str]) -> bool:
    """Whether the launcher started this same command again after a rank or the job had died."""
    counts = ("TORCHELASTIC_RESTART_COUNT", "SLURM_RESTART_COUNT")
    return any(int(environment.get(name) or 0) > 0 for name in counts)


def first_decides(seat: Seat, decide: Callable[[], Answer]) -> Answer:
    """Rank 0 acts for all; every rank gets its answer, or its error."""
    if seat.ranks == 1:
        return decide()
    said: list[Any] = [None, None]
    if seat.is_first:
        try:
            said[0] = decide()
        except (ConfigError, OSError) as error:
            said[1] = error
    dist.broadcast_object_list(said, src=0)
    if said[1] is not None:
        raise said[1]
    answer: Answer = said[0]
    return answer


class Agreement:
    """What each rank has noticed, added up and known to all, over a small group that no device waits for."""

    def __init__(self, seat: Seat) -> None:
        self.group: Any = dist.new_group(backend="gloo") if seat.ranks > 1 else None

    def sum(self, *noticed: int) -> list[int]:
        """Each number over all ranks."""
        if self.group is None:
            return list(noticed)
        numbers = torch.tensor(noticed, dtype=torch.int64)
        dist.all_reduce(numbers, group=self.group)
        return [int(number) for number in numbers]


class Signals:
    """Remembers that the process was asked to stop; the loop looks between steps. A second Ctrl-C stops at once."""

    ASKING = (signal.SIGTERM, signal.SIGUSR1, signal.SIGHUP, signal.SIGINT)

    def __init__(self) -> None:
        self.received: signal.Signals | None = None
        self._previous: dict[int, Any] = {}

    def __enter__(self) -> Signals:
        if threading.current_thread() is threading.main_thread():  # Ray Train runs the loop in another thread
            heeded = [number for number in self.ASKING if signal.getsignal(number) != signal.SIG_IGN]  # as under nohup
            self._previous = {number: signal.signal(number, self._note) for number in heeded}
        return self

    def __exit__(self, *_: object) -> None:
        for number, handler in self._previous.items():
            signal.signal(number, handler)

    def _note(self, number: int, frame: FrameType | None) -> None:
        if number == signal.SIGINT and self.received == signal.SIGINT:
            raise KeyboardInterrupt
        self.received = signal.Signals(number)

    @property
    def is_asking(self) -> bool:
        return self.received is not None

    @property
    def exit_code(self) -> int:
        return 130 if self.received == signal.SIGINT else REQUEUE
