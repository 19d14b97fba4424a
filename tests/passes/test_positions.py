"""Passes of users: functions made passes, and their positions in compiles."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np
import pytest

import dlc_core as dlc
from dlc_core import driver, te
from dlc_core.diag import UsageError
from dlc_core.driver import CompileRequest, stages
from dlc_core.driver.cache import cache_key
from dlc_core.driver.key import key_parts
from dlc_core.ir.module import IRModule
from dlc_core.passes import Pass, PassContext, Pipeline, default_pipeline
from dlc_core.passes.lower import single
from dlc_core.passes.positions import PHASES, insert_passes, read_position
from dlc_core.passes.tir import PASSES
from dlc_core.passes.tir.base import PrimFuncPass, map_prim_funcs, prim_func_pass
from dlc_core.tir.functor import block_list, stmts, transform_stmt
from dlc_core.tir.stmt import For, PrimFunc, Stmt, Store

SEEN: list[tuple[str, int, int]] = []
"""Observations of passes: label, number of blocks, dims of the last parameter."""


@prim_func_pass()
def look(func: PrimFunc, *, label: str = "") -> PrimFunc:
    """Record the stage of a program."""
    SEEN.append((label, len(block_list(func.body)), func.buffers[-1].ndim))
    return func


@prim_func_pass(name="add_to_stores", position="final", exact=False)
def added(func, *, amount: float = 1.0, context: PassContext) -> PrimFunc:
    def visit(stmt: Stmt) -> Stmt | None:
        return Store(stmt.buffer, stmt.indices, stmt.value + amount) if isinstance(stmt, Store) else None

    assert context.opt_level <= 3
    return replace(func, body=transform_stmt(func.body, stmt_fn=visit))


def doubled(rows: int = 4, columns: int = 4) -> PrimFunc:
    a = te.placeholder((rows, columns), name="A")
    return te.create_prim_func([a], [te.compute((rows, columns), lambda i, j: a[i, j] * 2.0, "B")], "twice")


@pytest.fixture(autouse=True)
def fresh():
    SEEN.clear()


def test_functions_become_pass_classes_with_options():
    assert issubclass(look, PrimFuncPass)
    assert str(look(label="x")) == 'look{label="x"}'
    assert Pipeline.parse('look{label="y"}', [look]).passes == (look(label="y"),)
    assert (added.name, added.stage, added.exact) == ("add_to_stores", "tir", False)
    assert look.__doc__ == "Record the stage of a program."


def test_passes_are_called_with_programs_and_modules():
    func = doubled()
    assert look(label="a")(func) is func
    module = IRModule({"f": func, "g": doubled(2)})
    assert look(label="b")(module) is module
    assert SEEN == [("a", 1, 2), ("b", 1, 2), ("b", 1, 2)]
    with PassContext(opt_level=1):
        assert added(amount=2.0)(func) is not func
    assert map_prim_funcs(module, lambda f: replace(f, attrs={"seen": True}))["g"].attrs == {"seen": True}


@pytest.mark.parametrize(
    "function",
    [lambda: None, lambda *, func: func, lambda func, width: func, lambda func, *, width: func],
    ids=["none", "by name", "by place", "no default"],
)
def test_functions_that_do_not_fit_are_refused(function):
    with pytest.raises(UsageError, match="does not fit as a pass"):
        prim_func_pass()(function)


def test_a_pass_must_return_a_program():
    with pytest.raises(UsageError, match=r"'nothing' returns a NoneType for twice"):
        prim_func_pass(name="nothing")(lambda func: None)()(doubled())


def test_phases_see_programs_at_their_stages():
    order = ("scheduled", "loops", "flat", "final")
    assert tuple(PHASES) == order
    with PassContext(passes=[(phase, look(label=phase)) for phase in order]):
        exe = dlc.build(doubled())
    array = np.ones((4, 4), "float32")
    assert (np.asarray(exe(array)) == 2).all()
    assert [label for label, _, _ in SEEN] == list(order)
    assert [blocks for _, blocks, _ in SEEN] == [1, 0, 0, 0]
    assert [dims for _, _, dims in SEEN] == [2, 2, 1, 1]


def test_classes_say_their_position_themselves():
    with PassContext(passes=[added(amount=3.0)]):
        exe = dlc.build(doubled())
        assert str(driver.pipelines(exe.target)["tir"]).endswith("| add_to_stores{amount=3.0}")
    assert (np.asarray(exe(np.ones((4, 4), "float32"))) == 5).all()
    assert (np.asarray(dlc.build(doubled())(np.ones((4, 4), "float32"))) == 2).all()


def test_classes_of_plugins_have_positions():
    order = str(default_pipeline("tir", [*PASSES, added, look]))
    assert order.endswith(" | add_to_stores")
    assert "look" not in order


def test_the_text_of_sources_is_made_with_the_same_passes():
    with PassContext(passes=[added(amount=3.0)]):
        exe = dlc.build(doubled())
    assert "3.0" in exe.source("tir")


@dataclass(frozen=True)
class Named(Pass):
    name: ClassVar[str] = "a"
    stage: ClassVar[str] = "tir"
    label: str = ""

    def run(self, module, context):
        return module


def placed(*pairs: tuple[str, str]) -> str:
    stages = {"graph": [], "tir": [look(), added(), look()]}
    result = insert_passes(stages, [(where, Named(label)) for where, label in pairs])["tir"]
    return " ".join(p.label or p.name if isinstance(p, Named) else p.name[0] for p in result)


@pytest.mark.parametrize(
    ("pairs", "order"),
    [
        ([("begin tir", "x"), ("begin tir", "y")], "x y l a l"),
        ([("end tir", "x"), ("end tir", "y")], "l a l x y"),
        ([("before look", "x"), ("before look", "y")], "x y l a l"),
        ([("after look", "x"), ("after look", "y")], "l a l x y"),
        ([("after add_to_stores", "x"), ("before add_to_stores", "y")], "l y a x l"),
    ],
)
def test_order_at_a_position_is_that_of_the_list(pairs, order):
    assert placed(*pairs) == order


@pytest.mark.parametrize(
    ("where", "message"),
    [
        ("lops", "did you mean 'loops'"),
        ("behind look", "is no position"),
        ("after", "is no position"),
        ("after nothing", "there is no pass 'nothing' after which 'a' could run"),
        ("end code", "there is no stage 'code'"),
    ],
)
def test_positions_that_are_not_there_are_refused(where, message):
    with pytest.raises(UsageError) as caught:
        placed((where, "x"))
    assert message in str(caught.value)


def test_positions_are_read():
    assert read_position("loops") == ("after", "lower_blocks")
    assert read_position("end graph") == ("end", "graph")


@pytest.mark.parametrize("wrong", [Named, ("loops", "text"), (1, Named())])
def test_contexts_take_passes_and_pairs(wrong):
    with pytest.raises(UsageError, match=r"PassContext\.passes"):
        PassContext(passes=[wrong])


def test_a_pass_without_a_position_is_refused():
    target = driver.find_target(None)
    with pytest.raises(UsageError, match="'a' has no position"):
        driver.pipelines(target, PassContext(passes=[Named()]))


def test_the_cache_key_contains_the_passes():
    target = driver.find_target(None)
    module = single.single_module(doubled())

    def key(*passes) -> str | None:
        with driver.context_for(target).with_(passes=passes):
            parts = key_parts(module, CompileRequest.of(target))
        return None if parts is None else cache_key(parts)

    plain = key()
    assert plain is not None
    assert plain == key()
    assert len({plain, key(added()), key(added(amount=2.0)), key(("loops", added()))}) == 4
    assert key(added()) == key(added())
    # Code without an importable name may be different code in the next process.
    assert key(prim_func_pass(position="loops")(lambda func: func)()) is None


def test_loops_can_be_changed_between_the_default_passes():
    @prim_func_pass(position="before unroll_loops")
    def unroll_all(func: PrimFunc) -> PrimFunc:
        def visit(s: Stmt) -> Stmt | None:
            return replace(s, kind="unrolled") if isinstance(s, For) else None

        return replace(func, body=transform_stmt(func.body, stmt_fn=visit))

    with PassContext(passes=[unroll_all()], disabled=("schedule_kernels",)):
        exe = dlc.build(doubled())
        module = stages.lower(single.single_module(doubled()), driver.context_for(exe.target))[0]
    assert not [s for s in stmts(module["twice"].body) if isinstance(s, For)]
    assert (np.asarray(exe(np.ones((4, 4), "float32"))) == 2).all()
