"""A diagnosis as a page of text: the verdict last, where it is seen."""

from __future__ import annotations

from rich.console import Console
from rich.markup import escape
from rich.padding import Padding

from goldiclip.data.doctor import Diagnosis, Finding, Severity
from goldiclip.data.remedies import remedy
from goldiclip.data.shards import Shards

_SECTIONS: dict[Severity, tuple[str, str]] = {
    "archive": ("In the archives", "yellow"),
    "sample": ("Bad samples: training takes others in their place", "red"),
    "part": ("Left out of samples that are used", "yellow"),
    "note": ("Worth a look", "cyan"),
}
# Each training signal by what it needs.
_NEEDS = {"ref": "regions", "grd": "regions", "vqa": "questions"}


def show(shards: Shards, diagnosis: Diagnosis, max_bad_share: float, console: Console | None = None) -> int:
    """Print a diagnosis; 1 when training would choke on these shards, 0 when it would not."""
    console = console or Console(highlight=False)
    console.print(f"{len(shards):,} samples in {len(shards.paths):,} shards, fingerprint {shards.fingerprint}")
    for severity, (title, colour) in _SECTIONS.items():
        found = [(reason, item) for reason, item in diagnosis.findings.items() if item.severity == severity]
        if found:
            console.print(f"\n[bold]{title}[/]")
        for reason, item in sorted(found, key=lambda pair: -pair[1].count):
            _print_finding(console, reason, item, diagnosis.samples, colour)
    _print_supervision(console, diagnosis)
    return _print_verdict(console, diagnosis, max_bad_share)


def _print_finding(console: Console, reason: str, item: Finding, samples: int, colour: str) -> None:
    share = f" ({item.count / samples:.2%})" if item.severity == "sample" else ""
    console.print(f"  [{colour}]{item.count:,} × {escape(reason)}[/]{share}")
    for example in item.examples:
        console.print(Padding(escape(example[:300]), (0, 0, 0, 6), expand=False), style="dim")
    if said := item.remedy or remedy(reason):
        console.print(Padding(f"→ {escape(said)}", (0, 0, 0, 6), expand=False))


def _print_supervision(console: Console, diagnosis: Diagnosis) -> None:
    good = max(diagnosis.samples - diagnosis.bad, 1)
    console.print("\n[bold]Supervision[/]")
    parts = [f"{name} {diagnosis.has[name] / good:.0%}" for name in ("raw", "short", "long", "regions", "questions")]
    console.print(f"  samples with {', '.join(parts)}")
    idle = {term: _NEEDS[term] for term, count in diagnosis.terms.items() if not count and term in _NEEDS}
    active = [term for term, count in diagnosis.terms.items() if count]
    console.print(f"  trains {', '.join(active) or 'nothing'}")
    for term, need in idle.items():
        console.print(f"  [yellow]{term} stays idle[/]: no {need}; `goldiclip prepare annotate` makes them")
    if diagnosis.meta_keys:
        names = ", ".join(name for name, _ in diagnosis.meta_keys.most_common(12))
        console.print(f"  carried along: {escape(names)}", style="dim")


def _print_verdict(console: Console, diagnosis: Diagnosis, max_bad_share: float) -> int:
    fault = diagnosis.chokes(max_bad_share)
    if fault:
        console.print(f"\n[bold red]Training would stop[/]: {fault}.")
        return 1
    replaced = f", {diagnosis.bad:,} to be replaced" if diagnosis.bad else ""
    console.print(f"\n[bold green]Ready[/]: {diagnosis.samples - diagnosis.bad:,} good samples{replaced}.")
    return 0
