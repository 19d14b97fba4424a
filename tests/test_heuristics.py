"""Heuristics: named numbers with a documented origin, overridden by value, setting and environment."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

import dlc_core as dlc
from dlc_core.config import config
from dlc_core.diag import UsageError
from dlc_core.driver.request import CompileRequest
from dlc_core.graph.node import Function, Node, param
from dlc_core.heuristics import (
    cached,
    current_overrides,
    declared,
    family,
    merged,
    overridden,
    recorded,
    scaled,
)
from dlc_core.ir.module import IRModule
from dlc_core.ir.types import tensor_type
from dlc_core.op import std
from dlc_core.passes import PassContext
from dlc_core.passes.heuristics import FUSION
from dlc_core.plugin.registry import registry
from dlc_core.schedule.rules.cpu.heuristics import LOOPS
from dlc_core.schedule.rules.gpu.heuristics import TILES
from dlc_core.support.record import record

CORE = Path(dlc.__file__).parent
NAMED = "reference -level=tir"
PROVENANCE = re.compile(
    r"[Nn]ot\s+measured|[Hh]alved|Measured|Of its measurement|Fitted|By counting|[Aa] bound of the search|"
    r"Chosen for precision|A promise|For tests"
)


def declared_everywhere():
    registry().import_deciders()
    return declared()


def chain() -> IRModule:
    """Eight elementwise operations: one kernel, if kernels may have so many."""
    x: Node = param("x", tensor_type((6,)))
    y = x
    for _ in range(4):
        y = std.tanh(std.neg(y))
    return IRModule({"main": Function("main", (x,), y)})


def kernels(**options: object) -> int:
    """Compile the chain, check its results, and return the number of its kernels."""
    exe = dlc.compile(chain(), NAMED, cache=False, **options)
    x = np.linspace(-1, 1, 6, dtype=np.float32)
    expected = x
    for _ in range(4):
        expected = np.tanh(-expected)
    np.testing.assert_allclose(exe(x), expected, rtol=1e-6)
    return len(exe.explain().kernels)


def test_each_heuristic_has_a_docstring_with_its_source():
    found = declared_everywhere()
    assert {"gemm.chunk", "gpu.tiles.depths", "strassen.gain", "fusion.max_ops"} <= found.keys()
    for name, number in found.items():
        assert len(number.about) > 20, name
        assert PROVENANCE.search(number.about), f"{name}: {number.about}"
        assert number.accepts(number.default), name
        assert merged(f"{name}={number.text}").check().values[name] == number.default


def families_of(module: str) -> dict[str, str]:
    """The names of families by the constants of a module: `FUSION = family("fusion", ...)`."""
    path = CORE.parent.joinpath(*module.split(".")).with_suffix(".py")
    return dict(re.findall(r'^(\w+) = family\("([^"]+)"', path.read_text(), re.MULTILINE))


def reads(path: Path) -> Iterator[tuple[str, bool]]:
    """The numbers that a module reads, and whether a function reads them rather than the import."""
    tree = ast.parse(path.read_text())
    families = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and (node.module or "").endswith(".heuristics"):
            known = families_of(node.module)
            families |= {one.name: known[one.name] for one in node.names if one.name in known}

    def visit(node: ast.AST, runs: bool) -> Iterator[tuple[str, bool]]:
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id in families:
            yield f"{families[node.value.id]}.{node.attr}", runs
        later = isinstance(node, (ast.FunctionDef, ast.Lambda))
        for part, value in ast.iter_fields(node):
            for child in value if isinstance(value, list) else [value]:
                if isinstance(child, ast.AST):
                    yield from visit(child, runs or (later and part == "body"))

    return visit(tree, False)


def test_each_heuristic_is_read_where_overrides_apply():
    found = [one for path in sorted(CORE.rglob("*.py")) for one in reads(path)]
    assert {name for name, _ in found} == {n for n in declared_everywhere() if not n.startswith("test_")}
    assert [name for name, runs in found if not runs] == []


def test_a_context_overrides_a_heuristic():
    before = FUSION.max_ops
    with overridden("fusion.max_ops=12, gpu.tiles.depths=(8, 64)"):
        assert (FUSION.max_ops, TILES.depths, TILES.products) == (12, (8, 64), 128)
        assert declared()["fusion.max_ops"].value == 12
        with overridden({"fusion.max_ops": 5}):
            assert (FUSION.max_ops, TILES.depths) == (5, (8, 64))
            assert current_overrides().text == "fusion.max_ops=5,gpu.tiles.depths=(8, 64)"
        assert FUSION.max_ops == 12
    assert before == FUSION.max_ops
    assert not current_overrides().text


def test_single_entries_of_a_mapping_are_overridden():
    with overridden({"loops.work_per_cycle": {"elements": 9}}):
        assert LOOPS.work_per_cycle["elements"] == 9
        assert LOOPS.work_per_cycle["iterations"] == 2


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("fusion.max_op=3", "did you mean 'fusion.max_ops'"),
        ("fusion.max_ops=3.5", "of the same kind as 48"),
        ("fusion.max_ops=0", "above zero"),
        ("fusion.max_ops=True", "of the same kind as 48"),
        ("fusion.max_ops=few", "written as in Python"),
        ("fusion.max_ops", "sets no heuristic"),
        ("gpu.tiles.depths=8", "of the same kind as"),
        ("gpu.tiles.depths=(8, 0)", "above zero"),
        ("strassen.gain=((1.0, 1.0),)", "of the same kind as"),
        ("loops.work_per_cycle={'things': 3}", "of the same kind as"),
    ],
)
def test_invalid_values_are_refused(text, words):
    declared_everywhere()
    with pytest.raises(UsageError) as error:
        merged(text).check()
    assert words in str(error.value)
    with pytest.raises(UsageError):
        dlc.compile(chain(), NAMED, config={"heuristics": text}, cache=False)


def test_a_family_is_declared_once():
    @record(frozen=True)
    class Own:
        size: int = 3
        """Not measured."""

    own = family("test_of_heuristics", Own())
    assert own.size == 3
    with pytest.raises(AttributeError):
        own.width  # noqa: B018
    with pytest.raises(ValueError, match="declared twice"):
        family("test_of_heuristics", Own(4))


def test_cache_keys_depend_on_heuristics():
    @cached(maxsize=4)
    def doubled(factor: int) -> int:
        return factor * FUSION.max_ops

    assert doubled(2) == 96
    with overridden("fusion.max_ops=5"):
        assert doubled(2) == 10
    assert doubled(2) == 96


def test_heuristics_that_are_read_are_recorded():
    @cached(maxsize=4)
    def doubled(factor: int) -> int:
        return factor * FUSION.max_ops

    assert doubled(2) == 96
    with recorded() as names:
        assert doubled(2) == 96
        with overridden("loops.row_bytes=5"):
            assert LOOPS.row_bytes == 5
        assert kernels() == 1
    assert {"fusion.max_ops", "loops.row_bytes"} <= names
    assert not any(name.startswith("gpu.") for name in names)
    with recorded() as others:
        assert LOOPS.max_interleaved == 8
    assert others == {"loops.max_interleaved"}
    with overridden({name: scaled(declared()[name].default, 2) for name in declared() if name not in names}):
        assert kernels() == 1


def test_scaled_heuristics_keep_their_type():
    assert scaled({"a": 3, "b": (0.5, True)}, 0.5) == {"a": 1, "b": (0.25, True)}
    assert scaled(1, 0.5) == 1
    for name, number in declared_everywhere().items():
        for factor in (0.5, 2):
            assert number.accepts(scaled(number.default, factor)), name


def test_a_compile_reads_heuristics_from_each_source(monkeypatch):
    assert kernels() == 1
    few = {"heuristics": {"fusion.max_ops": 3}}
    assert kernels(config=few) == 3
    assert kernels(config={"heuristics": "fusion.max_ops=1"}) == 8
    with PassContext(config=few):
        assert kernels() == 3
        assert kernels(config={"heuristics": "fusion.max_ops=1"}) == 8
    with overridden("fusion.max_ops=4"):
        assert kernels() == 2
    monkeypatch.setenv("DLC_HEURISTICS", "fusion.max_ops=2,memory.gain_divisor=30")
    assert kernels() == 4
    assert kernels(config=few) == 3
    with PassContext(config=few):
        assert kernels() == 3
    with config.override(heuristics="fusion.max_ops=4"):
        assert kernels() == 2


def test_predicted_times_use_the_heuristics_of_the_compile():
    def seconds(**config):
        exe = dlc.compile(chain(), NAMED, cache=False, config=config)
        return exe.explain().kernels[0].estimate.seconds

    assert seconds(heuristics={"issue.overlap": 4.0}) > seconds()


def test_heuristics_are_part_of_the_request():
    given = CompileRequest.of(NAMED, config={"heuristics": {"memory.gain_divisor": 30, "fusion.max_ops": 3}})
    assert given.config["heuristics"] == "fusion.max_ops=3,memory.gain_divisor=30"
    assert CompileRequest.of_record(given.record()).config == given.config
    assert "heuristics" not in CompileRequest.of(NAMED).config
