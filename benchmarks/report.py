"""What was measured, as a table, as Markdown, as JSON."""

from __future__ import annotations

import json
import os
import platform
from collections.abc import Iterable, Sequence
from math import exp, log
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from benchmarks.measure import Result
from benchmarks.peers import OURS, Peer
from dlc_core.cli.tables import markdown_table

QUIET = 1.5
"""Load average above which figures are not to be trusted."""


def machine() -> dict[str, Any]:
    """What the figures depend on."""
    names = [
        line.partition(":")[2].strip()
        for line in _read("/proc/cpuinfo").splitlines()
        if line.startswith("model name")
    ]
    usable = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    load = os.getloadavg()[0] if hasattr(os, "getloadavg") else None
    return {
        "processor": names[0] if names else platform.processor() or platform.machine(),
        "cores": usable,
        "system": f"{platform.system()} {platform.machine()}",
        "python": platform.python_version(),
        "load": load,
    }


def _read(path: str) -> str:
    try:
        return Path(path).read_text(encoding="utf-8")
    except OSError:
        return ""


def head(facts: dict[str, Any], peers: Iterable[Peer]) -> str:
    versions = ", ".join(f"{peer.name} {peer.version}" for peer in peers)
    text = f"{facts['processor']}, {facts['cores']} cores; Python {facts['python']}; {versions}"
    if facts["load"] is not None and facts["load"] > QUIET:
        text += (
            f"\nTHE MACHINE IS BUSY: load average {facts['load']:.1f}; these figures are not to be trusted"
        )
    return text


def titles(peers: Sequence[Peer]) -> list[str]:
    others = [peer.name for peer in peers if peer.name != OURS.name]
    names = ["model", "threads", "dlc ms", "p10–p90"]
    for name in others:
        names += [f"{name} ms", "p10–p90", "ratio"]
    names += ["compile s", "open s", *(f"{name} load s" for name in others)]
    return [*names, "dlc MiB", *(f"{name} MiB" for name in others), "error"]


def cells(result: Result, peers: Sequence[Peer]) -> list[str]:
    others = [peer.name for peer in peers if peer.name != OURS.name]
    row = [result.model, str(result.threads)]
    for name in (OURS.name, *others):
        spread = result.times.get(name)
        row += ["", ""] if spread is None else [_ms(spread.median), f"{_ms(spread.p10)}–{_ms(spread.p90)}"]
        if name != OURS.name:
            ratio = result.ratio(name)
            row.append("" if ratio is None else f"{ratio:.2f}")
    for seconds in (result.load_seconds.get(OURS.name), result.open_seconds):
        row.append("" if seconds is None else f"{seconds:.3g}")
    row += [f"{result.load_seconds[n]:.3g}" if n in result.load_seconds else "" for n in others]
    row += [f"{result.memory[n] / 2**20:.0f}" if n in result.memory else "" for n in (OURS.name, *others)]
    worst = max(result.errors.values(), default=None)
    row.append("" if worst is None else f"{worst:.2g}")
    return row


def _ms(value: float) -> str:
    return f"{value:.3f}" if value < 10 else f"{value:.1f}"


def geomeans(results: Sequence[Result], peers: Sequence[Peer]) -> dict[str, float]:
    """Geometric mean of the ratios, by peer and number of threads."""
    means = {}
    for peer in peers:
        for threads in sorted({result.threads for result in results}):
            ratios = [r for e in results if e.threads == threads and (r := e.ratio(peer.name)) is not None]
            if peer.name != OURS.name and ratios:
                means[f"{peer.name}, threads {threads}"] = exp(sum(map(log, ratios)) / len(ratios))
    return means


def print_report(results: Sequence[Result], peers: Sequence[Peer], *, markdown: bool) -> None:
    rows = [cells(result, peers) for result in results]
    if markdown:
        print(markdown_table(titles(peers), rows))
    else:
        table = Table(box=None, pad_edge=False, header_style="bold")
        for index, title in enumerate(titles(peers)):
            table.add_column(title, justify="left" if index == 0 else "right")
        for row in rows:
            table.add_row(*row)
        console = Console()
        Console(width=max(console.width, 220)).print(table)
    for result in results:
        if result.problem:
            print(f"{result.model}, threads {result.threads}: {result.problem}")
    for name, mean in geomeans(results, peers).items():
        print(f"geometric mean of the ratios to {name}: {mean:.3f}")


def write_json(path: Path, results: Sequence[Result], peers: Sequence[Peer], facts: dict[str, Any]) -> None:
    record = {
        "machine": facts,
        "peers": {peer.name: peer.version for peer in peers},
        "results": [result.record() for result in results],
        "geometric_means": geomeans(results, peers),
    }
    path.write_text(json.dumps(record, indent=1) + "\n", encoding="utf-8")
