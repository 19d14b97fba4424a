"""A badge with the result of the conformance kit, for the README of a backend.

    pytest --dlc-badge=badge.svg        writes badge.svg, and badge.json for shields.io

The JSON file follows the schema of shields' endpoint badges (https://shields.io/badges/endpoint-badge). The
text has the level that the target has passed, and its share of the multiply-adds (of the nodes, if there are
no multiply-adds). A level is passed if all
of its cases and those of the levels below were run, apart from skipped ones, and none failed.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from html import escape
from pathlib import Path
from typing import Any

from dlc_core.testing.report_levels import percent
from dlc_core.testing.runner import FAILED, NOT_RUN, ON_HOST, PASSED

FILE = "badge.svg"
LABEL = "dlc conformance"
COLOURS = {
    "brightgreen": "#4c1",
    "green": "#97ca00",
    "yellow": "#dfb317",
    "red": "#e05d44",
    "grey": "#9f9f9f",
}
"""The colours of badges by their names at shields.io."""
_CHARACTER = 7
"""The width that a character of 11 pixels in height gets, in pixels."""
_PADDING = 10


def passed_level(target: Mapping[str, Any]) -> int | None:
    """The highest level that a target has passed; None if it has not passed level 0."""
    passed = None
    for level in target["levels"]:
        counts = level["counts"]
        if counts[FAILED] or level["problem"] or level["missing"] or not (counts[PASSED] or counts[ON_HOST]):
            break
        passed = level["level"]
    return passed


def endpoint(record: Mapping[str, Any]) -> dict[str, Any]:
    """The badge of a record of `report.summary`, in the schema of shields' endpoint badges. With several
    targets it has the one that passed the fewest levels.
    """
    targets = [target for target in record["targets"] if target["verdict"] != NOT_RUN]
    if not targets:
        return _badge("not run", "grey")
    level, lowest = min(
        ((passed_level(target), target) for target in targets),
        key=lambda each: -1 if each[0] is None else each[0],
    )
    share = lowest["share"] if lowest["multiply_adds"] is None else lowest["multiply_adds"]
    on = "" if share is None else f", {percent(share)} on {lowest['kind']}"
    failed = any(target["verdict"] == FAILED for target in targets)
    if level is None:
        return _badge("failing" if failed else f"incomplete{on}", "red" if failed else "grey")
    colour = "yellow" if failed else "brightgreen" if level >= 3 else "green"
    return _badge(f"level {level}{on}", colour)


def _badge(message: str, colour: str) -> dict[str, Any]:
    return {"schemaVersion": 1, "label": LABEL, "message": message, "color": colour}


def svg(badge: Mapping[str, Any]) -> str:
    """The picture of an endpoint badge."""
    label, message = str(badge["label"]), str(badge["message"])
    left, right = (len(text) * _CHARACTER + _PADDING for text in (label, message))
    title = escape(f"{label}: {message}")

    def text(words: str, centre: float) -> str:
        return f'<text x="{centre:g}" y="14">{escape(words)}</text>'

    return "\n".join(
        (
            f'<svg xmlns="http://www.w3.org/2000/svg" width="{left + right}" height="20" role="img">',
            f"<title>{title}</title>",
            f'<rect width="{left}" height="20" fill="#555"/>',
            f'<rect x="{left}" width="{right}" height="20" fill="{COLOURS[badge["color"]]}"/>',
            '<g fill="#fff" text-anchor="middle" font-family="Verdana,Geneva,sans-serif" font-size="11">',
            text(label, left / 2),
            text(message, left + right / 2),
            "</g>",
            "</svg>",
            "",
        )
    )


def files_of(path: Path) -> list[Path]:
    """The files of a badge: the picture, and the data beside it."""
    return [path.with_suffix(".svg"), path.with_suffix(".json")]


def write(path: Path, record: Mapping[str, Any]) -> None:
    """Write the badge of a record: the picture to `path`, and the data to the same name with `.json`."""
    made = endpoint(record)
    picture, data = files_of(path)
    picture.parent.mkdir(parents=True, exist_ok=True)
    picture.write_text(svg(made), encoding="utf-8")
    data.write_text(json.dumps(made, indent=1) + "\n", encoding="utf-8")


__all__ = ["endpoint", "files_of", "passed_level", "svg", "write"]
