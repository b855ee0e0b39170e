"""What a run will cost, from its configuration alone: no tensor is made, no model built.

arithmetic   parameters, FLOPs and tokens of each part, per image
devices      what GPUs can do, by name
calibration  what arithmetic and bytes cost in practice: measured, in one place
seconds      a step's time by part
memory       one GPU's memory by part
losses       what each equation costs by itself
estimate     a run's time, network and money
"""

from goldiclip.plan.arithmetic import Lengths, Part, flops_per_image, parts_of
from goldiclip.plan.devices import DEVICES, Device, device_named
from goldiclip.plan.estimate import Estimate, estimate
from goldiclip.plan.table import show

__all__ = [
    "DEVICES",
    "Device",
    "Estimate",
    "Lengths",
    "Part",
    "device_named",
    "estimate",
    "flops_per_image",
    "parts_of",
    "show",
]
