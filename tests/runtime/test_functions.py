"""Executables with several functions, called by name: PrimFuncs, graphs, and functions of several targets."""

from __future__ import annotations

import json

import numpy as np
import pytest

import dlc_core as dlc
from dlc_core import te
from dlc_core.config import config
from dlc_core.diag import ArtifactError, UnsupportedError, UsageError
from dlc_core.graph.node import CALL_PRIM, Function, constant, node, param
from dlc_core.ir.module import IRModule
from dlc_core.ir.types import tensor_type
from dlc_core.runtime.artefact.container import read_container
from dlc_core.runtime.artefact.writing import write_container
from dlc_core.schedule import Schedule

X = np.arange(6, dtype=np.float32)
Y = X * 10
WEIGHT = np.linspace(0, 1, 6, dtype=np.float32)


def program(name, combine):
    x, y = te.placeholder((6,), name="x"), te.placeholder((6,), name="y")
    return te.create_prim_func([x, y], [te.compute((6,), lambda i: combine(x[i], y[i]), name="z")], name)


ADD, SUB, MUL = (
    program(name, combine)
    for name, combine in (
        ("add", lambda a, b: a + b),
        ("sub", lambda a, b: a - b),
        ("mul", lambda a, b: a * b),
    )
)
WANT = {"add": X + Y, "sub": X - Y, "mul": X * Y}


def graph(name, op):
    x, y = param("x", tensor_type((6,))), param("y", tensor_type((6,)))
    body = dlc.ops()["add"].build(dlc.ops()[op].build(x, y), constant(WEIGHT))
    return Function(name, (x, y), body)


def check(exe, names):
    """Every function is called by name, in all forms."""
    assert exe.entries == tuple(names)
    for name in names:
        np.testing.assert_array_equal(exe[name](X, Y), WANT[name])
        out = np.empty(6, np.float32)
        assert exe[name](X, Y, out) is out
        np.testing.assert_array_equal(out, WANT[name])
        assert exe.time_evaluator(name, number=1, repeat=1)(X, Y).min > 0
    np.testing.assert_array_equal(exe(X, Y), WANT[names[0]])
    with pytest.raises(UsageError, match=f"no entry point 'div'\n  hint: it has: {', '.join(names)}"):
        exe["div"]


def reopened(exe, folder):
    exe.save(folder / "functions.dlc")
    return dlc.open(folder / "functions.dlc", verify=True)


def test_prim_funcs_of_a_module(target, tmp_path):
    exe = dlc.build(IRModule.of(ADD, SUB, MUL), target)
    check(exe, ["add", "sub", "mul"])
    check(reopened(exe, tmp_path), ["add", "sub", "mul"])


def test_one_prim_func(target, tmp_path):
    check(dlc.build(ADD, target), ["add"])
    check(reopened(dlc.build(IRModule.of(ADD), target), tmp_path), ["add"])
    assert dlc.build(te.compute((2,), lambda i: i + 1), target).entries == ()


@pytest.mark.parametrize("targets", [("shared", "board"), ("reference", "shared"), ("board", "reference")])
def test_functions_of_several_targets(devices, targets, tmp_path):
    first, second = targets
    for functions in (
        {first: [ADD, SUB], second: [MUL]},
        {first: IRModule.of(ADD, SUB), second: MUL},
        {dlc.driver.find_target(first): Schedule(IRModule.of(ADD, SUB)), second: Schedule(MUL)},
    ):
        exe = dlc.build(functions)
        check(exe, ["add", "sub", "mul"])
        assert (exe["add"].target.kind.name, exe["mul"].target.kind.name) == targets
        assert set(exe.target_text.split(", ")) == set(targets)
        check(reopened(exe, tmp_path), ["add", "sub", "mul"])


def test_two_targets_of_one_kind(devices, tmp_path):
    exe = dlc.build({"reference": ADD, "reference -level=tir": SUB, "shared": MUL}, num_threads=1)
    assert list(exe.parts) == ["reference_1", "shared"]
    check(reopened(exe, tmp_path), ["add", "sub", "mul"])


def test_refused_builds_for_several_targets(devices):
    for functions, message in (
        ({}, "no functions to build"),
        ({"shared": []}, "no functions to build for a target"),
        ({"shared": ADD, "board": [SUB, ADD]}, "two functions are called 'add'"),
        ({"shared": [ADD, ADD]}, "two functions are called 'add'"),
        ({"shared": ADD, dlc.driver.find_target("shared"): SUB}, "the target shared is given twice"),
        ({"shared": te.compute((2,), lambda i: i)}, "a Tensor has no name"),
    ):
        with pytest.raises(UsageError, match=message):
            dlc.build(functions)
    for more in ({"target": "board"}, {"args": "board"}):
        with pytest.raises(UsageError, match="targets are given twice"):
            dlc.build({"shared": ADD}, **more)


