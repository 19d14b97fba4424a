"""Passes, contexts and the text of pipelines."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

import pytest

from dlc_core.diag import PassError, Span, UsageError
from dlc_core.graph.node import Function, Op, call_function, functions_of, node, param
from dlc_core.ir.module import IRModule
from dlc_core.ir.types import tensor_type
from dlc_core.passes import GraphPass, Pass, PassContext, Pipeline, default_pipeline
from dlc_core.passes.base import format_value, map_functions
from dlc_core.passes.default_pipelines import PIPELINES
from dlc_core.passes.positions import insert_classes
from dlc_core.plugin.registry import registry
from dlc_core.testing import Golden


@dataclass(frozen=True)
class Plain(Pass):
    name: ClassVar[str] = "plain"

    def run(self, module, context):
        return module.with_attrs(ran=(*module.attrs.get("ran", ()), str(self)))


@dataclass(frozen=True)
class Options(Plain):
    name: ClassVar[str] = "options"
    min_level: ClassVar[int] = 2
    count: int = 8
    ratio: float = 0.5
    loud: bool = False
    layout: str = "NCX"
    keep: tuple[str, ...] = ()
    pair: tuple[int, float] = (1, 2.0)
    limit: int | None = None


@dataclass(frozen=True)
class Failing(Plain):
    name: ClassVar[str] = "failing"

    def run(self, module, context):
        raise UsageError("no kernel", spans=[Span("m.onnx", "conv1")], hint="write one", details=["x = 1"])


@dataclass(frozen=True)
class Crashing(Failing):
    name: ClassVar[str] = "crashing"

    def run(self, module, context):
        raise ZeroDivisionError("division by zero")


PASSES = list(registry().passes.values())
KNOWN = {cls.name: cls for cls in (Plain, Options, Failing, Crashing)}


@pytest.mark.parametrize(
    "text",
    [
        "",
        "plain",
        "plain | plain",
        "options{count=64}",
        'options{count=-3, ratio=1e-05, loud=True, layout="NXC"} | plain',
        'options{keep=("softmax",)}',
        'options{keep=("a b", "quote \\" back \\\\ line \\n"), pair=(2, -0.5), limit=7}',
        "plain | options{ratio=inf}",
    ],
)
def test_text_prints_back_identically(text):
    pipeline = Pipeline.parse(text, KNOWN)
    assert str(pipeline) == text
    assert Pipeline.parse(str(pipeline), KNOWN) == pipeline


def test_spaces_trailing_commas_and_defaults_are_dropped():
    text = " plain|options{ count = 8,ratio=2, loud=true , keep=('a',), }\n| plain "
    assert (
        str(Pipeline.parse(text, KNOWN.values()))
        == 'plain | options{ratio=2.0, loud=True, keep=("a",)} | plain'
    )


@pytest.mark.parametrize(
    ("text", "column", "message", "hint"),
    [
        ("plain | optoins", 9, "there is no pass 'optoins'", "did you mean 'options'"),
        ("zzzzzz", 1, "there is no pass 'zzzzzz'", "known passes: crashing, failing, options, plain"),
        ("options{cuont=1}", 9, "no option 'cuont'", "did you mean 'count'"),
        ("plain{count=1}", 7, "no option 'count'", "has no options"),
        ("options{count=1.5}", 15, "is 1.5", "it must be int"),
        ("options{count=True}", 15, "is True", "it must be int"),
        ("options{layout=NXC}", 16, "a value expected, not 'NXC'", "double quotes"),
        ("options{keep=(1, 2)}", 14, "is (1, 2)", "it must be tuple[str, ...]"),
        ("options{pair=(1,)}", 14, "is (1,)", "it must be"),
        ("options{count=1, count=2}", 18, "given twice", ""),
        ("options{count=1 ratio=2}", 17, "',' expected between options, not 'ratio'", ""),
        ("options{count=1", 16, "',' expected between options, not 'the end'", ""),
        ("options{count}", 14, "'=' expected", ""),
        ("plain plain", 7, "'|' expected between passes", ""),
        ("plain |", 8, "the name of a pass expected, not 'the end'", ""),
        ("| plain", 1, "the name of a pass expected, not '|'", ""),
        ("plain ; plain", 7, "'|' expected between passes, not ';'", ""),
    ],
)  # fmt: skip
def test_errors_point_at_the_position_in_the_text(text, column, message, hint):
    with pytest.raises(PassError) as caught:
        Pipeline.parse(text, KNOWN)
    assert f"column {column}: " in caught.value.what
    assert message in caught.value.what
    assert hint in caught.value.hint
    assert caught.value.details[1] == " " * (column - 1) + "^"


def test_errors_name_the_line_of_long_texts():
    with pytest.raises(PassError, match="line 2, column 3"):
        Pipeline.parse("plain |\n  nope", KNOWN)


def test_values_without_text_are_refused():
    with pytest.raises(UsageError, match="cannot be an option"):
        format_value({1: 2})


def test_passes_run_in_order_within_level_and_not_when_disabled():
    pipeline = Pipeline.parse("plain | options{count=1} | plain", KNOWN)
    assert pipeline.run(IRModule()).attrs["ran"] == ("plain", "options{count=1}", "plain")
    assert pipeline.run(IRModule(), PassContext(opt_level=1)).attrs["ran"] == ("plain", "plain")
    assert pipeline.run(IRModule(), PassContext(disabled=("plain",))).attrs["ran"] == ("options{count=1}",)
    with PassContext(disabled=("options",)):
        assert pipeline.run(IRModule()).attrs["ran"] == ("plain", "plain")


def test_contexts_nest_and_are_immutable():
    assert PassContext.current().opt_level == 3
    outer = PassContext(opt_level=1, config={"a": 1})
    with outer:
        with PassContext.current().with_(opt_level=2, config={"b": 2}) as inner:
            assert PassContext.current() is inner
            assert dict(inner.config) == {"a": 1, "b": 2}
            with outer:
                assert PassContext.current() is outer
            assert PassContext.current() is inner
        assert PassContext.current() is outer
    assert PassContext.current().opt_level == 3
    with pytest.raises(UsageError, match="no field 'optlevel'"):
        outer.with_(optlevel=2)
    with pytest.raises(UsageError, match="is text"):
        PassContext(disabled="fuse")
    with pytest.raises(TypeError):
        outer.config["a"] = 2


def test_the_pass_sees_the_running_context_as_the_current_one():
    seen = []

    @dataclass(frozen=True)
    class Look(Plain):
        name: ClassVar[str] = "look"

        def run(self, module, context):
            seen.append(PassContext.current() is context)
            return module

    Pipeline((Look(),)).run(IRModule(), PassContext(opt_level=2))
    assert seen == [True]


def test_a_failing_pass_is_named_with_the_rest_of_the_pipeline(tmp_path):
    x = param("x", tensor_type((2,)))
    module = IRModule({"main": Function("main", (x,), x)})
    pipeline = Pipeline.parse("plain | failing | plain", KNOWN)
    context = PassContext(target="acme -width=4", config={"reproducer_dir": tmp_path / "r"})
    with pytest.raises(PassError) as caught:
        pipeline.run(module, context)
    error = caught.value
    assert error.what == "pass 'failing' failed: no kernel"
    assert error.spans == (Span("m.onnx", "conv1"),)
    assert error.hint == "write one"
    assert error.details[:2] == ("pipeline: failing | plain", "x = 1")
    (file,) = (tmp_path / "r").iterdir()
    assert str(file) in error.details[2]
    text = file.read_text()
    for part in (
        "# pipeline: failing | plain",
        "# target: acme -width=4",
        "# dlc ",
        "no kernel",
        "def main(",
    ):
        assert part in text


def test_a_crash_is_reported_as_a_defect_of_the_pass():
    with pytest.raises(PassError, match="pass 'crashing' failed: division by zero") as caught:
        Pipeline((Crashing(),)).run(IRModule())
    assert "ZeroDivisionError" in caught.value.why
    assert isinstance(caught.value.__cause__, ZeroDivisionError)


def plugin(name_, *, stage_="graph", level=0, after_=(), before_=()):
    @dataclass(frozen=True)
    class Made(Plain):
        name: ClassVar[str] = name_
        stage: ClassVar[str] = stage_
        min_level: ClassVar[int] = level
        after: ClassVar[str | tuple[str, ...]] = after_
        before: ClassVar[str | tuple[str, ...]] = before_

    return Made


@pytest.mark.parametrize(
    ("extra", "order"),
    [
        ([], "x y x"),
        ([plugin("a", after_="y")], "x y a x"),
        ([plugin("a", after_=("x",))], "x y x a"),
        ([plugin("a", before_="y")], "x a y x"),
        ([plugin("a", before_="x")], "a x y x"),
        ([plugin("a", after_="x", before_="y")], "x a y x"),
        ([plugin("a", after_="begin")], "a x y x"),
        ([plugin("a", before_="end")], "x y x a"),
        ([plugin("b", after_="y"), plugin("a", after_="y")], "x y a b x"),
        ([plugin("a", after_="b"), plugin("b", after_="y")], "x y b a x"),
        ([plugin("a")], "x y x"),
        ([plugin("y", after_="begin")], "x y x"),
    ],
)
def test_inserts_classes_at_their_positions(extra, order):
    assert " ".join(insert_classes(["x", "y", "x"], extra)) == order
    assert " ".join(insert_classes(["x", "y", "x"], list(reversed(extra)))) == order


def test_refuses_contradictory_positions():
    with pytest.raises(PassError, match="'a' has no position") as caught:
        insert_classes(["x", "y"], [plugin("a", after_="y", before_="x")])
    assert "follows 'y' and precedes 'x'" in caught.value.why
    with pytest.raises(PassError, match="'a' runs after 'b', 'b' runs after 'a'"):
        insert_classes(["x"], [plugin("a", after_="b"), plugin("b", after_="a")])
    with pytest.raises(PassError, match="runs after 'fusee'") as caught:
        insert_classes(["fuse"], [plugin("a", after_="fusee")])
    assert "did you mean 'fuse'?" in caught.value.hint


def test_refuses_numeric_positions():
    with pytest.raises(UsageError, match="numeric position") as caught:
        type("Old", (Plain,), {"name": "old", "place": (15.5,)})
    assert 'after = "NAME"' in caught.value.hint


def test_default_pipelines_take_plugins_of_their_stage_and_level():
    classes = [*PASSES, plugin("a", after_="dead_code"), plugin("b", stage_="tir", before_="end")]
    assert "dead_code | a | stream_rows" in str(default_pipeline("graph", classes))
    assert " b |" not in str(default_pipeline("graph", classes))
    assert str(default_pipeline("tir", classes)).endswith(" | b")
    high = [plugin("first", after_="begin"), plugin("later", level=2, after_="begin")]
    assert str(default_pipeline("graph", high, opt_level=1)) == "first"


def test_the_lists_name_passes_of_their_stage_only():
    known = {cls.name: cls for cls in PASSES}
    for stage, names in PIPELINES.items():
        assert {known[name].stage for name in names} == {stage}


def test_the_text_of_the_default_pipelines(bless):
    """The pipeline of each stage, at level 0 and at each level that changes it."""
    lines = []
    for stage in PIPELINES:
        texts = [str(default_pipeline(stage, PASSES, level)) for level in range(4)]
        lines += [f"{stage} {n}: {text}" for n, text in enumerate(texts) if n == 0 or text != texts[n - 1]]
    Golden(Path(__file__).parent / "golden", bless=bless).check("pipelines.txt", "\n".join(lines) + "\n")


STEP = Op("step")


def test_functions_in_attributes_are_mapped_once_and_innermost_first():
    t = tensor_type((2,))
    a, b, x = (param(n, t) for n in "abx")
    inner = Function("inner", (a,), node(STEP, (a,), {}, t))
    middle = Function("middle", (b,), node(Op("loop"), (b,), {"body": inner}, t))
    loop = Op("loop")
    first = node(loop, (x,), {"body": middle}, t)
    body = node(loop, (call_function(inner, [first]),), {"body": middle, "times": 2}, t)
    module = IRModule({"main": Function("main", (x,), body)})
    order = []

    @dataclass(frozen=True)
    class Mark(GraphPass):
        name: ClassVar[str] = "mark"

        def run_function(self, function, context):
            order.append(function.name)
            return function.with_attrs(seen=True)

    result = Mark().run(module, PassContext())["main"]
    assert order == ["inner", "middle", "main"]
    new_middle = result.body.attrs["body"]
    assert new_middle.attrs["seen"]
    assert result.body.attrs["times"] == 2
    call = result.body.args[0]
    assert call.attrs["function"] is inner  # groups are left alone
    assert call.args[0].attrs["body"] is new_middle
    (new_inner,) = functions_of(new_middle.body)
    assert new_inner.attrs["seen"]
    order.clear()
    grouped = map_functions(module, lambda f: f.with_attrs(seen=True), groups=True)["main"]
    assert grouped.body.args[0].attrs["function"].attrs["seen"]
    assert map_functions(module, lambda f: f) is module
