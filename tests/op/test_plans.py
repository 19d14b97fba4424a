"""Plans of nodes choose the kernel, change no result, and round-trip through text, JSON and files."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import pytest

import dlc_core as dlc
from dlc_core import te
from dlc_core.diag import ArtifactError, ScriptError, TypeInferenceError, UnsupportedError, UsageError
from dlc_core.driver.key import model_digest
from dlc_core.graph.node import Function, Node, make_tuple, node, param
from dlc_core.hooks import hookimpl
from dlc_core.ir.module import IRModule
from dlc_core.ir.plan import Plan, UnknownPlan
from dlc_core.ir.structural import first_difference, structural_equal, structural_hash
from dlc_core.ir.types import tensor_type
from dlc_core.op import std
from dlc_core.op.lower import lower_node
from dlc_core.op.reference import evaluate
from dlc_core.op.std.programs import call_tir
from dlc_core.passes import PassContext
from dlc_core.passes.graph import ExpandComposites, Fuse
from dlc_core.passes.lower import LowerGroups
from dlc_core.passes.pipeline import Pipeline
from dlc_core.plugin.registry import fresh_registry, registry
from dlc_core.script import from_json, parse, script, to_json
from dlc_core.target import Description
from dlc_core.testing.schedules import target_of
from dlc_core.tir.interpreter import run
from dlc_core.tir.stmt import PrimFunc

X = np.arange(-3, 3, dtype=np.float32).reshape(2, 3)


@dataclass(frozen=True)
class Steps(Plan):
    """Computes `count` additions of x / count for any op. It is right for ops that are x for x > 0."""

    name: ClassVar[str] = "acme.steps"
    count: int
    tail: bool = False
    note: str = ""

    def lower(self, type_: Any, attrs: Mapping[str, Any], x: te.Tensor) -> te.Tensor:
        assert "plan" not in attrs
        part = te.compute(type_.shape, lambda *i: x[i] * (1 / self.count), "part")

        def total(*i: Any) -> Any:
            return sum((part[i] for _ in range(self.count - 1)), part[i])

        return te.compute(type_.shape, total, "total")


class Acme:
    """A plugin with the plan."""

    DLC_API = "0.1"

    @hookimpl
    def dlc_plans(self) -> list[type[Plan]]:
        return [Steps]


@pytest.fixture
def plugin() -> Iterator[None]:
    with fresh_registry({"acme": Acme()}):
        yield


def planned(*plans: Plan | None) -> IRModule:
    x = param("x", tensor_type(X.shape))
    body = make_tuple([std.abs(x, plan=plan) for plan in plans])
    return IRModule({"main": Function("main", (x,), body)})


def kernels(module: IRModule) -> list[PrimFunc]:
    context = PassContext(target=target_of(Description()))
    lowered = Pipeline((Fuse(), LowerGroups())).run(module, context)
    return list(lowered.of_kind(PrimFunc).values())


@pytest.mark.parametrize("plan", [Steps(2), Steps(3, True, 'a "note", of\ntwo lines')])
def test_text_and_json_round_trip(plugin: None, plan: Plan) -> None:
    module = planned(plan, None)
    module = module.with_functions(
        {**module.functions, "kernel": lower_node(module["main"].body.args[0], "kernel")}
    )
    text = script(module)
    assert text.count("G.plan(") == 2
    for read in (
        parse(text, ops=registry().ops),
        from_json(json.loads(json.dumps(to_json(module))), registry().ops),
    ):
        assert first_difference(module, read) is None
        assert structural_hash(module) == structural_hash(read)
        assert script(read) == text
        assert read["main"].body.args[0].attrs["plan"] == plan
        assert read["kernel"].attrs["plan"] == plan


def test_unknown_plan_round_trips_and_is_not_lowered() -> None:
    module = planned(Steps(2, note="n"))
    read = parse(script(module), ops=registry().ops)
    assert isinstance(read, IRModule)
    assert read["main"].body.args[0].attrs["plan"] == UnknownPlan(
        "acme.steps", (("count", 2), ("tail", False), ("note", "n"))
    )
    assert first_difference(module, read) is None
    assert first_difference(module, from_json(to_json(read))) is None
    np.testing.assert_array_equal(evaluate(read["main"], [X])[0], np.abs(X))
    with pytest.raises(UnsupportedError, match=r"no plugin gives the plan 'acme\.steps'"):
        kernels(read)


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ('"acme.steps", count=2', "with count"),
        ('"acme.steps", count=2, tail=False, note="", more=1', "with count, tail, note, more"),
        ('"acme.steps", count=True, tail=False, note=""', "count is True"),
        ('"acme.steps", count=2, tail=0, note=""', "tail is 0"),
        ('"acme.other", count=2.0', "count is a float"),
        ("count=2", "a plan's name is a string"),
    ],
)
def test_refuses_wrong_fields(plugin: None, fields: str, message: str) -> None:
    text = script(planned(Steps(2)))
    begin = text.index('"acme.steps"')
    with pytest.raises(ScriptError, match=message):
        parse(text[:begin] + fields + text[text.index(")", begin) :], ops=registry().ops)


@pytest.mark.parametrize("values", [["m", [["count", 2]]], ["m", [["count", "2"]]], 3])
def test_refuses_malformed_json(plugin: None, values: Any) -> None:
    data = json.loads(json.dumps(to_json(planned(Steps(2)))))
    (record,) = (each for each in data["records"] if each["k"] == "plan")
    record["values"] = values
    with pytest.raises(ArtifactError):
        from_json(data, registry().ops)


def test_refuses_fields_of_wrong_types() -> None:
    for wrong in (lambda: Steps(2.0), lambda: Steps(True), lambda: Steps(2, note=3)):  # type: ignore[arg-type]
        with pytest.raises(UsageError, match=r"the plan 'acme\.steps'"):
            wrong()
    with pytest.raises(UsageError, match="has ints, bools and texts"):
        UnknownPlan("acme.steps", (("count", 2.0),))  # type: ignore[arg-type]
    with pytest.raises(TypeInferenceError, match="abs: the plan is a str"):
        std.abs(param("x", tensor_type((2,))), plan="quick")


def test_nodes_with_different_plans_are_different() -> None:
    x = param("x", tensor_type(X.shape))
    assert std.abs(x, plan=Steps(2)) is std.abs(x, plan=Steps(2))
    assert std.abs(x, plan=None) is std.abs(x)
    others = [
        UnknownPlan("acme.steps", (("count", 2),)),
        UnknownPlan("acme.steps", (("count", True),)),
        Steps(3),
    ]
    nodes = [std.abs(x), std.abs(x, plan=Steps(2)), *(std.abs(x, plan=plan) for plan in others)]
    assert len(set(nodes)) == 5
    assert not structural_equal(planned(Steps(2)), planned(Steps(3)))
    difference = first_difference(planned(Steps(2)), planned(Steps(3)))
    assert difference is not None
    assert ".count" in difference
    keys = {model_digest(planned(plan), None, None) for plan in (None, Steps(2), Steps(3), Steps(2, True))}
    assert len(keys) == 4


def test_plan_lowers_its_node() -> None:
    x = param("x", tensor_type(X.shape))
    func = lower_node(std.abs(x, plan=Steps(3)))
    assert func.attrs["plan"] == Steps(3)
    found = np.zeros_like(X)
    run(func, np.abs(X), found)
    np.testing.assert_allclose(found, np.abs(X), 1e-6)
    assert "plan" not in lower_node(std.abs(x)).attrs


def test_equal_plans_share_a_kernel() -> None:
    x, y = (param(name, tensor_type(X.shape)) for name in "xy")
    nodes = [std.abs(x, plan=Steps(2)), std.abs(y, plan=Steps(2)), std.abs(x, plan=Steps(3)), std.abs(x)]
    found = kernels(IRModule({"main": Function("main", (x, y), make_tuple(nodes))}))
    assert [func.attrs.get("plan") for func in found] == [Steps(2), Steps(3), None]
    # Plans that make the same loops are different kernels, too: a rule may schedule them differently.
    assert len(kernels(planned(Steps(2), Steps(2, True)))) == 2


def test_kernel_of_several_plans_has_no_plan() -> None:
    x = param("x", tensor_type(X.shape))
    body = std.abs(std.abs(x, plan=Steps(2)), plan=Steps(3))
    (func,) = kernels(IRModule({"main": Function("main", (x,), body)}))
    assert "plan" not in func.attrs


def test_called_kernel_keeps_its_plan() -> None:
    x = param("x", tensor_type(X.shape))
    planned_kernel, plain = lower_node(std.abs(x, plan=Steps(3))), lower_node(std.abs(x))
    for func, plan in ((planned_kernel, Steps(3)), (plain, None)):
        (found,) = kernels(IRModule({"main": Function("main", (x,), call_tir(func, x))}))
        assert found.attrs.get("plan") == plan
    twice = call_tir(planned_kernel, call_tir(planned_kernel, x))
    assert all("plan" not in f.attrs for f in kernels(IRModule({"main": Function("main", (x,), twice)})))


def test_results_do_not_depend_on_a_plan() -> None:
    x = param("x", tensor_type(X.shape))
    for decl, attrs in ((std.BY_NAME["flatten"], {"axis": 1}), (std.BY_NAME["softmax"], {"axis": 1})):
        plain, with_plan = decl.build(x, **attrs), decl.build(x, **attrs, plan=Steps(2))
        assert plain.type == with_plan.type
        assert decl.expand([x], with_plan.attrs) is decl.expand([x], plain.attrs)
        np.testing.assert_array_equal(evaluate(with_plan, {x: X}), evaluate(plain, {x: X}))
    again = node(
        with_plan.op,
        with_plan.args,
        {name: v for name, v in with_plan.attrs.items() if name != "plan"},
        with_plan.type,
    )
    assert again is plain


def test_composite_with_a_plan_is_not_expanded() -> None:
    x = param("x", tensor_type(X.shape))

    def expanded(value: Node) -> str:
        return ExpandComposites().run_function(Function("main", (x,), value), PassContext()).body.op.name

    assert expanded(std.flatten(x, axis=1)) == "reshape"
    assert expanded(std.flatten(x, axis=1, plan=Steps(2))) == "flatten"


def test_saved_model_keeps_plans(plugin: None, tmp_path: Any) -> None:
    exe = dlc.compile(planned(Steps(2)), "reference", cache=False)
    exe.save(tmp_path / "model.dlc")
    again = dlc.open(tmp_path / "model.dlc")
    np.testing.assert_array_equal(again(X), np.abs(X))
