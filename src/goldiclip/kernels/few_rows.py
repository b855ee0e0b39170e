"""A few rows times large weights on a processor, in half the time: the weights stay laid out as oneDNN wants them.

torch's own product in float32 lays a weight out anew at every call, which for one sentence costs more than the product.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

MOST_ROWS = 64


class FewRows(TorchFunctionMode):
    """Inside, `F.linear` of a few rows and one of these weights takes what was laid out. Other calls are torch's.

    So is a product by a weight that has been written to or moved since, as far as its diagonal tells.
    """

    def __init__(self, weights: Iterable[Tensor]) -> None:
        super().__init__()
        kept = [weight for weight in weights if _can_be_laid_out(weight)]
        self.laid_out = {id(weight): (weight, _fingerprint(weight), _laid_out(weight)) for weight in kept}

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func is F.linear and not kwargs and self._takes(*args):
            rows, weight, *bias = args
            packed = self.laid_out[id(weight)][2]
            return torch.ops.mkldnn._linear_pointwise(rows, packed, bias[0] if bias else None, "none", [], "")
        return func(*args, **(kwargs or {}))

    def _takes(self, rows: Tensor, weight: Tensor, *bias: Any) -> bool:
        if not 0 < rows.shape[:-1].numel() <= MOST_ROWS or rows.dtype != torch.float32 or rows.device.type != "cpu":
            return False
        if torch.is_grad_enabled() or torch.is_autocast_enabled("cpu"):
            return False
        known, fingerprint, _ = self.laid_out.get(id(weight), (None, None, None))
        return known is weight and fingerprint == _fingerprint(weight)


def _fingerprint(weight: Tensor) -> tuple[int, int, float]:
    """What changes when a weight does; its version alone does not see what is written through `.data`."""
    return weight._version, weight.data_ptr(), float(weight.detach().diagonal().sum())


def _can_be_laid_out(weight: Tensor) -> bool:
    """Float32 matrices on a processor for which torch was built with oneDNN; its operation has no public name yet."""
    is_plain = type(weight) in (Tensor, nn.Parameter) and weight.ndim == 2 and not weight.is_inference()
    has_operation = torch.backends.mkldnn.is_available() and hasattr(torch.ops.mkldnn, "_linear_pointwise")
    return is_plain and weight.dtype == torch.float32 and weight.device.type == "cpu" and has_operation


def _laid_out(weight: Tensor) -> Tensor:
    with torch.no_grad():
        return torch.ops.mkldnn._reorder_linear_weight(weight.detach(), 16)
