"""stub to be replaced"""

from pathlib import Path


def write_report(run: Path) -> Path:
    return run
