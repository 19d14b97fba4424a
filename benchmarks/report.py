"""Measurements as a table, as Markdown, and as JSON."""

from __future__ import annotations

import json
import os
import platform
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from math import exp, log
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from benchmarks.measure import Result
from benchmarks.peers import OURS, Peer
from dlc_core.cli.tables import markdown_table

QUIET = 1.5
"""The load average above which figures are not reliable."""
NONE = "–"
"""The text of a missing figure."""
BEST = "the best"
"""In geometric means: the fastest peer of each model."""


SERVING = (("memory", "MiB"), ("serving_peak", "serving peak MiB"))
"""The fields of results with the memory of processes that serve, and their titles."""


def machine() -> dict[str, Any]:
    """The properties of the machine on which the figures depend."""
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
    targets = facts.get("targets", [])
    versions = ", ".join(f"{peer.name} {peer.version}" for peer in peers if peer.name not in targets)
    text = f"{facts['processor']}, {facts['cores']} cores; Python {facts['python']}; {versions}"
    if targets:
        text += f"\n{OURS.name} for {targets[0]}" + "".join(f", beside {other}" for other in targets[1:])
    if "precision" in facts:
        text += f"\nin {facts['precision']}"
        if facts["in_float32"]:
            text += f", but {', '.join(facts['in_float32'])} in float32"
    if facts["load"] is not None and facts["load"] > QUIET:
        text += (
            f"\nTHE MACHINE IS BUSY: load average {facts['load']:.1f}; these figures are not to be trusted"
        )
    return text


Columns = Sequence[tuple[str, Callable[[Result], str]]]


def speed_columns(peers: Sequence[Peer]) -> Columns:
    """Titles and cells of the table of times and ratios."""
    others = _others(peers)
    return [
        *_keys(),
        *((f"{name} ms", partial(_time, name=name)) for name in (OURS.name, *others)),
        *((f"/ {name}", partial(_ratio, name=name)) for name in others),
        *([("/ best", lambda result: _ratio(result, result.best))] if others else []),
        ("error", _error),
    ]


def start_columns(peers: Sequence[Peer], *, memory: bool, peak: bool = False) -> Columns:
    """Titles and cells of the table of times to start and of memory."""
    names = [OURS.name, *_others(peers)]
    kinds = [*(SERVING if memory else ()), *([("peak", "peak MiB")] if peak else [])]
    return [
        *_keys(),
        ("compile s", partial(_load, name=OURS.name)),
        *(
            (f"{peer.name} compile s", partial(_load, name=peer.name))
            for peer in peers
            if _other_target(peer)
        ),
        ("open s", lambda result: _number(result.open_seconds, "{:.3g}")),
        *((f"{name} first s", partial(_first, name=name)) for name in names),
        *((f"{name} {what}", partial(_bytes, of=of, name=name)) for of, what in kinds for name in names),
    ]


def _keys() -> Columns:
    return [("model", lambda result: result.model), ("threads", lambda result: str(result.threads))]


def _others(peers: Sequence[Peer]) -> list[str]:
    return [peer.name for peer in peers if peer.name != OURS.name]


def _time(result: Result, name: str) -> str:
    spread = result.times.get(name)
    if spread is None:
        how = result.failures.get(name, "").partition(":")[0]
        return how if how in ("crashed", "late") else NONE
    return f"{_ms(spread.median)} [{_ms(spread.p10)}–{_ms(spread.p90)}]"


def _ms(value: float) -> str:
    return f"{value:.3f}" if value < 10 else f"{value:.1f}"


def _number(value: float | None, form: str) -> str:
    return NONE if value is None else form.format(value)


def _ratio(result: Result, name: str | None) -> str:
    return _number(None if name is None else result.ratio(name), "{:.2f}")


def _first(result: Result, name: str) -> str:
    return _number(result.first_seconds.get(name), "{:.3g}")


def _load(result: Result, name: str) -> str:
    return _number(result.load_seconds.get(name), "{:.3g}")


def _other_target(peer: Peer) -> bool:
    return peer.packages == OURS.packages and peer.name != OURS.name


def _bytes(result: Result, of: str, name: str) -> str:
    found = getattr(result, of).get(name)
    return f"{found / 2**20:.0f}" if found else NONE


def _error(result: Result) -> str:
    return _number(result.errors.get(OURS.name), "{:.2g}")


def geomeans(results: Sequence[Result], peers: Sequence[Peer]) -> dict[str, float]:
    """Geometric means of the ratios to each peer and to the best one of each model, by number of threads."""
    means = {}
    for name in (*_others(peers), BEST):
        for threads in sorted({result.threads for result in results}):
            ratios = [
                ratio
                for each in results
                if each.threads == threads
                and (peer := each.best if name == BEST else name) is not None
                and (ratio := each.ratio(peer)) is not None
            ]
            if ratios:
                means[f"{name}, threads {threads}"] = geometric_mean(ratios)
    return means


