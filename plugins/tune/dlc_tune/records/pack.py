"""Packages of records: distributions that others install, after which their compiles use the records.

    write_package("acme-records", records, Path("out"), version="1.0")

writes a folder `out/acme-records` that `pip wheel` builds. The package has one file of JSON lines, which it
declares by the hook `dlc_records`.
"""

from __future__ import annotations

import json
import keyword
import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from dlc_core.diag import UsageError
from dlc_core.hooks import API_VERSION
from dlc_tune.records.found import cost_text, sizes_text
from dlc_tune.records.record import CHOSEN, Record
from dlc_tune.records.transfer import export_lines

_NAME = re.compile(r"[A-Za-z0-9]([A-Za-z0-9._-]{0,60}[A-Za-z0-9])?")
_VERSION = re.compile(r"[0-9]+(\.[0-9]+)*((a|b|rc)[0-9]+)?(\.post[0-9]+)?(\.dev[0-9]+)?")
LISTED = 200
"""The kernels that the README lists."""

PYPROJECT = """\
[build-system]
requires = ["hatchling>=1.27"]
build-backend = "hatchling.build"

[project]
name = @NAME@
version = @VERSION@
description = @ABOUT@
readme = "README.md"
requires-python = ">=3.10"
license = @LICENCE@
dependencies = ["dlc-tune>=0.1,<0.2"]

[project.entry-points.dlc]
@ENTRY@ = "@MODULE@.plugin"

[tool.hatch.build.targets.wheel]
packages = ["@MODULE@"]
"""
PLUGIN = '''\
"""The declarations of this package: its records of tuned kernels."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from dlc_core.hooks import Declaration, hookimpl
from dlc_tune.records.packages import RecordFile

DLC_API = "@API@"


@hookimpl
def dlc_records() -> Iterable[Declaration]:
    return [RecordFile(@NAME@, Path(__file__).with_name("records.jsonl"), @VERSION@)]
'''
README = """\
# @NAME@

@COUNT@ schedules of kernels for the [dlc](https://pypi.org/project/dlc-core/) compiler, each measured against
the default schedule. After `pip install @NAME@` compiles use them where they fit: the same kernel, target,
machine, number of threads and version of dlc. Elsewhere they are used only if the cost model predicts that
they are faster. Records of the user's own database come first. `dlc explain MODEL` names the records in use.

## Targets and machines

@TARGETS@

## Kernels

@KERNELS@
"""


def best_of_each(records: Iterable[Record]) -> list[Record]:
    """The chosen record with the largest gain of each kernel, target, processor and machine."""
    best: dict[tuple[object, ...], Record] = {}
    for one in records:
        key = one.kernel, one.target, one.processor, one.machine, one.threads, one.compiler
        if one.state == CHOSEN and (key not in best or (one.gain, -one.time) < _order(best[key])):
            best[key] = one
    return list(best.values())


def _order(one: Record) -> tuple[float, float]:
    return one.gain, -one.time


def write_package(
    name: str, records: Sequence[Record], out: Path, *, version: str = "0.1.0", licence: str = "Apache-2.0"
) -> Path:
    """Write a package of the best of each kernel's chosen records. Returns its folder, `out/name`.

    `licence` is an SPDX expression. Notes, which may name machines, are left out. Raises UsageError for an
    illegal name, version or licence, without records, and for a folder that exists.
    """
    module = re.sub(r"[-.]+", "_", name).lower()
    if not _NAME.fullmatch(name) or not module.isidentifier() or keyword.iskeyword(module):
        raise UsageError(f"{name!r} cannot name a package", hint="for example: acme-records")
    if not _VERSION.fullmatch(version):
        raise UsageError(f"{version!r} is no version of a package", hint="for example: 1.0")
    if not re.fullmatch(r"[A-Za-z0-9.+() -]{1,100}", licence):
        raise UsageError(f"{licence!r} is no licence", hint="an SPDX expression, for example Apache-2.0")
    kept = [replace(one, notes={}) for one in best_of_each(records)]
    if not kept:
        raise UsageError("there are no records to pack", why="only chosen schedules are packed")
    folder = out / name
    if folder.exists():
        raise UsageError(f"{folder} exists already", hint="remove it, or give another folder with --out")
    package = folder / module
    try:
        package.mkdir(parents=True)
        texts = {
            folder / "pyproject.toml": PYPROJECT,
            folder / "README.md": README,
            package / "__init__.py": '"""Records of tuned kernels."""\n',
            package / "plugin.py": PLUGIN,
        }
        words = {
            "@COUNT@": str(len(kept)),
            "@TARGETS@": _targets(kept),
            "@KERNELS@": _kernels(kept),
            "@MODULE@": module,
            "@ENTRY@": module,
            "@ABOUT@": json.dumps(f"{len(kept)} records of tuned kernels for the dlc compiler."),
            "@VERSION@": json.dumps(version),
            "@LICENCE@": json.dumps(licence),
            "@API@": ".".join(map(str, API_VERSION)),
        }
        for path, text in texts.items():
            quoted = name if path.name == "README.md" else json.dumps(name)
            path.write_text(_filled(text, words | {"@NAME@": quoted}), encoding="utf-8")
    except OSError as error:
        raise UsageError(f"the package cannot be written to {folder}", why=str(error)) from error
    export_lines(package / "records.jsonl", kept)
    return folder


def _filled(template: str, words: Mapping[str, str]) -> str:
    """A template with words in the positions of their names."""
    return re.sub("@[A-Z]+@", lambda found: words[found[0]], template)


def _targets(records: Sequence[Record]) -> str:
    counts = Counter((one.target, one.machine or "unknown machine", one.compiler or "?") for one in records)
    rows = [
        f"- `{target}`, {machine}, dlc {compiler}: {count} kernels"
        for (target, machine, compiler), count in sorted(counts.items())
    ]
    return "\n".join(rows)


def _kernels(records: Sequence[Record]) -> str:
    rows = ["| kernel | sizes | target | time | default |", "| --- | --- | --- | ---: | ---: |"]
    for one in records[:LISTED]:
        costs = (
            "" if cost is None else cost_text(cost, one.unit) for cost in (one.seconds, one.default_seconds)
        )
        cells = (
            one.name.replace("|", "/") or one.kernel[:12],
            sizes_text(one.extents),
            f"`{one.target}`",
            *costs,
        )
        rows.append(f"| {' | '.join(cells)} |")
    rows += [f"\nand {len(records) - LISTED} more"] if len(records) > LISTED else []
    return "\n".join(rows)


__all__ = ["best_of_each", "write_package"]
