"""Several processes, one run: what they exchange, and how a learner is spread over them from outside.

The global loss is the mean over ranks of what each returns; DDP and FSDP2 average gradients, which makes them its own.
"""

from __future__ import annotations

import inspect
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Literal

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import Tensor, nn
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh
from torch.distributed.fsdp import FSDPModule, fully_shard
from torch.distributed.tensor import DTensor
from torch.nn.parallel import DistributedDataParallel

from goldiclip.learner import Learner
from goldiclip.types import Alone, Ranks

# Gradients are averaged in pieces of about this many numbers.
BUCKET_ELEMENTS = 2**24
# Kinds of calls that a part is compiled for: sizes of views, micro-batches whole and last, with and without gradient.
MOST_SHAPES = 32


def local(tensor: Tensor) -> Tensor:
    """What of it lies here."""
    return tensor.to_local() if isinstance(tensor, DTensor) else tensor


def whole(tensor: Tensor) -> Tensor:
    """All of it; every rank has to ask."""
    return tensor.full_tensor() if isinstance(tensor, DTensor) else tensor


def current_ranks() -> Ranks:
    """The ranks of the process group that stands; without one a process is alone."""
    return Distributed() if dist.is_initialized() and dist.get_world_size() > 1 else Alone()


class Distributed:
    """`Ranks` over torch.distributed, gloo and NCCL alike."""

    def __init__(self, group: dist.ProcessGroup | None = None) -> None:
        self.group = group
        self.rank, self.size = dist.get_rank(group), dist.get_world_size(group)
        # Counts of ragged rows travel by gloo where it stands: asking a device for them would make the step wait.
        self._counts_on_cpu = "cpu:gloo" in str(dist.get_backend_config(group))
        self._under_way: list[dist.Work] = []

    def gather(self, local: Tensor) -> Tensor:
        found = self.begin_gather(local)
        self.wait()
        return found

    def begin_gather(self, local: Tensor) -> Tensor:
        counts = self._counts(len(local), local.device)
        return _Gather.apply(local, self, counts) if local.requires_grad else self.gather_rows(local, counts)

    def wait(self) -> None:
        while self._under_way:
            self._under_way.pop().wait()

    def sum(self, value: Tensor) -> Tensor:
        total = value.detach().clone()
        dist.all_reduce(total, group=self.group)
        return total

    def mean(self, value: Tensor) -> Tensor:
        return self.sum(value) / self.size

    def reduce_scatter(self, value: Tensor, counts: Sequence[int]) -> Tensor:
        most = max(counts)
        blocks = value.split(list(counts))
        padded = value.contiguous() if min(counts) == most else torch.cat([_pad(block, most) for block in blocks])
        own = value.new_empty(most, *value.shape[1:])
        dist.reduce_scatter_tensor(own, padded, group=self.group)
        return own[: counts[self.rank]]

    def gather_rows(self, local: Tensor, counts: Sequence[int]) -> Tensor:
        """Every rank's rows, without gradient; rows of equal counts are there after `wait`."""
        most = max(counts)
        everyone = local.new_empty(most * self.size, *local.shape[1:])
        padded = _pad(local.detach(), most).contiguous()
        work = dist.all_gather_into_tensor(everyone, padded, group=self.group, async_op=True)
        assert work is not None
        self._under_way.append(work)
        if min(counts) == most:
            return everyone
        self.wait()
        return torch.cat([block[:count] for block, count in zip(everyone.split(most), counts, strict=True)])

    def _counts(self, count: int, device: torch.device) -> list[int]:
        """How many rows each rank has."""
        own = torch.tensor([count], device="cpu" if self._counts_on_cpu else device)
        everyone = own.new_empty(self.size)
        dist.all_gather_into_tensor(everyone, own, group=self.group)
        return everyone.tolist()


class _Gather(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, local: Tensor, ranks: Distributed, counts: Sequence[int]) -> Tensor:
        ctx.ranks, ctx.counts = ranks, counts
        return ranks.gather_rows(local, counts)

    @staticmethod
    def backward(ctx: Any, *upstream: Tensor) -> tuple[Tensor, None, None]:
        return ctx.ranks.reduce_scatter(upstream[0], ctx.counts), None, None


def _pad(rows: Tensor, count: int) -> Tensor:
    return F.pad(rows, (*[0, 0] * (rows.dim() - 1), 0, count - len(rows))) if len(rows) < count else rows


