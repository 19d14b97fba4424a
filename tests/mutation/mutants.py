"""Mutants of index arithmetic: one changed operator, constant or comparison of a function that computes
indices, offsets or extents. Probes record which of these a check evaluates.
"""

from __future__ import annotations

import ast
import importlib
import random
import types
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from tests.mutation.equivalent import COSTS, is_equivalent

_PACKAGES = {
    "dlc_core.passes.tir": "flatten lower_blocks unroll partition vectorize strided workspace common",
    "dlc_core.passes.lower": "arena memory_plan joins entry weights control",
    "dlc_core.schedule": "loops compute_at block_axes blockize buffers regions reindex reduction padding",
    "dlc_core.op.std": "convolution pool slicing shape indexing window",
    "dlc_core.schedule.rules": "analysis",
    "dlc_core.schedule.rules.cpu": "contraction rows bands panels maps edges lanes channel_block transpose"
    " loops tile_nest tile_unit dots vector",
    "dlc_core.algorithms": "row_filter.rule winograd.rule strassen.rule attention.cpu_rule",
}
MODULES = tuple(f"{package}.{name}" for package, names in _PACKAGES.items() for name in names.split())
"""Modules that compute indices, offsets and extents."""

_SWAPS: dict[type[ast.operator], type[ast.operator]] = {
    ast.Add: ast.Sub, ast.Sub: ast.Add, ast.Mult: ast.Add, ast.FloorDiv: ast.Mult, ast.Mod: ast.FloorDiv,
}  # fmt: skip
_BOUNDS: dict[type[ast.cmpop], type[ast.cmpop]] = {
    ast.Lt: ast.LtE, ast.LtE: ast.Lt, ast.Gt: ast.GtE, ast.GtE: ast.Gt,
}  # fmt: skip
_PROBE = "_mutation_probe"
Path_ = tuple[str, ...]
Place = tuple[str, Path_, int]
"""A node of a function: the module, the path of the function in it, the node's number."""


@dataclass(frozen=True)
class Mutant:
    """One change: the module, the path of the function in it, the line, and which node becomes what."""

    module: str
    function: Path_
    line: int
    node: int
    kind: str

    def __str__(self) -> str:
        return f"{self.module}:{self.line} {'.'.join(self.function)}: {self.kind}"

    @property
    def place(self) -> Place:
        return self.module, self.function, self.node


@cache
def _source(module: str) -> tuple[str, str]:
    path = importlib.import_module(module).__file__
    assert path is not None
    return Path(path).read_text(encoding="utf-8"), path


def _functions(body: Sequence[ast.stmt], path: Path_ = ()) -> Iterator[tuple[Path_, ast.FunctionDef]]:
    for stmt in body:
        if isinstance(stmt, ast.FunctionDef):
            yield (*path, stmt.name), stmt
        elif isinstance(stmt, ast.ClassDef):
            yield from _functions(stmt.body, (*path, stmt.name))


def mutants_of(module: str, *, costs: bool = False) -> Iterator[Mutant]:
    """All mutants of a module; with `costs`, also those of functions that only compare costs."""
    functions = list(_functions(ast.parse(_source(module)[0]).body))
    count = Counter(path for path, _ in functions)
    for path, function in functions:
        if count[path] > 1 or (not costs and ".".join(path) in COSTS.get(module, {})):
            continue
        for number, n in enumerate(ast.walk(function)):
            yield from (Mutant(module, path, n.lineno, number, kind) for kind in _kinds(n, function))


def _kinds(n: ast.AST, function: ast.FunctionDef) -> Iterator[str]:
    if isinstance(n, ast.BinOp) and type(n.op) in _SWAPS and not _is_text(n):
        yield f"{ast.unparse(n)}: another operator"
        if any(isinstance(side, ast.Constant) and type(side.value) is int for side in (n.left, n.right)):
            yield f"{ast.unparse(n)}: constant + 1"
    elif (
        isinstance(n, ast.Compare)
        and type(n.ops[0]) in _BOUNDS
        # Arguments become parts of expressions; conditions of Python only choose between expressions.
        and any(n in call.args for call in ast.walk(function) if isinstance(call, ast.Call))
    ):
        yield f"{ast.unparse(n)}: bound"


