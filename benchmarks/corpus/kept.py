"""The tables of a kept measurement: the JSON of `measure`, or of several runs that were joined."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from benchmarks.against import OURS
from benchmarks.report import NONE, geometric_mean

Record = Mapping[str, Any]


def joined(paths: Sequence[Path]) -> dict[str, Any]:
    """One record of several runs on one machine. Raises ValueError if the machines or the peers differ."""
    found = [json.loads(path.read_text(encoding="utf-8")) for path in paths]
    for what in ("processor", "cores"):
        if len({each["machine"][what] for each in found}) > 1:
            raise ValueError(f"the runs are of machines that differ in {what!r}")
    if any(each["peers"] != found[0]["peers"] for each in found):
        raise ValueError("the runs are of peers with different versions")
    return {**found[0], "results": [result for each in found for result in each["results"]]}


def table(record: Record) -> tuple[list[str], list[list[str]]]:
    """Titles and rows: for each model and number of threads the medians of each side in milliseconds, and
    dlc's divided by that of the fastest peer whose results are within tolerance.
    """
    peers = list(record["peers"])
    by_model: dict[str, dict[int, Record]] = {}
    for result in record["results"]:
        by_model.setdefault(result["model"], {})[result["threads"]] = result
    threads = sorted({count for results in by_model.values() for count in results})
    titles = ["model"]
    for count in threads:
        own = f"{count} thread" if count == 1 else f"{count} threads"
        titles += [f"{own}, {OURS} ms", *(name for name in peers if name != OURS), "/ best"]
    rows = []
    for model, results in sorted(by_model.items()):
        row = [model]
        for count in threads:
            row += _cells(results.get(count), peers)
        rows.append(row)
    return titles, rows


def _cells(result: Record | None, peers: Sequence[str]) -> list[str]:
    if result is None:
        return [NONE] * (len(peers) + 1)
    times = {name: spread["median"] for name, spread in result["milliseconds"].items()}
    ratio = ratio_of(result)
    names = [OURS, *(name for name in peers if name != OURS)]
    cells = [_milliseconds(times[name]) if name in times else NONE for name in names]
    return [*cells, NONE if ratio is None else f"{ratio:.2f}"]


def _milliseconds(value: float) -> str:
    return f"{value:.3f}" if value < 1 else f"{value:.3g}" if value < 1000 else f"{value:.0f}"


def ratio_of(result: Record) -> float | None:
    """dlc's time divided by that of the best peer; None if there is none, or dlc has no time."""
    times, best = result["milliseconds"], result["best_peer"]
    if best is None or OURS not in times:
        return None
    ratio: float = times[OURS]["median"] / times[best]["median"]
    return ratio


def means(record: Record) -> list[str]:
    """A line with the geometric mean for each number of threads, and the models above 1."""
    lines = []
    for count in sorted({result["threads"] for result in record["results"]}):
        found = {
            result["model"]: ratio
            for result in record["results"]
            if result["threads"] == count and (ratio := ratio_of(result)) is not None
        }
        above = sorted(((ratio, model) for model, ratio in found.items() if ratio > 1), reverse=True)
        slow = ", ".join(f"{model} {ratio:.2f}" for ratio, model in above) or "none"
        mean = geometric_mean(list(found.values()))
        lines.append(f"threads {count}: {mean:.3f} of the best peer, {len(found)} models; above 1: {slow}")
    return lines
