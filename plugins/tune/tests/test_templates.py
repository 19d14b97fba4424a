"""Templates: spaces that are a function of a schedule with knobs."""

from __future__ import annotations

import random

import pytest
from dlc_tune.choices import Question, defaults, replay
from dlc_tune.space import Candidate, Invalid, candidate
from dlc_tune.spaces.checks import check_point
from dlc_tune.spaces.templates import Config, template
from dlc_tune.strategies import grid
from dlc_tune.task import Task

import dlc_core as dlc
from dlc_core import te
from dlc_core.diag import ScheduleError
from dlc_core.hooks import hookimpl
from dlc_core.plugin.registry import fresh_registry, registry
from dlc_core.schedule import Schedule
from dlc_core.tir.stmt import PrimFunc

MACHINE = "c -mcpu=cortex-a72"


def product(m: int = 32, n: int = 48, k: int = 40, name: str = "product") -> PrimFunc:
    """A GEMM with relu."""
    a, b, axis = te.placeholder((m, k), name="a"), te.placeholder((k, n), name="b"), te.reduce_axis(k, "k")
    c = te.compute((m, n), lambda i, j: te.sum(a[i, axis] * b[axis, j], axis=axis), "c")
    return te.create_prim_func([a, b], [te.compute((m, n), lambda i, j: te.maximum(c[i, j], 0.0), "d")], name)


def task_of(func: PrimFunc) -> Task:
    return Task(func, dlc.Target(MACHINE))


@pytest.fixture
def task() -> Task:
    return task_of(product())


@template("acme.gemm", like=product())
def gemm(s, cfg):
    """Tiles of a GEMM with its epilogue."""
    c, d = s.get_block("c"), s.get_block("d")
    y, x = s.get_loops(d)
    cfg.define_split("tile_y", y, num_outputs=2, max_factor=8)
    cfg.define_split("tile_x", x, num_outputs=3, max_factor=16)
    cfg.define_knob("unroll", [1, 4])
    yo, yi = cfg["tile_y"].apply(s, y)
    xo, xm, xi = cfg["tile_x"].apply(s, x)
    s.reorder(yo, xo, xm, yi, xi)
    s.compute_at(c, xm)
    *_, k = s.get_loops(c)
    if cfg["unroll"].value > 1:
        s.unroll(s.split(k, [None, cfg["unroll"].val], tail="exact")[1])
    cfg.define_annotate("outer", [yo], policy="parallel").apply(s, [yo])
    cfg.define_annotate("inner", [yi, xi], policy="try_unroll_vec").apply(s, [yi, xi])


def test_points_of_a_template_keep_results(task: Task) -> None:
    assert gemm.fits(task) == ""
    assert gemm.about == "Tiles of a GEMM with its epilogue."
    rng = random.Random(0)
    answers = [defaults, *[lambda question: rng.randrange(len(question.options))] * 6]
    made = [check_point(gemm, task, answer) for answer in answers]
    assert all(isinstance(each, Candidate) for each in made)
    assert len({str(each.trace) for each in made if isinstance(each, Candidate)}) > 3


def test_questions_have_the_factors(task: Task) -> None:
    made = candidate(gemm, task, defaults)
    asked = {question.name: question for question in made.questions}
    assert list(asked) == ["tile_y", "tile_x", "unroll", "outer", "inner"]
    assert asked["tile_y"].options == ("1", "2", "4", "8")
    assert "3x16" in asked["tile_x"].options
    assert "4x16" not in asked["tile_x"].options  # 64 does not divide 48
    assert asked["unroll"].options == ("1", "4")


def test_a_template_fits_kernels_of_its_structure() -> None:
    assert gemm.fits(task_of(product(16, 32, 8, "other"))) == ""
    a = te.placeholder((8, 8), name="a")
    other = te.create_prim_func([a], [te.compute((8, 8), lambda i, j: a[i, j] + 1.0, "c")])
    assert "another structure" in gemm.fits(task_of(other))


def test_a_point_is_replayed_on_another_size(task: Task) -> None:
    made = check_point(gemm, task, replay({"tile_y": "8", "tile_x": "1x8", "unroll": "4"}))
    other = check_point(gemm, task_of(product(16, 32, 8)), replay(made.point))
    assert {**made.point} == {**other.point}


def test_a_template_without_a_condition_fits_if_its_defaults_are_legal(task: Task) -> None:
    @template("acme.any")
    def any_kernel(s, cfg):
        a, b = s.get_loops(s.get_blocks()[-1])
        cfg.define_reorder("order", [a, b]).apply(s, [a, b])

    assert any_kernel.fits(task) == ""
    x = te.placeholder((8,), name="x")
    vector = te.create_prim_func([x], [te.compute((8,), lambda i: x[i] * 2.0, "y")])
    assert "not enough values" in any_kernel.fits(task_of(vector))
    made = candidate(any_kernel, task_of(vector), defaults)
    assert isinstance(made, Invalid)
    assert "acme.any" in made.why


