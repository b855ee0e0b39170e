"""Training: `train(config)` runs a configuration to its end, through whatever happens on the way."""

from goldiclip.train.loop import train

__all__ = ["train"]