# --- spreading a learner ----------------------------------------------------------------------------------------------


def parallelize(learner: Learner, layout: Literal["ddp", "fsdp"], mesh: DeviceMesh | None = None) -> nn.Module:
    """What to call in the learner's place. FSDP2 changes the learner itself; alone, nothing changes."""
    if not dist.is_initialized():
        return learner
    if layout == "ddp":
        # Centres are equal on every rank already. Torch has renamed the word for not sending them before each forward.
        words = inspect.signature(DistributedDataParallel).parameters
        options: dict[str, Any] = {
            "forward_sync_buffers" if "forward_sync_buffers" in words else "broadcast_buffers": False
        }
        return DistributedDataParallel(learner, gradient_as_bucket_view=True, **options)
    device = next(learner.parameters()).device.type
    mesh = mesh or init_device_mesh(device, (dist.get_world_size(),))
    for module, is_frozen in parts(learner):
        # What has no backward pass, or changes between two of them, must not keep its gathered weights.
        fully_shard(module, mesh=mesh, reshard_after_forward=True if is_frozen else None)
    return learner


def parts(learner: Learner) -> Iterator[tuple[nn.Module, bool]]:
    """What FSDP2 shards, the inner before the outer, and whether it moves without gradients.

    The parts, never the containers: what is called outside its container's forward has to be sharded itself.
    """
    student, teacher = learner.student, learner.teacher
    moving = [] if teacher is None else [(teacher.image, True), (teacher.pooling, True), (learner.prototypes, True)]
    trained = [student.image, student.text, student.pooling, student.decoder, student.head, student.scale]
    for part, is_frozen in [*((part, False) for part in trained), (learner.balance, False), *moving]:
        if part is None or not any(True for _ in part.parameters()):
            continue
        for name, module in part.named_modules():
            if name.rpartition(".")[2] == "blocks":
                yield from ((block, is_frozen) for block in module.children())
        yield part, is_frozen


def unwrapped(model: nn.Module) -> Learner:
    """The learner inside whatever `parallelize` made of it."""
    learner = model.module if isinstance(model, DistributedDataParallel) else model
    assert isinstance(learner, Learner)
    return learner


def compile_towers(learner: Learner, **options: Any) -> None:
    """`torch.compile` for the parts with the arithmetic, each on its own, for every size of views; texts come in any
    number of tokens."""
    student, teacher = learner.student, learner.teacher
    torch._dynamo.config.recompile_limit = MOST_SHAPES
    learner.paint = torch.compile(learner.paint, dynamic=False, **options)
    fixed = [student.image, student.pooling, *((teacher.image, teacher.pooling) if teacher is not None else ())]
    for part in filter(None, fixed):
        part.compile(dynamic=False, **options)
    for part in filter(None, (student.text, student.decoder)):
        part.compile(dynamic=True, **options)


# --- gradients over several backward passes --------------------------------------------------------------------------


@contextmanager
def local_gradients(model: nn.Module) -> Iterator[None]:
    """Inside, DDP keeps gradients on their rank; `average_gradients` exchanges them afterwards."""
    if isinstance(model, DistributedDataParallel):
        with model.no_sync():
            yield
    else:
        yield


def sync_gradients(parts: Sequence[nn.Module], is_last: bool) -> None:
    """Whether the next backward pass of sharded parts reduces their gradients, with all that came before."""
    for part in parts:
        if isinstance(part, FSDPModule):
            part.set_requires_gradient_sync(is_last)


@torch.no_grad()
def average_gradients(model: nn.Module) -> None:
    """The mean over ranks of the gradients that `local_gradients` kept; sharded ones have been averaged already."""
    if not isinstance(model, DistributedDataParallel):
        return
    gradients = [parameter.grad for parameter in model.parameters() if parameter.grad is not None]
    bucket: list[Tensor] = []
    for i, gradient in enumerate(gradients):
        bucket.append(gradient)
        if i + 1 == len(gradients) or sum(map(Tensor.numel, bucket)) >= BUCKET_ELEMENTS:
            flat = torch.cat([gradient.flatten() for gradient in bucket])
            dist.all_reduce(flat, group=model.process_group)
            flat /= dist.get_world_size(model.process_group)
            pieces = flat.split([gradient.numel() for gradient in bucket])
            torch._foreach_copy_(
                bucket, [piece.view_as(gradient) for piece, gradient in zip(pieces, bucket, strict=True)]
            )
            bucket = []
