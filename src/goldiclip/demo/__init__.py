"""The whole idea on one machine: draw a corpus, train on it, measure, index, and tell the story on one page."""

from goldiclip.demo.run import demo

__all__ = ["demo"]
