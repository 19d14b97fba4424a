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
STORED_TITLES = ("suite", "stored outputs", "right", "refused", "differs", "crashed", "share")
"""Of the table of `stored_rows`."""


def rows(records: Mapping[str, Mapping[str, Any]]) -> Iterator[Sequence[str]]:
    """A row for each suite, which is the first folder of a model's path, and one for all."""
    for suite, found in _suites(records):
        yield _row(suite, found)


def stored_rows(records: Mapping[str, Mapping[str, Any]]) -> Iterator[Sequence[str]]:
    """The same for outputs that the suites store, whatever onnxruntime returns."""
    for suite, found in _suites({name: each for name, each in records.items() if "stored" in each}):
        kinds = Counter(
            each["stored"] if each["stored"] in ("right", "refused", "crashed") else "differs"
            for each in found
        )
        cells = [kinds[each] for each in ("right", "refused", "differs", "crashed")]
        yield (suite, str(len(found)), *map(str, cells), f"{kinds['right'] / len(found):.1%}")


def _suites(records: Mapping[str, Mapping[str, Any]]) -> Iterator[tuple[str, list[Mapping[str, Any]]]]:
    """The records of each suite, and of all if there are several."""
    suites: dict[str, list[Mapping[str, Any]]] = {}
    for name, record in sorted(records.items()):
        suites.setdefault(name.split("/")[0], []).append(record)
    yield from suites.items()
    if len(suites) > 1:
        yield "all", list(records.values())


def _row(name: str, records: Sequence[Mapping[str, Any]]) -> Sequence[str]:
    run = [each for each in records if each["peer"] == "runs"]
    counts = Counter(each["outcome"] for each in run)
    others = sum(each["outcome"] in ("right", "runs") for each in records if each["peer"] != "runs")
    share = f"{counts['right'] / len(run):.1%}" if run else "–"
    cells = [counts[each] for each in ("right", "refused", "differs", "crashed")]
    return (name, str(len(records)), str(len(run)), *map(str, cells), share, str(others))


def details(records: Mapping[str, Mapping[str, Any]]) -> Iterator[str]:
    """A line for each model that onnxruntime runs and dlc does not compute as it does, and for each other one
    that dlc does not compute as its stored outputs say.
    """
    for name, each in sorted(records.items(), key=lambda item: (item[1]["outcome"], item[1]["reason"])):
        if each["outcome"] != "right" and (each["peer"] == "runs" or "stored" in each):
            yield f"{name}: {each['outcome']}: {each['reason'][:300]}"
        elif each.get("stored", "right") != "right":
            yield f"{name}: as onnxruntime, unlike the stored outputs: {each['stored'][:300]}"
