"""Search strategies: each gives legal, distinct candidates, and finds good points of a known space."""

from __future__ import annotations

from random import Random

import numpy as np
import pytest
from dlc_tune.choices import Choices, Question, defaults, replay
from dlc_tune.ranking import Ranker
from dlc_tune.space import Candidate, Invalid, candidate
from dlc_tune.strategies import evolutionary, grid, optuna, random
from dlc_tune.strategies.made import Made
from dlc_tune.strategy import Tried

from dlc_core.diag import PluginError, ScheduleError

SIZES = (1, 2, 4, 8, 16, 32)


class Tiles:
    """Two tile sizes, and an unrolled loop in some of the points."""

    name, about = "tiles", "tiles of a product"

    def fits(self, task):
        return ""

    def generate(self, schedule, choose, task):
        i, j = schedule.get_loops(schedule.get_block("d"))
        _, x = schedule.split(i, [None, choose("x", SIZES)])
        _, y = schedule.split(j, [None, choose("y", SIZES, default=16)])
        if choose("unroll", [False, True]):
            schedule.unroll(x if choose("loop", ["x", "y"]) == "x" else y)


def cost(found: Candidate) -> float:
    """A smooth cost with one minimum, at x = 8, y = 16, unrolled."""
    x, y = (np.log2(int(found.point[name])) for name in "xy")
    return float(1 + (x - 3) ** 2 + (y - 4) ** 2 + (found.point["unroll"] == "False"))


class Known:
    """A ranker that knows the cost."""

    def scores(self, task, candidates):
        return -np.array([cost(each) for each in candidates])

    def learn(self, task, tried):
        pass


class Blind(Known):
    """A ranker that knows nothing."""

    def scores(self, task, candidates):
        return np.zeros(len(candidates))


def search(strategy, task, count, batch=8, seed=0):
    run = strategy.start(task, Tiles(), seed)
    found: list[Candidate] = []
    while len(found) < count:
        asked = run.ask(min(batch, count - len(found)))
        if not asked:
            break
        assert len(asked) <= batch
        run.tell([Tried(each, cost(each)) for each in asked])
        found += asked
    return found


def evolution(ranker: type[Ranker] = Blind):
    return evolutionary.EvolutionaryStrategy(ranker)


STRATEGIES = {
    "random": random.STRATEGY,
    "grid": grid.STRATEGY,
    "evolutionary": evolution(),
    "optuna": optuna.STRATEGY,
}


@pytest.fixture(params=STRATEGIES)
def strategy(request):
    if request.param == "optuna":
        pytest.importorskip("optuna", reason="the strategy needs Optuna")
    return STRATEGIES[request.param]


def test_candidates_are_legal_distinct_and_repeatable(strategy, task):
    found = search(strategy, task, 40)
    assert len(found) == 40
    texts = [each.trace.as_python() for each in found]
    assert len(set(texts)) == 40
    for each in found[:10]:
        again = candidate(Tiles(), task, replay(each.point))
        assert isinstance(again, Candidate)
        assert again.trace.as_python() == each.trace.as_python()
        assert task.replayed(each.trace).attrs["rule"] == "tuned"
    assert [each.point for each in search(strategy, task, 40)] == [each.point for each in found]


def test_a_grid_has_all_points_once_and_ends(task):
    found = search(grid.STRATEGY, task, 1000)
    assert len(found) == len(SIZES) ** 2 * 3
    assert found[0].point == {"x": "1", "y": "16", "unroll": "False"}


def test_a_random_search_ends_when_nothing_is_new(task):
    class Small(Tiles):
        def generate(self, schedule, choose, task):
            schedule.split(schedule.get_loops(schedule.get_block("d"))[0], [None, choose("x", [2, 4])])

    run = random.STRATEGY.start(task, Small(), 0)
    assert {each.point["x"] for each in run.ask(8)} == {"2", "4"}
    assert run.ask(8) == []


def test_a_good_ranker_finds_the_minimum_at_once(task):
    found = search(evolution(Known), task, 24)
    assert min(map(cost, found)) == 1.0