def _is_text(n: ast.BinOp) -> bool:
    """Whether a sum or product is visibly one of texts, lists or sets."""
    return any(
        isinstance(side, (ast.JoinedStr, ast.List, ast.Tuple, ast.ListComp, ast.Set))
        or (isinstance(side, ast.Constant) and isinstance(side.value, str))
        or (isinstance(side, ast.Subscript) and isinstance(side.slice, ast.Slice))
        for side in (n.left, n.right)
    )


def apply(mutant: Mutant) -> None:
    """Replace the function by a mutant, in this process."""
    text, file = _source(mutant.module)
    tree = ast.parse(text)
    n = list(ast.walk(dict(_functions(tree.body))[mutant.function]))[mutant.node]
    if isinstance(n, ast.Compare):
        n.ops[0] = _BOUNDS[type(n.ops[0])]()
    elif isinstance(n, ast.BinOp) and mutant.kind.endswith("operator"):
        n.op = _SWAPS[type(n.op)]()
    elif isinstance(n, ast.BinOp):
        side = next(s for s in (n.left, n.right) if isinstance(s, ast.Constant))
        assert isinstance(side.value, int)
        side.value += 1
    code = compile(ast.fix_missing_locations(tree), file, "exec")
    _replace(mutant.module, mutant.function, code)


def _replace(module: str, path: Path_, code: types.CodeType) -> None:
    """Give the function at a path the code that it has in other code of its module."""
    found, own = _found(module, path, code)
    found.__code__ = own


def _found(module: str, path: Path_, code: types.CodeType) -> tuple[types.FunctionType, types.CodeType]:
    """The function at a path, and its code in other code of its module."""
    found: object = importlib.import_module(module)
    for name in path:
        found = vars(found)[name]
        code = next(c for c in code.co_consts if isinstance(c, types.CodeType) and c.co_name == name)
    while not isinstance(found, types.FunctionType):
        found = getattr(found, "__wrapped__", None) or getattr(found, "fget", None) or found.__func__  # type: ignore[attr-defined]
    return found, code


class _Probing(ast.NodeTransformer):
    """Inserts a call before the evaluation of some nodes, which records them."""

    def __init__(self, wanted: Mapping[int, int]) -> None:
        self.wanted = wanted

    def visit(self, node: ast.AST) -> ast.AST:
        number = self.wanted.get(id(node))
        node = self.generic_visit(node)
        if number is None or not isinstance(node, ast.expr):
            return node
        call = ast.Call(ast.Name(_PROBE, ast.Load()), [ast.Constant(number)], [])
        return ast.copy_location(ast.BoolOp(ast.Or(), [call, node]), node)


class Probes:
    """Records the evaluation of nodes. Probes are made once, and installed in separate processes."""

    def __init__(self, places: Sequence[Place]) -> None:
        self.codes: list[tuple[types.FunctionType, types.CodeType]] = []
        self.modules: list[str] = []
        numbers: dict[str, dict[Path_, dict[int, int]]] = {}
        for number, (module, path, node) in enumerate(places):
            numbers.setdefault(module, {}).setdefault(path, {})[node] = number
        for module, paths in numbers.items():
            text, file = _source(module)
            tree = ast.parse(text)
            functions = dict(_functions(tree.body))
            wanted = {}
            for path, own in paths.items():
                nodes = list(ast.walk(functions[path]))
                wanted.update({id(nodes[node]): number for node, number in own.items()})
            code = compile(ast.fix_missing_locations(_Probing(wanted).visit(tree)), file, "exec")
            self.codes += [_found(module, path, code) for path in paths]
            self.modules.append(module)

    def install(self) -> set[int]:
        """Record in this process from now on: the set grows by the numbers of evaluated nodes."""
        seen: set[int] = set()
        for module in self.modules:
            vars(importlib.import_module(module))[_PROBE] = seen.add
        for function, code in self.codes:
            function.__code__ = code
        return seen


def all_mutants() -> list[Mutant]:
    """All mutants except those that are known to be equivalent."""
    return [
        m for module in MODULES for m in mutants_of(module) if not is_equivalent(m.module, m.function, m.kind)
    ]


def drawn(mutants: Sequence[Mutant], count: int, seed: int = 0) -> list[Mutant]:
    """Some of the mutants, the same for a seed."""
    return random.Random(seed).sample(mutants, min(count, len(mutants)))


__all__ = ["MODULES", "Mutant", "Place", "Probes", "all_mutants", "apply", "drawn", "mutants_of"]
