"""The table of `dlc tune` that shows the search while it runs."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress

from rich.console import Console
from rich.live import Live
from rich.table import Table

from dlc_tune.model import INTERRUPTED
from dlc_tune.model_result import Progress

SHOWN = 12
"""The kernels of the table."""
NARROW = 72
"""The columns of a terminal below which tables have no room."""
AROUND = 5
"""The lines of the table that are no kernels, and that of the shell."""


@contextmanager
def live(forced: bool | None) -> Iterator[Callable[[Progress], None]]:
    """A table on stderr. Without a terminal, or if it is not wanted, only an interrupt is noted there."""
    out = Console(stderr=True)
    if not (sys.stderr.isatty() if forced is None else forced):
        yield _noting(out)
        return
    shown: list[tuple[Progress, float]] = []

    def show(progress: Progress) -> None:
        shown[:] = [(progress, time.monotonic())]

    def now() -> Table | str:
        if not shown:
            return ""
        progress, since = shown[0]
        return table(progress, out.width, out.height, time.monotonic() - since)

    with Live(console=out, refresh_per_second=4, transient=True, get_renderable=now):
        yield show


def _noting(out: Console) -> Callable[[Progress], None]:
    """Says once that the search was interrupted and goes on with comparisons."""
    notes = iter(["interrupted: the best candidates are compared; a second signal ends at once"])

    def note(progress: Progress) -> None:
        if progress.now.startswith(INTERRUPTED):
            for each in notes:
                with suppress(OSError):  # a terminal that has hung up
                    out.print(each, highlight=False)

    return note


def table(progress: Progress, width: int, height: int, since: float = 0.0) -> Table:
    """The table of a report that is `since` seconds old, for a terminal of this size in characters."""
    total, best = (sum(getattr(line, name) for line in progress.lines) for name in ("default", "best"))
    ratio = f"; kernels: {best / total:.3f} of the default" if total else ""
    caption = f"{progress.now}; {max(0.0, progress.left - since):.0f} s left{ratio}"
    made = Table(box=None, caption=caption, caption_justify="left")
    titles = (
        ("kernel", "ratio", "trials")
        if width < NARROW
        else ("kernel", "default ms", "best ms", "trials", "state")
    )
    for title in titles:
        is_text = title in ("kernel", "state")
        made.add_column(title, justify="left" if is_text else "right", no_wrap=True, overflow="ellipsis")
    count = max(1, min(SHOWN, height - AROUND))
    for line in progress.lines[:count]:
        cells = {
            "kernel": line.name,
            "ratio": f"{line.best / line.default:.3f}" if line.default else "",
            "default ms": f"{line.default:.4f}",
            "best ms": f"{line.best:.4f}",
            "trials": str(line.trials),
            "state": line.state,
        }
        made.add_row(*(cells[title] for title in titles))
    if len(progress.lines) > count:
        made.add_row(f"and {len(progress.lines) - count} more")
    return made


__all__ = ["NARROW", "live", "table"]
