"""A chart of the ratios: a bar for each peer, in groups by model and number of threads.

`.html` is one file with a drawing in it; `.png` needs matplotlib.
"""

from __future__ import annotations

from collections.abc import Sequence
from html import escape
from importlib.util import find_spec
from pathlib import Path

from benchmarks.measure import Result
from benchmarks.peers import OURS, Peer

COLORS = ("#4477aa", "#ee6677", "#228833", "#ccbb44", "#66ccee", "#aa3377")
TITLE = "Our time over the peer's: left of the line we are faster"
WIDEST = 1.5
"""The ratio at the right end. Longer bars are cut there."""
LABEL, WIDTH, BAR, GAP, TOP = 220, 600, 12, 10, 60
"""The sizes of the drawing, in pixels."""


def check_chart(path: Path) -> str:
    """Return the error in a chart's name; empty if it is valid."""
    if path.suffix not in (".html", ".png"):
        return f"a chart is a .html or .png file, not {path.name}"
    if path.suffix == ".png" and find_spec("matplotlib") is None:
        return "a .png chart needs matplotlib; a .html one needs nothing"
    return ""


def write_chart(path: Path, results: Sequence[Result], peers: Sequence[Peer], caption: str) -> None:
    """Write the chart in the format of the file's suffix."""
    names = [peer.name for peer in peers if peer.name != OURS.name]
    if path.suffix == ".png":
        _png(path, results, names, caption)
    else:
        path.write_text(html(results, names, caption), encoding="utf-8")


def html(results: Sequence[Result], names: Sequence[str], caption: str) -> str:
    """The chart as a page."""
    parts: list[str] = []
    for index, name in enumerate(names):
        x = LABEL + 130 * index
        parts += [f'<rect x="{x}" y="8" width="12" height="12" fill="{_color(index)}"/>']
        parts += [_text(x + 18, 18, name, "start")]
    y = TOP
    for result in results:
        middle = y + BAR * len(names) / 2 + 4
        parts.append(_text(LABEL - 8, middle, f"{result.model}, {result.threads} T", "end"))
        for index, name in enumerate(names):
            ratio = result.ratio(name)
            width = 0.0 if ratio is None else min(ratio, WIDEST) / WIDEST * WIDTH
            parts.append(
                f'<rect x="{LABEL}" y="{y}" width="{width:.1f}" height="{BAR - 2}" fill="{_color(index)}"/>'
            )
            parts.append(
                _text(LABEL + width + 4, y + BAR - 3, "–" if ratio is None else f"{ratio:.2f}", "start")
            )
            y += BAR
        y += GAP
    one = LABEL + WIDTH / WIDEST
    parts.append(f'<line x1="{one:.1f}" y1="{TOP - 12}" x2="{one:.1f}" y2="{y}" stroke="black"/>')
    parts.append(_text(one, TOP - 16, "1", "middle"))
    size = f'width="{LABEL + WIDTH + 60}" height="{y + GAP}"'
    drawing = "\n".join(parts)
    return (
        f'<!doctype html>\n<html lang="en">\n<meta charset="utf-8">\n<title>{escape(TITLE)}</title>\n'
        f'<h1 style="font: 18px sans-serif">{escape(TITLE)}</h1>\n'
        f'<p style="font: 12px sans-serif; white-space: pre-line">{escape(caption)}</p>\n'
        f'<svg xmlns="http://www.w3.org/2000/svg" {size} font-family="sans-serif" font-size="11">\n'
        f"{drawing}\n</svg>\n</html>\n"
    )


def _color(index: int) -> str:
    return COLORS[index % len(COLORS)]


def _text(x: float, y: float, text: str, anchor: str) -> str:
    return f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}">{escape(text)}</text>'


def _png(path: Path, results: Sequence[Result], names: Sequence[str], caption: str) -> None:
    from matplotlib.figure import Figure

    figure = Figure(figsize=(9, 1.5 + 0.25 * len(results) * max(1, len(names))), layout="constrained")
    axes = figure.subplots()
    step = 1 / (len(names) + 1)
    for index, name in enumerate(names):
        found = [(row, ratio) for row, each in enumerate(results) if (ratio := each.ratio(name)) is not None]
        rows = [row + index * step for row, _ in found]
        bars = axes.barh(
            rows, [min(ratio, WIDEST) for _, ratio in found], 0.9 * step, color=_color(index), label=name
        )
        axes.bar_label(bars, [f"{ratio:.2f}" for _, ratio in found], padding=2, fontsize=7)
    axes.set_yticks(
        [row + (len(names) - 1) * step / 2 for row in range(len(results))],
        [f"{each.model}, {each.threads} T" for each in results],
    )
    axes.set_xlim(0, 1.1 * WIDEST)
    axes.invert_yaxis()
    axes.axvline(1, color="black", linewidth=0.8)
    axes.set_title(f"{TITLE}\n{caption}", fontsize=8)
    if names:
        axes.legend(fontsize=7)
    figure.savefig(path, dpi=150)
