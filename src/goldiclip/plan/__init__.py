"""What a run will cost, from its configuration alone: no tensor is made, no model built.

arithmetic   parameters, FLOPs and tokens of each part, per image
devices      what GPUs can do, by name
estimate     memory, step time, days, network and money of a run
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
