"""The arguments of `dlc.build` and `dlc.lower`, and their errors."""

from __future__ import annotations

import numpy as np
import pytest

import dlc_core as dlc
from dlc_core import te
from dlc_core.diag import DlcError, UsageError
from dlc_core.ir.module import IRModule
from dlc_core.schedule import Schedule
from dlc_core.script import parse
from dlc_core.target import Target, TargetKind
from dlc_core.tir.functor import block_list, stmts
from dlc_core.tir.interpreter import run
from dlc_core.tir.stmt import Alloc, For, PrimFunc
from dlc_core.tir.verify import verify_module

TARGET = "reference -level=tir"
X = np.arange(12, dtype="f4").reshape(3, 4)
Y = np.arange(4, dtype="f4")


def tensors():
    n = te.var("n")
    a, b = te.placeholder((n, 4), name="A"), te.placeholder((4,), name="B")
    twice = te.compute((n, 4), lambda i, j: a[i, j] * 2.0, "twice")
    return n, a, b, te.compute((n, 4), lambda i, j: twice[i, j] + b[j], "C")


N, A, B, C = tensors()


def staged():
    s = dlc.create_schedule(C)
    s[C].vectorize(s[C].op.axis[1])
    return s


FORMS = {
    "a tensor": lambda: (C,),
    "arguments": lambda: ([A, B, C],),
    "a tuple of arguments": lambda: ((A, B, C),),
    "inputs and outputs": lambda: (([A, B], [C]),),
    "with variables": lambda: ([N, A, B, C],),
    "outputs first": lambda: ([C, A, B],),
    "a program": lambda: (te.create_prim_func([A, B, C]),),
    "a module": lambda: (IRModule({"f": te.create_prim_func([A, B, C])}, entry="f"),),
    "a schedule": lambda: (Schedule(te.create_prim_func([A, B, C])),),
    "stages": lambda: (staged(),),
    "stages and arguments": lambda: (staged(), [A, B, C]),
    "stages, arguments and variables": lambda: (staged(), [A, N, B, C]),
    "a schedule of stages": lambda: (staged().schedule,),
}


@pytest.mark.parametrize("form", FORMS)
def test_tensors_functions_and_schedules_are_built(form):
    exe = dlc.build(*FORMS[form](), TARGET)
    np.testing.assert_array_equal(exe(X, Y), X * 2 + Y)
    np.testing.assert_array_equal(exe(X[:1], Y), X[:1] * 2 + Y)
    assert [v.name for v in exe.inputs] == ["A", "B"]
    assert [v.name for v in exe.outputs] == ["C"]
    module = dlc.lower(*FORMS[form]())
    assert all(not block_list(f.body) for f in module.of_kind(PrimFunc).values())


def test_inputs_have_the_order_of_the_arguments():
    exe = dlc.build(staged(), [B, A, C], TARGET)
    np.testing.assert_array_equal(exe(Y, X), X * 2 + Y)
    exe = dlc.build([C, B, A], target=TARGET)
    np.testing.assert_array_equal(exe(Y, X), X * 2 + Y)


def test_several_results():
    k = te.reduce_axis(4, "k")
    best, place = te.compute((N,), lambda i: te.argmax(A[i, k], axis=k), "best")
    values, places = dlc.build([A, best, place], TARGET)(X)
    np.testing.assert_array_equal(values, X.max(1))
    np.testing.assert_array_equal(places, X.argmax(1))


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: dlc.build(3, TARGET), "a int cannot be built"),
        (lambda: dlc.build([], TARGET), "a list cannot be built"),
        (lambda: dlc.build([A, 3], TARGET), "a list cannot be built"),
        (lambda: dlc.build([A, B], TARGET), "none of the arguments is computed"),
        (lambda: dlc.build([A, C], TARGET), "'C' reads B: float32[4], which is neither an argument"),
        (lambda: dlc.build(A, TARGET), "none of the arguments is computed"),
        (lambda: dlc.build([A, B, C], [A, B, C], TARGET), "arguments are given with a list"),
        (lambda: dlc.build(IRModule({}), TARGET), "the module has no PrimFunc"),
        (lambda: dlc.build(staged(), [A, C], TARGET), "the input B is not among the arguments"),
        (lambda: dlc.build(staged(), [A, B], TARGET), "the output C is not among the arguments"),
        (lambda: dlc.build(staged(), "llvm", TARGET), "'llvm' is no list of arguments"),
        (lambda: dlc.build([A, B, C], TARGET)(X), "B"),
        (lambda: dlc.build([A, B, C], TARGET)(X, Y, Y), "3"),
        (lambda: dlc.lower([A, B, C], before="nothing"), "there is no pass 'nothing' to stop at"),
        (lambda: dlc.lower([A, B, C], target="reference"), "does not compile tensor programs"),
    ],
)
def test_invalid_programs_are_refused(make, message):
    with pytest.raises(UsageError) as error:
        make()
    assert message in str(error.value)


def test_a_variable_that_no_shape_determines_is_refused():
    shift = te.var("shift", "float32")
    moved = te.compute((4,), lambda i: B[i] + shift, "moved")
    with pytest.raises(DlcError, match="shift"):
        dlc.build([B, moved], TARGET)(Y)


def test_lowering_stops_before_a_pass():
    s = staged()
    blocks = dlc.lower(s, [A, B, C], before="lower_blocks", name="add")
    assert [b.name for b in block_list(blocks["add"].body)] == ["twice", "C"]
    loops = dlc.lower(s, [A, B, C], before="flatten_buffers", name="add")["add"]
    assert [b.ndim for b in loops.buffers] == [2, 1, 2]
    assert any(isinstance(x, For) and x.kind == "vectorized" for x in stmts(loops.body))
    whole = dlc.lower(s, [A, B, C], name="add")
    assert [b.ndim for b in whole["add"].buffers[:3]] == [1, 1, 1]
    for module in (blocks, IRModule({"add": loops}), whole):
        verify_module(module)
        text = module.script()
        assert "def add(" in text
        assert set(parse(text).functions) == {"add"}
    out = np.zeros_like(X)
    run(loops, X, Y, out, check=True)
    np.testing.assert_array_equal(out, X * 2 + Y)


def test_lowering_for_a_target_chooses_a_schedule():
    k = te.reduce_axis(64, "k")
    a, b = te.placeholder((64, 64), name="A"), te.placeholder((64, 64), name="B")
    c = te.compute((64, 64), lambda i, j: te.sum(a[i, k] * b[k, j], axis=k), "C")
    plain, chosen = (dlc.lower([a, b, c], target=t, before="lower_blocks")["main"] for t in (None, TARGET))
    assert not [s for s in stmts(plain.body) if isinstance(s, Alloc)]
    assert all(s.kind == "serial" for s in stmts(plain.body) if isinstance(s, For))
    assert isinstance(chosen, PrimFunc)


def test_parameters_in_another_layout_are_refused():
    schedule = Schedule(te.create_prim_func([N, A, B, C]))
    schedule.transform_layout(schedule.get_block("twice"), "A", lambda i, j: (j, i))
    with pytest.raises(UsageError, match="requires A in another layout"):
        dlc.build(schedule, TARGET)


@pytest.mark.parametrize(
    "make", [lambda target: dlc.build(C, target), lambda target: dlc.lower(C, target=target)]
)
def test_targets_without_a_code_generator_are_refused(make):
    kind = TargetKind("acme", "parts of graphs alone", codegen="", device="acme")
    with pytest.raises(UsageError, match="has no code generator"):
        make(Target(kind))
