"""How the six terms become one number.

    L = Σ_task w_task·L_task/σ_task² + σ_task²

The σ are learned: at rest σ² = √(w·L), so each term pulls with a weight that falls with its size. σ itself is the
parameter; σ² as the parameter would be too slow for large terms.
"""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor, nn


def balanced(losses: Tensor, weights: Tensor, sigmas: Tensor, is_present: Tensor, share: float = 1.0) -> Tensor:
    """Σ w·L/σ² + share·σ² over the terms that are present, all (terms,).

    `share` is the part of the step that these losses are about: over micro-batches and ranks the σ² count once.
    """
    return torch.where(is_present, weights * losses / sigmas**2 + share * sigmas**2, 0 * sigmas).sum()


def uniform(losses: Tensor, weights: Tensor, is_present: Tensor) -> Tensor:
    """Σ w·L over the terms that are present."""
    return torch.where(is_present, weights * losses, 0 * losses).sum()


class Balance(nn.Module):
    """The scalars σ, one (1,) parameter per active term; none when the balance is uniform."""

    weight: Tensor

    def __init__(self, weights: Mapping[str, float], is_learned: bool) -> None:
        super().__init__()
        self.terms = tuple(weights)
        self.register_buffer("weight", torch.tensor(list(weights.values())), persistent=False)
        self.sigma = nn.ParameterDict({term: nn.Parameter(torch.ones(1)) for term in weights} if is_learned else {})

    def forward(self, losses: Tensor, is_present: Tensor, share: float = 1.0) -> tuple[Tensor, Tensor]:
        """The total of losses (terms,), and what each of them was multiplied with: w/σ², or w."""
        weight = self.weight.to(losses.dtype)
        if not self.sigma:
            return uniform(losses, weight, is_present), weight
        sigmas = torch.cat([self.sigma[term] for term in self.terms]).to(losses.dtype)
        return balanced(losses, weight, sigmas, is_present, share), (weight / sigmas**2).detach()