def memory_means(results: Sequence[Result], peers: Sequence[Peer]) -> dict[str, float]:
    """Geometric means of the memory of processes that serve, relative to each peer."""
    means = {}
    for name in _others(peers):
        for of, title in SERVING:
            found = [getattr(result, of) for result in results]
            ratios = [each[OURS.name] / each[name] for each in found if each.get(name) and OURS.name in each]
            if ratios:
                means[f"{name}, {title}"] = geometric_mean(ratios)
    return means


def geometric_mean(ratios: Sequence[float]) -> float:
    return exp(sum(map(log, ratios)) / len(ratios))


def family_means(results: Sequence[Result], peers: Sequence[Peer]) -> dict[str, dict[str, float]]:
    """The geometric means of each family, as those of all models by `geomeans`."""
    families = sorted({result.family for result in results} - {""})
    return {name: geomeans([each for each in results if each.family == name], peers) for name in families}


def _family_rows(
    results: Sequence[Result], families: dict[str, dict[str, float]], counts: Sequence[int]
) -> list[list[str]]:
    rows = []
    for name, means in families.items():
        models = {result.model for result in results if result.family == name}
        cells = (_number(means.get(f"{BEST}, threads {count}"), "{:.3f}") for count in counts)
        rows.append([name, str(len(models)), *cells])
    return rows


def above_one(results: Sequence[Result]) -> list[str]:
    """A line for each result that is slower than the best peer, starting with the slowest."""
    found = [
        (ratio, result)
        for result in results
        if result.best is not None and (ratio := result.ratio(result.best)) is not None and ratio > 1
    ]
    found.sort(key=lambda pair: -pair[0])
    return [f"{each.model}, threads {each.threads}: {ratio:.2f} of {each.best}" for ratio, each in found]


def remarks(results: Sequence[Result]) -> list[str]:
    """The failures and wrong results, each once with its numbers of threads."""
    found: dict[tuple[str, str], list[str]] = {}
    for result in results:
        notes = [
            f"{name} did not run it: {why}" for name, why in result.failures.items() if name != OURS.name
        ]
        notes += [
            f"{name}'s results differ from {result.reference}: {error:.3g} tolerances"
            for name, error in result.errors.items()
            if name != OURS.name and not error <= 1
        ]
        for text in (result.problem, *notes):
            if text:
                found.setdefault((result.model, text), []).append(str(result.threads))
    return [f"{model}, threads {' and '.join(counts)}: {text}" for (model, text), counts in found.items()]


def print_report(results: Sequence[Result], peers: Sequence[Peer], *, markdown: bool) -> None:
    memory, peak = (any(getattr(result, kind) for result in results) for kind in ("memory", "peak"))
    for columns in (speed_columns(peers), start_columns(peers, memory=memory, peak=peak)):
        titles = [title for title, _ in columns]
        print_table(titles, [[cell(each) for _, cell in columns] for each in results], markdown=markdown)
        print()
    for line in remarks(results):
        print(line)
    for name, mean in (geomeans(results, peers) | memory_means(results, peers)).items():
        print(f"geometric mean of the ratios to {name}: {mean:.3f}")
    families = family_means(results, peers)
    if families:
        counts = sorted({result.threads for result in results})
        titles = ["family", "models", *(f"/ best, threads {count}" for count in counts)]
        print()
        print_table(titles, _family_rows(results, families, counts), markdown=markdown)
        slower = above_one(results)
        print(f"\n{len(slower)} of {len(results)} above 1.00" + (":" if slower else ""))
        for line in slower:
            print(f"  {line}")


def print_table(titles: Sequence[str], rows: Sequence[Sequence[str]], *, markdown: bool) -> None:
    """Print a table as wide as its columns need, or as Markdown."""
    if markdown:
        print(markdown_table(titles, rows))
        return
    table = Table(box=None, pad_edge=False, header_style="bold")
    for index, title in enumerate(titles):
        table.add_column(escape(title), justify="left" if index == 0 else "right")
    for row in rows:
        table.add_row(*map(escape, row))
    wide = Console(width=1000)
    Console(width=max(Console().width, wide.measure(table).maximum)).print(table)


def write_json(path: Path, results: Sequence[Result], peers: Sequence[Peer], facts: dict[str, Any]) -> None:
    record = {
        "machine": facts,
        "peers": {peer.name: peer.version for peer in peers},
        "results": [result.record() for result in results],
        "geometric_means": geomeans(results, peers),
        "memory_means": memory_means(results, peers),
        "families": family_means(results, peers),
    }
    path.write_text(json.dumps(record, indent=1) + "\n", encoding="utf-8")
