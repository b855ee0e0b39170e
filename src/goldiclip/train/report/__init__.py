"""One page about a run, in one file that needs nothing else: curves, weights, costs, configuration, evaluations."""

from goldiclip.train.report.page import write_report

__all__ = ["write_report"]