def test_conditions_are_asked(task: Task) -> None:
    @template("acme.large", when=lambda func: func.name == "large")
    def large(s, cfg):
        cfg.define_knob("nothing", [0])

    assert "condition" in large.fits(task)
    assert large.fits(task_of(product(name="large"))) == ""


def config_of(options: dict[str, Question]) -> tuple[Schedule, Config]:
    """A configuration that keeps its questions and answers with the last option."""
    task = task_of(product())
    schedule = task.schedule()

    def choose(name, given, default=None):
        texts = tuple(map(str, given))
        options[name] = Question(name, texts, 0 if default is None else texts.index(str(default)))
        return given[-1]

    return schedule, Config(schedule, choose, task)  # type: ignore[arg-type]


def test_policies() -> None:
    asked: dict[str, Question] = {}
    s, cfg = config_of(asked)
    y, x = s.get_loops(s.get_block("d"))
    assert cfg.description.lanes(32) == 4
    cfg.define_split("power2", x, policy="power2")
    assert asked["power2"].options == ("1", "2", "4", "8", "16", "32")
    cfg.define_split("all", y, policy="all", max_factor=5, default=(4,))
    assert asked["all"].options == ("1", "2", "3", "4", "5")
    assert asked["all"].default == 3
    cfg.define_split("kept", x, keep=lambda factors: factors[0] % 4 == 0)
    assert asked["kept"].options == ("4", "8", "12", "16", "24", "48")
    cfg.define_reorder("given", [y, x], candidates=[[x, y]])
    assert asked["given"].options == ("1 0",)
    cfg.define_annotate("unrolled", [y, x])
    assert asked["unrolled"].options == ("none none", "none unroll", "unroll unroll")
    cfg.define_annotate("vectors", [y, x], policy="try_vec")
    assert asked["vectors"].options == ("none vectorize", "none none")
    assert list(cfg) == list(asked)


def test_factors_that_do_not_divide_are_guarded(task: Task) -> None:
    @template("acme.guarded")
    def guarded(s, cfg):
        y, _ = s.get_loops(s.get_block("d"))
        cfg.define_split("y", y, policy="all", max_factor=7).apply(s, y)

    made = check_point(guarded, task, replay({"y": "7"}))
    assert made.point == {"y": "7"}
    assert isinstance(made, Candidate)


@pytest.mark.parametrize(
    ("wrong", "text"),
    [
        (lambda cfg, loops: cfg["missing"], "defines no 'missing'"),
        (lambda cfg, loops: cfg.define_split("a", loops[0], policy="fast"), "policy 'fast'"),
        (lambda cfg, loops: cfg.define_annotate("a", loops, policy="fast"), "no such candidate"),
        (
            lambda cfg, loops: cfg.define_annotate("a", loops, candidates=[["spin", "none"]]),
            "no such candidate",
        ),
        (lambda cfg, loops: cfg.define_split("a", loops[0], keep=lambda f: False), "no options"),
    ],
    ids=["unknown name", "policy of a split", "policy of an annotation", "kind", "no factors"],
)
def test_mistakes_are_refused(wrong, text) -> None:
    @template("acme.wrong")
    def mistaken(s, cfg):
        wrong(cfg, s.get_loops(s.get_block("d")))

    assert text in mistaken.fits(task_of(product()))


def test_symbolic_loops_have_powers_of_two() -> None:
    n = te.var("n")
    x = te.placeholder((n,), name="x")
    func = te.create_prim_func([x], [te.compute((n,), lambda i: x[i] * 2.0, "y")])

    @template("acme.symbolic")
    def halves(s, cfg):
        (loop,) = s.get_loops(s.get_block("y"))
        cfg.define_split("tile", loop, max_factor=8).apply(s, loop)

    made = check_point(halves, task_of(func), defaults, {func.scalars[0]: 13})
    assert made.questions[0].options == ("1", "2", "4", "8")


def test_templates_are_declared_by_the_hook_and_searched(task: Task) -> None:
    class Plugin:
        DLC_API = "0.1"

        @hookimpl
        def dlc_search_spaces(self):
            return [gemm]

    with fresh_registry({"acme": Plugin()}):
        space = registry().search_spaces["acme.gemm"]
    search = grid.STRATEGY.start(task, space, seed=0)
    assert len(search.ask(5)) == 5


def test_templates_use_one_another(task: Task) -> None:
    @template("acme.twice")
    def twice(s, cfg):
        gemm(s, cfg)
        cfg.define_knob("more", [1, 2])

    made = candidate(twice, task, defaults)
    assert isinstance(made, Candidate)
    assert {"tile_y", "more"} <= set(made.point)


def test_errors_of_a_template_have_its_name(task: Task) -> None:
    @template("acme.broken")
    def broken(s, cfg):
        raise ZeroDivisionError("no")

    with pytest.raises(ScheduleError, match=r"acme\.broken"):
        broken.generate(task.schedule(), lambda *_: None, task)  # type: ignore[arg-type]
