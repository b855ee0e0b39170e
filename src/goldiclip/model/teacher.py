"""The moving average of the parts of a student that embed images."""

from __future__ import annotations

import copy

from torch import nn

from goldiclip.model.goldiclip import GoldiCLIP


class Teacher(nn.Module):
    """Starts as a copy, reads no text of its own, is never trained by gradient and never drops a path."""

    def __init__(self, student: GoldiCLIP, pools_text: bool) -> None:
        super().__init__()
        self.image = copy.deepcopy(student.image)
        self.pooling = copy.deepcopy(student.pooling) if pools_text else None
        if not pools_text:
            self.image.value = None
        self.requires_grad_(False).eval()

    def train(self, mode: bool = True) -> Teacher:
        return super().train(False)