def test_graphs_of_a_module(target, tmp_path):
    module = IRModule.of(graph("second", "mul"), graph("main", "add"))
    exe = dlc.compile(module, target)
    for each in (exe, reopened(exe, tmp_path), dlc.build(module, target)):
        assert each.entries == ("main", "second")
        np.testing.assert_allclose(each(X, Y), X + Y + WEIGHT)
        np.testing.assert_allclose(each["main"](X, Y), X + Y + WEIGHT)
        np.testing.assert_allclose(each["second"](X, Y), X * Y + WEIGHT)
        assert each["second"].run({"x": X, "y": Y}).keys() == {"output0"}
    with pytest.raises(UnsupportedError, match=r"compiled separately(.|\n)*exe\[\"second\"\].export"):
        exe.export(tmp_path / "two.so")


def test_a_graph_of_another_name_is_the_entry(target):
    exe = dlc.compile(IRModule({"other": graph("other", "mul")}, entry="other"), target)
    np.testing.assert_allclose(exe(X, Y), X * Y + WEIGHT)
    assert exe.entries == ()


def test_graphs_and_prim_funcs(target, tmp_path):
    """A PrimFunc that a graph calls belongs to it; others are entry points."""
    x, y = param("x", tensor_type((6,))), param("y", tensor_type((6,)))
    call = node(CALL_PRIM, (x, y), {"symbol": "sub", "dims": ()}, tensor_type((6,)))
    calls = Function("main", (x, y), dlc.ops()["add"].build(call, constant(WEIGHT)))
    module = IRModule({"main": calls, "second": graph("second", "mul"), "sub": SUB, "mul": MUL, "add": ADD})
    exe = dlc.build(module, target)
    for each in (exe, reopened(exe, tmp_path)):
        assert each.entries == ("main", "second", "mul", "add")
        np.testing.assert_allclose(each(X, Y), X - Y + WEIGHT)
        np.testing.assert_allclose(each["second"](X, Y), X * Y + WEIGHT)
        for name in ("mul", "add"):
            np.testing.assert_array_equal(each[name](X, Y), WANT[name])


def test_a_module_from_the_cache_has_all_functions(devices, tmp_path):
    module = IRModule.of(graph("main", "add"), graph("second", "mul"))
    with config.override(cache_dir=str(tmp_path)):
        exes = [dlc.compile(module, "shared", cache=True) for _ in range(2)]
    assert [exe.report["cache"] for exe in exes] == ["stored", "hit"]
    for exe in exes:
        np.testing.assert_allclose(exe["second"](X, Y), X * Y + WEIGHT)


def test_a_function_shares_scratch_memory_and_has_its_own_threads(devices):
    exe = dlc.build(IRModule.of(ADD, SUB), "shared", num_threads=2)
    one, other = exe["sub"], exe["sub"]
    one(X, Y)
    other(X, Y)
    assert one._caller is other._caller
    one.num_threads = 1
    assert (other.num_threads, exe["sub"].num_threads) == (2, 2)
    exe.num_threads = 3
    assert exe["sub"].num_threads == 3
    assert one.entries == ()


def test_damaged_entries_are_refused(devices, tmp_path):
    exe = dlc.build({"shared": ADD, "board": SUB})
    exe.save(tmp_path / "good.dlc")
    opened = read_container(tmp_path / "good.dlc")

    def rewritten(header=None, **entries):
        """The file with other entry points or another header."""
        about = json.loads(bytes(opened.sections["about"]))
        about["entries"].update(entries)
        sections = [
            (n, json.dumps(about).encode() if n == "about" else opened.code() if n == "code" else v)
            for n, v in opened.sections.items()
        ]
        kept = {key: value for key, value in opened.header.items() if key != "sections"}
        write_container(tmp_path / "bad.dlc", {**kept, **(header or {})}, sections)
        return dlc.open(tmp_path / "bad.dlc", trust=True)

    np.testing.assert_array_equal(rewritten()["sub"](X, Y), X - Y)
    for entry in ({"part": "nowhere"}, {"part": ["x"]}, {}, [], "board", {"symbol": 3, "signature": {}}):
        with pytest.raises(
            ArtifactError, match=r"(an entry point|the signature) in the artefact is malformed"
        ):
            rewritten(sub=entry)["sub"]
    board = opened.header["parts"]["board"]
    for parts in ([], {"board": 3}, {"other": board}, {"board": {**board, "parts": {}}}):
        with pytest.raises(ArtifactError):
            rewritten(header={"parts": parts})
    with pytest.raises(ArtifactError, match="which is not known here"):
        rewritten(header={"parts": {"board": {**board, "target": "acme"}}})
