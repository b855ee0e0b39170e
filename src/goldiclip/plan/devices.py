"""What accelerators can do. Peaks are the makers' dense bf16 numbers; what a step reaches of them is another question.

Prices are rough list prices per hour of late 2026, to compare plans with: give your own with `--dollars-per-hour`.
"""

from __future__ import annotations

import difflib
from dataclasses import dataclass

from goldiclip.config import ConfigError


@dataclass(frozen=True, slots=True)
class Device:
    name: str
    teraflops: float  # dense bf16 matrix products
    gigabytes: float
    terabytes_per_second: float  # of its memory
    link_gigabytes_per_second: float  # to the other GPUs of its node, each way
    dollars_per_hour: float
    is_measured: bool = False  # whether the estimates were calibrated on it
    is_cpu: bool = False  # its teraflops are of float32 products, at any width


# 50 GB/s per GPU between nodes: one 400 Gbit/s port each, as such clusters are built.
NODE_GIGABYTES_PER_SECOND = 50.0
GPUS_PER_NODE = 8

DEVICES = {
    device.name: device
    for device in (
        Device("h200", 989, 141, 4.8, 450, 3.8, is_measured=True),
        Device("h100", 989, 80, 3.35, 450, 3.0),
        Device("b200", 2250, 180, 8.0, 900, 6.0),
        Device("a100", 312, 80, 2.04, 300, 1.8),
        Device("a100-40gb", 312, 40, 1.56, 300, 1.4),
        Device("mi300x", 1307, 192, 5.3, 448, 2.5),
        Device("l40s", 362, 48, 0.86, 32, 1.0),
        Device("rtx4090", 165, 24, 1.01, 32, 0.5),
    )
}


def device_named(name: str) -> Device:
    """The device of `--gpu h200`; an unknown name shows those there are."""
    if name.lower() not in DEVICES:
        near = difflib.get_close_matches(name.lower(), DEVICES, n=2)
        raise ConfigError(f"--gpu {name} is not known; nearest: {', '.join(near) or 'none'}; all: {', '.join(DEVICES)}")
    return DEVICES[name.lower()]


def device_like(driver_name: str) -> Device | None:
    """The device that a driver calls, say, `NVIDIA H200`; None for one that is not in the table."""
    words = driver_name.lower().replace("geforce rtx ", "rtx").replace("-", " ").split()
    found = [device for device in DEVICES.values() if device.name.split("-")[0] in words]
    if len(found) > 1:  # an A100 with 40 or 80 GB
        found = [device for device in found if f"{device.gigabytes:g}gb" in words] or found
    return found[0] if found else None
