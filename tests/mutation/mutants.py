"""Mutation testing of index arithmetic: a wrong sum, factor or bound in a pass must not go unseen.

    python -m tests.mutation.mutants --count 220 --processes 2

Each mutant changes one arithmetic operator, constant or comparison of a function that computes indices, and
runs the battery in a process of its own.  It is caught where an access is refused or checked that was not
before, where the process does not survive guard mode, or where numbers differ.  Mutants are drawn among the
lines that the battery executes.
"""

from __future__ import annotations

import argparse
import ast
import importlib
import os
import random
import signal
import sys
import time
import types
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from tests.mutation.battery import run_battery

_ROOMS = {
    "dlc_core.passes.tir": "flatten lower_blocks unroll partition vectorize strided workspace common",
    "dlc_core.passes.lower": "memory joins main weights control",
    "dlc_core.schedule": "loops compute_at block_axes blockize buffers regions reindex reduction padding",
    "dlc_core.op.std": "convolution pool slicing shape indexing window",
}
MODULES = tuple(f"{room}.{name}" for room, names in _ROOMS.items() for name in names.split())
"""What computes indices, offsets and extents."""

_SWAPS: dict[type[ast.operator], type[ast.operator]] = {
    ast.Add: ast.Sub, ast.Sub: ast.Add, ast.Mult: ast.Add, ast.FloorDiv: ast.Mult, ast.Mod: ast.FloorDiv,
}  # fmt: skip
_BOUNDS: dict[type[ast.cmpop], type[ast.cmpop]] = {
    ast.Lt: ast.LtE, ast.LtE: ast.Lt, ast.Gt: ast.GtE, ast.GtE: ast.Gt,
}  # fmt: skip
SECONDS = 120
"""A mutant that takes longer is caught: it would not go unseen."""


@dataclass(frozen=True)
class Mutant:
    """One change: the module, the path of the function in it, the line, and which node becomes what."""

    module: str
    function: tuple[str, ...]
    line: int
    node: int
    kind: str

    def __str__(self) -> str:
        return f"{self.module}:{self.line} {'.'.join(self.function)}: {self.kind}"


def _tree(module: str) -> tuple[ast.Module, str]:
    path = importlib.import_module(module).__file__
    assert path is not None
    return ast.parse(Path(path).read_text(encoding="utf-8")), path


def _functions(
    body: Sequence[ast.stmt], path: tuple[str, ...] = ()
) -> Iterator[tuple[tuple[str, ...], ast.FunctionDef]]:
    for stmt in body:
        if isinstance(stmt, ast.FunctionDef):
            yield (*path, stmt.name), stmt
        elif isinstance(stmt, ast.ClassDef):
            yield from _functions(stmt.body, (*path, stmt.name))


def mutants_of(module: str) -> Iterator[Mutant]:
    """All mutants of a module."""
    tree, _ = _tree(module)
    for path, function in _functions(tree.body):
        built = {id(arg) for n in ast.walk(function) if isinstance(n, ast.Call) for arg in n.args}
        for number, n in enumerate(ast.walk(function)):
            if isinstance(n, ast.BinOp) and type(n.op) in _SWAPS and not _is_text(n):
                yield Mutant(module, path, n.lineno, number, f"{ast.unparse(n)}: another operator")
                for side in (n.left, n.right):
                    if isinstance(side, ast.Constant) and type(side.value) is int:
                        yield Mutant(module, path, n.lineno, number, f"{ast.unparse(n)}: constant + 1")
                        break
            elif isinstance(n, ast.Compare) and id(n) in built and type(n.ops[0]) in _BOUNDS:
                yield Mutant(module, path, n.lineno, number, f"{ast.unparse(n)}: bound")


def _is_text(n: ast.BinOp) -> bool:
    return any(
        isinstance(side, (ast.JoinedStr, ast.List, ast.Tuple, ast.ListComp))
        or (isinstance(side, ast.Constant) and isinstance(side.value, str))
        for side in (n.left, n.right)
    )


