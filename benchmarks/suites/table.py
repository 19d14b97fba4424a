"""The table of outcomes by suite."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

TITLES = ("suite", "models", "onnxruntime runs", "right", "refused", "differs", "crashed", "share", "others")
NOTE = (
    "`share` is `right` of the models that onnxruntime runs; `others` are right by stored outputs, or run,"
    " though onnxruntime does not run them. If outputs differ, onnxruntime without graph optimisations is the"
    " second reference."
)


def rows(records: Mapping[str, Mapping[str, Any]]) -> Iterator[Sequence[str]]:
    """A row for each suite, which is the first folder of a model's path, and one for all."""
    suites: dict[str, list[Mapping[str, Any]]] = {}
    for name, record in sorted(records.items()):
        suites.setdefault(name.split("/")[0], []).append(record)
    for suite, found in suites.items():
        yield _row(suite, found)
    if len(suites) > 1:
        yield _row("all", list(records.values()))


def _row(name: str, records: Sequence[Mapping[str, Any]]) -> Sequence[str]:
    run = [each for each in records if each["peer"] == "runs"]
    counts = Counter(each["outcome"] for each in run)
    others = sum(each["outcome"] in ("right", "runs") for each in records if each["peer"] != "runs")
    share = f"{counts['right'] / len(run):.1%}" if run else "–"
    cells = [counts[each] for each in ("right", "refused", "differs", "crashed")]
    return (name, str(len(records)), str(len(run)), *map(str, cells), share, str(others))


def details(records: Mapping[str, Mapping[str, Any]]) -> Iterator[str]:
    """A line for each model that onnxruntime runs and dlc does not compute as it does."""
    for name, each in sorted(records.items(), key=lambda item: (item[1]["outcome"], item[1]["reason"])):
        if each["peer"] == "runs" and each["outcome"] != "right":
            yield f"{name}: {each['outcome']}: {each['reason'][:300]}"
