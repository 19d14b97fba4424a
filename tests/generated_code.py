"""Generated code as text, to diff it between two versions of the compiler.

    python -m tests.generated_code record before/      one text file per program, target and number of threads
    python -m tests.generated_code record after/       with the other version
    python -m tests.generated_code compare before/ after/

A refactoring should change no text; every difference must be explained.  The programs are the samples of all
operators with static and symbolic dims, the blocks and networks of the conformance kit, and the light models
of `benchmarks/models.py`.  The text is the module after the last pass, without the notes on how choices were
made.  With `--code` the text of the code generator follows it.  `--only TEXT` selects programs by their
names, `--every N` takes one of N samples of operators.

Each program is lowered for the targets of `TARGETS`.  None of them depends on the machine it runs on.
"""

from __future__ import annotations

import argparse
import difflib
import re
import sys
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from itertools import islice
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import dlc_core as dlc
from dlc_core.diag import DlcError
from dlc_core.driver import context_for, load
from dlc_core.driver.stages import lower
from dlc_core.ir.module import IRModule
from dlc_core.plugin.registry import registry
from dlc_core.script import script
from dlc_core.testing.blocks import BLOCKS
from dlc_core.testing.cases import op_cases, symbolic_cases
from dlc_core.testing.networks import NETWORKS

TARGETS = (
    "llvm -mcpu=znver4 -num-threads=2",
    "llvm -mcpu=sapphirerapids -num-threads=1",
    "llvm -mcpu=haswell -num-threads=1",
    "c",
)
CUDA = "cuda -arch=sm_80"
"""Operators alone are also lowered for a GPU."""

Program = tuple[str, Callable[[], IRModule]]


_NOTES = re.compile(
    r', "(?:decisions": \((?:"[^"]*"(?:, )?|,)*\)|applied": "[^"]*")|"plan": G\.plan\([^)]*\), '
)
"""The attributes that list choices and plans: they say nothing about the program."""


def programs(only: str = "", every: int = 1) -> Iterator[Program]:
    """All programs by name; `only` is a part of the names.  Of the samples it takes one of `every`."""
    yield from islice(_samples(only), 0, None, every)
    for name, make in NETWORKS.items():
        if only in f"networks/{name}":
            yield f"networks/{name}", make
    for name, block in BLOCKS.items():
        if only in f"blocks/{name}":
            yield f"blocks/{name}", lambda block=block: block("float32")  # type: ignore[misc]
    yield from _models(only)


def _samples(only: str) -> Iterator[Program]:
    for op in sorted(registry().ops.values(), key=lambda one: one.name):
        if op.lower is None and not op.is_composite:
            continue
        for case in (*op_cases(op), *symbolic_cases(op)):
            if only in case.name:
                yield case.name, lambda case=case: case.module  # type: ignore[misc]


def _models(only: str) -> Iterator[Program]:
    from benchmarks.models import default_cases  # it needs the package onnx

    def read(case: Any) -> IRModule:
        with TemporaryDirectory() as folder:
            return load(case.make(Path(folder)))

    for case in default_cases():
        if only in f"models/{case.name}":
            yield f"models/{case.name}", lambda case=case: read(case)  # type: ignore[misc]


def script_of(value: Any) -> str:
    """A module or function as script, without the notes on how choices were made."""
    return _NOTES.sub("", script(value))


def text_of(module: IRModule, target: str, *, code: bool = False) -> str:
    """The lowered module as script; an error of the compiler is a text, too."""
    try:
        lowered, _ = lower(module, context_for(target))
        text = script_of(IRModule(lowered.functions, {}, lowered.entry))
        if code and not target.startswith(CUDA):
            made = dlc.compile(module, target)
            form = next(iter(made.artifact.sources), None)
            text += "\n\n" + ("" if form is None else made.source(form))
    except DlcError as error:
        return f"# {type(error).__name__}: {str(error).splitlines()[0]}"
    return text


def record(
    folder: Path, only: str = "", every: int = 1, *, code: bool = False, part: tuple[int, int] = (0, 1)
) -> int:
    """Write the texts of all programs; `part` is (index, number) of parts.  Return how many."""
    count = 0
    for name, make in islice(programs(only, every), part[0], None, part[1]):
        targets = (*TARGETS, CUDA) if name.startswith("ops/") else TARGETS
        module = make()
        for target in targets:
            path = folder / name / (re.sub(r"[^\w]+", "-", target) + ".txt")
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text_of(module, target, code=code) + "\n")
            count += 1
    return count


def compare(before: Path, after: Path, lines: int = 12) -> Iterator[str]:
    """Yield each text that is new, missing or changed by its name, with the first changed lines."""
    names = {path.relative_to(root) for root in (before, after) for path in root.rglob("*.txt")}
    for name in sorted(names):
        old, new = before / name, after / name
        if not new.exists():
            yield f"{name}: missing"
        elif not old.exists():
            yield f"{name}: new"
        elif old.read_bytes() != new.read_bytes():
            changed = difflib.unified_diff(
                old.read_text().splitlines(), new.read_text().splitlines(), lineterm="", n=1
            )
            yield "\n".join((f"{name}: changed", *islice(changed, 2, 2 + lines)))


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        prog="python -m tests.generated_code", description=__doc__.split("\n")[0]
    )
    commands = parser.add_subparsers(dest="command", required=True)
    recording = commands.add_parser("record", help="write the texts into a folder")
    recording.add_argument("folder", type=Path)
    recording.add_argument("--only", default="", help="a part of the names of programs")
    recording.add_argument("--every", type=int, default=1, help="one of so many samples of operators")
    recording.add_argument("--code", action="store_true", help="the code generator's text, too")
    recording.add_argument("--processes", type=int, default=1)
    comparing = commands.add_parser("compare", help="show how two folders differ")
    comparing.add_argument("before", type=Path)
    comparing.add_argument("after", type=Path)
    comparing.add_argument("--lines", type=int, default=12, help="lines of each difference")
    options = parser.parse_args(arguments)
    if options.command == "compare":
        differences = list(compare(options.before, options.after, options.lines))
        print("\n".join(differences), end="\n" if differences else "")
        print(f"{len(differences)} texts differ")
        return int(bool(differences))
    number = options.processes
    with ProcessPoolExecutor(number) as pool:
        jobs = [
            pool.submit(
                record, options.folder, options.only, options.every, code=options.code, part=(index, number)
            )
            for index in range(number)
        ]
        print(f"{sum(job.result() for job in jobs)} texts in {options.folder}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