def test_evolution_tries_better_points_than_random_search(task):
    def late(strategy):
        return np.mean([cost(each) for seed in (0, 1) for each in search(strategy, task, 40, seed=seed)[16:]])

    assert late(evolution(Known)) < late(evolution()) < late(random.STRATEGY)


def test_evolution_begins_with_the_defaults(task):
    assert evolution().start(task, Tiles(), 0).ask(4)[0].point["y"] == "16"


def test_results_of_earlier_searches_are_not_tried_again(strategy, task):
    first = search(strategy, task, 20)
    run = strategy.start(task, Tiles(), 0)
    run.tell([Tried(each, cost(each)) for each in first])
    known = {each.trace.as_python() for each in first}
    assert not known & {each.trace.as_python() for each in run.ask(20)}


def test_points_that_are_not_legal_say_why(task):
    class Illegal(Tiles):
        def generate(self, schedule, choose, task):
            schedule.parallel(schedule.get_loops(schedule.get_block("c"))[choose("loop", [0, 2])])

    found = candidate(Illegal(), task, replay({"loop": "2"}))
    assert isinstance(found, Invalid)
    assert "k" in found.why
    assert found.point == {"loop": "2"}
    assert isinstance(candidate(Illegal(), task, defaults), Candidate)


def test_choices_refuse_what_has_no_single_meaning():
    choose = Choices(defaults)
    with pytest.raises(ScheduleError, match="no options"):
        choose("a", [])
    with pytest.raises(ScheduleError, match="equal texts"):
        choose("a", [1, "1"])
    with pytest.raises(ScheduleError, match="no option 3"):
        Choices(lambda question: 3)("a", [1, 2])


def test_a_name_that_is_asked_again_gets_the_same_answer():
    answers = iter([1, 0])
    choose = Choices(lambda question: next(answers))
    assert choose("a", [1, 2]) == choose("a", [1, 2]) == 2
    assert choose.questions == [Question("a", ("1", "2"))]
    assert choose("a", [5, 6]) == 5  # other options: another question


def test_a_missing_optimiser_is_named(task, monkeypatch):
    def missing(name):
        raise ImportError(name)

    monkeypatch.setattr(optuna, "import_module", missing)
    with pytest.raises(PluginError, match="needs the library Optuna"):
        optuna.STRATEGY.start(task, Tiles(), 0)


def test_points_that_were_made_before_are_not_made_again(task):
    class Counted(Tiles):
        made = 0

        def generate(self, schedule, choose, task):
            Counted.made += 1
            super().generate(schedule, choose, task)

    made = Made(task, Counted())
    draw = Random(0)
    answers = [[draw.randrange(2) for _ in range(4)] for _ in range(60)]

    def made_of(given):
        rest = iter(given)
        return made.any(lambda question: next(rest))

    first = [made_of(given) for given in answers]
    distinct = len({tuple(each.point.items()) for each in first})
    assert Counted.made == distinct < 13
    again = [made_of(given) for given in answers]
    assert Counted.made == distinct
    assert all(one is other for one, other in zip(first, again, strict=True))
    for given, each in zip(answers, first, strict=True):
        rest = iter(given)
        assert each.point == candidate(Tiles(), task, lambda question, rest=rest: next(rest)).point


def test_a_defect_of_a_space_costs_one_point(task):
    class Broken(Tiles):
        def generate(self, schedule, choose, task):
            assert choose("x", [1, 2]) == 2, "never one"

    with pytest.warns(RuntimeWarning, match="the space 'tiles' failed: AssertionError: never one"):
        found = candidate(Broken(), task, defaults)
    assert isinstance(found, Invalid)
    assert isinstance(candidate(Broken(), task, replay({"x": "2"})), Candidate)


def test_kernels_of_a_model_share_what_the_ranker_learns(task):
    strategy = evolution().for_model()
    one, other = (strategy.start(task, Tiles(), seed) for seed in (0, 1))
    assert one._ranker is other._ranker
    assert evolution().start(task, Tiles(), 0)._ranker is not one._ranker