def apply(mutant: Mutant) -> None:
    """Put a mutant in the place of the function, in this process."""
    tree, path = _tree(mutant.module)
    function = dict(_functions(tree.body))[mutant.function]
    n = list(ast.walk(function))[mutant.node]
    if isinstance(n, ast.Compare):
        n.ops[0] = _BOUNDS[type(n.ops[0])]()
    elif isinstance(n, ast.BinOp) and mutant.kind.endswith("operator"):
        n.op = _SWAPS[type(n.op)]()
    elif isinstance(n, ast.BinOp):
        side = next(s for s in (n.left, n.right) if isinstance(s, ast.Constant))
        assert isinstance(side.value, int)
        side.value += 1
    code = _code_in(compile(ast.fix_missing_locations(tree), path, "exec"), mutant.function)
    found: object = importlib.import_module(mutant.module)
    for name in mutant.function:
        found = vars(found)[name]
    while not isinstance(found, types.FunctionType):
        found = getattr(found, "__wrapped__", None) or getattr(found, "fget", None) or found.__func__  # type: ignore[attr-defined]
    found.__code__ = code


def _code_in(code: types.CodeType, path: Sequence[str]) -> types.CodeType:
    for name in path:
        code = next(c for c in code.co_consts if isinstance(c, types.CodeType) and c.co_name == name)
    return code


def lines_executed(work: Callable[[], None]) -> set[tuple[str, int]]:
    """The lines of the modules that some work executes: file and number.  It runs in a process of its own."""
    files = {_tree(module)[1] for module in MODULES}
    reader, writer = os.pipe()
    child = os.fork()
    if not child:
        seen: set[tuple[str, int]] = set()

        def trace(frame: types.FrameType, event: str, arg: object) -> object:
            if frame.f_code.co_filename not in files:
                return None
            seen.add((frame.f_code.co_filename, frame.f_lineno))
            return trace

        sys.settrace(trace)  # type: ignore[arg-type]
        try:
            work()
        finally:
            sys.settrace(None)
            with os.fdopen(writer, "w") as out:
                out.writelines(f"{file}\t{line}\n" for file, line in seen)
            os._exit(0)
    os.close(writer)
    with os.fdopen(reader) as text:
        found = {(file, int(line)) for file, line in (row.rstrip("\n").split("\t") for row in text)}
    os.waitpid(child, 0)
    return found


def verdict(mutant: Mutant | None) -> str:
    """How a mutant is caught, or "survived"; None is the code as it is."""
    reader, writer = os.pipe()
    child = os.fork()
    if not child:
        signal.signal(signal.SIGALRM, signal.SIG_DFL)
        signal.alarm(SECONDS)
        with Path(os.devnull).open("w") as nowhere:
            os.dup2(nowhere.fileno(), 1)
            os.dup2(nowhere.fileno(), 2)
        try:
            if mutant is not None:
                apply(mutant)
            run_battery()
            said = "survived"
        except BaseException as error:  # noqa: BLE001  (whatever it is, it was seen)
            said = type(error).__name__
        os.write(writer, said.encode())
        os._exit(0)
    os.close(writer)
    with os.fdopen(reader) as text:
        said = text.read()
    _, status = os.waitpid(child, 0)
    if said:
        return said
    number = os.WTERMSIG(status)
    return "takes too long" if number == signal.SIGALRM else f"ended by {signal.Signals(number).name}"


def drawn(count: int, seed: int = 0) -> list[Mutant]:
    """Mutants of lines that the battery executes."""
    lines = lines_executed(run_battery)
    found = [m for name in MODULES for m in mutants_of(name) if (_tree(name)[1], m.line) in lines]
    return random.Random(seed).sample(found, min(count, len(found)))


def main() -> None:
    parser = argparse.ArgumentParser(description="Change index arithmetic and see what notices.")
    parser.add_argument("--count", type=int, default=220)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--processes", type=int, default=2)
    options = parser.parse_args()
    if (said := verdict(None)) != "survived":
        raise SystemExit(f"the code as it is does not pass: {said}")
    mutants = drawn(options.count, options.seed)
    begin, outcomes = time.monotonic(), Counter[str]()
    with ThreadPoolExecutor(options.processes) as pool:
        for mutant, said in zip(mutants, pool.map(verdict, mutants)):
            outcomes[said] += 1
            if said == "survived":
                print(f"survived: {mutant}", flush=True)
    caught = sum(outcomes.values()) - outcomes["survived"]
    share, seconds = caught / max(len(mutants), 1), time.monotonic() - begin
    print(f"{caught} of {len(mutants)} caught ({share:.1%}) in {seconds:.0f} s")
    for said, number in outcomes.most_common():
        print(f"{number:5}  {said}")


if __name__ == "__main__":
    main()
