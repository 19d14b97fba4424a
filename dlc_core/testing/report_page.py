"""The conformance report as one self-contained page of HTML."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from html import escape
from typing import Any

from dlc_core.diag import first_names
from dlc_core.testing.report_levels import percent
from dlc_core.testing.runner import (
    EXPECTED,
    FAILED,
    NOT_RUN,
    ON_HOST,
    PASSED,
    STATUSES,
    UNSUPPORTED,
)
from dlc_core.testing.where import PLACES

SIGNS = {PASSED: "✓", FAILED: "✗", EXPECTED: "!", ON_HOST: "h", UNSUPPORTED: "–", NOT_RUN: "·"}
CLASSES = {PASSED: "p", FAILED: "f", EXPECTED: "e", ON_HOST: "h", UNSUPPORTED: "u", NOT_RUN: "n"}

STYLE = """
body { font: 14px/1.45 system-ui, sans-serif; color: #222 }
body { margin: 2em auto; max-width: 90em; padding: 0 1em }
h1 { font-size: 1.6em }
h2 { font-size: 1.25em; margin-top: 2em; border-top: 1px solid #ccc; padding-top: .8em }
h3 { font-size: 1.05em; margin-top: 1.6em }
table { border-collapse: collapse } th, td { border: 1px solid #ddd; padding: .15em .5em; text-align: left }
th { background: #f4f4f4; font-weight: 600 } td.n, td.c { text-align: right }
.ops { overflow-x: auto } .ops td { text-align: center } .ops th.op, .ops td.op { text-align: left }
.ops thead th { position: sticky; top: 0 }
td.p, b.p { background: #dff3e0 } td.f, b.f { background: #f8c9c6 } td.e, b.e { background: #fde9b8 }
td.u, b.u, td.h, b.h { background: #e8e8ee } .ops td.n { color: #aaa; text-align: center }
b { padding: .05em .5em; border-radius: .3em; font-weight: 600 }
code, pre { font: 12px/1.4 ui-monospace, monospace } pre { white-space: pre-wrap; margin: 0 }
"""


def page(record: Mapping[str, Any]) -> str:
    """The page of a record of `report.summary`."""
    return "\n".join(["<!DOCTYPE html>", '<html lang="en">', *_head(), *_body(record), "</html>", ""])


def _head() -> Iterator[str]:
    yield '<head><meta charset="utf-8"><title>Conformance to dlc</title>'
    yield f"<style>{STYLE}</style></head>"


def _body(record: Mapping[str, Any]) -> Iterator[str]:
    versions = record["versions"]
    plugins = [f"{name} ({version})" for name, version in versions["plugins"].items()]
    yield "<body><h1>Conformance to dlc</h1>"
    words = [f"{name} {versions[name]}" for name in ("dlc-core", "python", "numpy")]
    yield f"<p>{_text(', '.join([*words, record['platform']]))}."
    yield f"Plugins: {_text(', '.join(plugins) or 'none')}.</p>"
    for target in record["targets"]:
        yield from _target(target)
    yield "</body>"


def _target(target: Mapping[str, Any]) -> Iterator[str]:
    verdict = target["verdict"]
    yield f"<h2><code>{_text(target['target'])}</code> <b class={CLASSES[verdict]}>{verdict}</b></h2>"
    shares = (("nodes", target["share"]), ("multiply-adds", target["multiply_adds"]))
    texts = [f"{percent(share)} of {what}" for what, share in shares if share is not None]
    on = f"{' and '.join(texts)} ran on the target." if texts else ""
    yield f"<p>{target['seconds']:.1f} seconds. {on}</p>"
    yield from _levels(target)
    yield from _failures(target)
    yield from _ops(target)
    yield from _figures(target)
    yield from _exemptions(target)
    yield from _unsupported(target)


def _levels(target: Mapping[str, Any]) -> Iterator[str]:
    yield "<h3>Levels</h3><table><thead><tr><th>level</th><th>cases</th>"
    heads = (
        *STATUSES,
        *(f"{place} cases" for place in PLACES),
        "nodes on the target",
        "multiply-adds",
        "seconds",
        "limit",
    )
    yield "".join(f"<th>{head}</th>" for head in heads) + "</tr></thead>"
    for each in target["levels"]:
        numbers = [each["counts"][status] or "" for status in STATUSES]
        numbers += [each["where"][place] or "" for place in PLACES]
        numbers += [percent(each["share"]), percent(each["multiply_adds"])]
        numbers += [f"{each['seconds']:.1f}", f"{each['limit']:g}"]
        cells = "".join(f"<td class=c>{number}</td>" for number in numbers)
        yield f"<tr><td class=c>{each['level']}</td><td>{each['name']}</td>{cells}</tr>"
    yield "</table>"
    for each in target["levels"]:
        if each["problem"]:
            yield f"<p><b class=f>{FAILED}</b> Level {each['name']}: nothing ran on the target."
            yield f"{_text(each['problem'])}</p>"
        if each["over"]:
            yield f"<p>Level {each['name']} took longer than its limit.</p>"


def _failures(target: Mapping[str, Any]) -> Iterator[str]:
    failed = [case for case in target["cases"] if case["status"] == FAILED]
    if failed:
        yield f"<h3>Failures ({len(failed)})</h3><table>"
        for case in failed:
            yield f"<tr><td class=f><code>{_text(case['case'])}</code></td>"
            yield f"<td><pre>{_text(case['why'])}</pre></td></tr>"
        yield "</table>"


def _ops(target: Mapping[str, Any]) -> Iterator[str]:
    """The support table: a row for each op, a column for each dtype. The tooltip of a cell has its
    reasons."""
    ops = target["ops"]
    if all(cell["status"] == NOT_RUN for row in ops.values() for cell in row.values()):
        return
    columns = list(dict.fromkeys(dtype for row in ops.values() for dtype in row))
    signs = ", ".join(f"{SIGNS[status]} {status}" for status in STATUSES)
    yield f"<h3>Operators</h3><p>{signs}; empty: the operator does not take the dtype.</p>"
    heads = "".join(f"<th>{_text(dtype)}</th>" for dtype in columns)
    first = "<th class=op>operator</th><th>nodes on the target</th>"
    yield f"<div class=ops><table><thead><tr>{first}{heads}</tr></thead>"
    for op, row in ops.items():
        cells = "".join(_cell(row[dtype]) if dtype in row else "<td></td>" for dtype in columns)
        share = f"<td>{percent(target['shares'].get(op, {}).get('share'))}</td>"
        yield f"<tr><td class=op>{_text(op)}</td>{share}{cells}</tr>"
    yield "</table></div>"


def _cell(cell: Mapping[str, Any]) -> str:
    counts = ", ".join(f"{count} {status}" for status, count in cell["cases"].items())
    tooltip = "\n".join(filter(None, [counts, *(why[:300] for why in cell["why"])]))
    status = cell["status"]
    return f'<td class={CLASSES[status]} title="{_text(tooltip)}">{SIGNS[status]}</td>'


def _figures(target: Mapping[str, Any]) -> Iterator[str]:
    measured = [case for case in target["cases"] if "figures" in case]
    if measured:
        names = list(dict.fromkeys(name for case in measured for name in case["figures"]))
        heads = "".join(f"<th>{_text(name)}</th>" for name in names)
        yield f"<h3>Measured</h3><table><tr><th>case</th>{heads}</tr>"
        for case in measured:
            numbers = "".join(f"<td class=c>{_number(case['figures'].get(name))}</td>" for name in names)
            yield f"<tr><td class={CLASSES[case['status']]}>{_text(case['case'])}</td>{numbers}</tr>"
        yield "</table>"


def _number(value: float | None) -> str:
    return "" if value is None else f"{value:.4g}"


def _exemptions(target: Mapping[str, Any]) -> Iterator[str]:
    if target["exemptions"]:
        yield "<h3>Exemptions</h3><table>"
        yield "<tr><th>exemption</th><th>kind</th><th>reason</th><th>cases</th></tr>"
        for each in target["exemptions"]:
            cases = each["cases"] if each["used"] else "none: misspelt or obsolete"
            yield f"<tr><td><code>{_text(each['name'])}</code></td><td>{_text(each['kind'])}</td>"
            yield f"<td>{_text(each['reason'])}</td>"
            yield f"<td class={'c' if each['used'] else 'f'}>{cases}</td></tr>"
        yield "</table>"


def _unsupported(target: Mapping[str, Any]) -> Iterator[str]:
    """Yield the reasons for skipped and expected failures, each with its cases."""
    reasons: dict[tuple[str, str], list[str]] = {}
    for case in target["cases"]:
        if case["status"] in (ON_HOST, UNSUPPORTED, EXPECTED, NOT_RUN):
            reasons.setdefault((case["status"], case["why"]), []).append(case["case"])
    if reasons:
        yield "<h3>Reasons</h3><table><tr><th>status</th><th>reason</th><th>cases</th></tr>"
        for (status, why), cases in reasons.items():
            yield f"<tr><td class={CLASSES[status]}>{status}</td><td>{_text(why)}</td>"
            yield f"<td>{_text(first_names(cases, 6))}</td></tr>"
        yield "</table>"


def _text(text: str) -> str:
    return escape(str(text), quote=True)


__all__ = ["page"]
