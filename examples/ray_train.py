"""Train on a Ray cluster.

    python examples/ray_train.py cc3m 'data.train=/data/cc3m/*.tar' --workers 16 --out /shared/run

Ray Train starts one process per GPU and makes their process group; goldiclip finds itself in it and does the rest. The
folder has to be one that every node sees. When a node dies, Ray starts the workers again and `requeue` goes on from the
last checkpoint.
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any


def work(settings: dict[str, Any]) -> None:
    """What each worker runs."""
    from goldiclip.train import train
    from goldiclip.train.command import requested

    train(requested(settings["recipe"], settings["overrides"]), out=Path(settings["out"]), requeue=True)


def main() -> None:
    from ray.train import FailureConfig, RunConfig, ScalingConfig
    from ray.train.torch import TorchTrainer

    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("recipe")
    parser.add_argument("overrides", nargs="*")
    parser.add_argument("--out", required=True)
    parser.add_argument("--workers", type=int, default=1)
    parser.add_argument("--cpu", action="store_true", help="workers without a GPU")
    parser.add_argument("--max-failures", type=int, default=10)
    arguments = parser.parse_args()
    trainer = TorchTrainer(
        work,
        train_loop_config={**vars(arguments), "out": str(Path(arguments.out).resolve())},
        scaling_config=ScalingConfig(num_workers=arguments.workers, use_gpu=not arguments.cpu),
        run_config=RunConfig(
            storage_path=str(Path(arguments.out).resolve()) + "-ray",
            failure_config=FailureConfig(max_failures=arguments.max_failures),
        ),
    )
    trainer.fit()


if __name__ == "__main__":
    main()
