"""The schedules of a layer as a search space of dlc's tuner, and the search by any of its strategies.

    tuned = tune_layer(layer, config, trials=16)
    tuned.plan.tiling, tuned.cycles

A point of the space is a tiling: each of its parts is a choice. The first point is that of the cost model
(`search.choose`), which compiles use, so that a search is never worse. Candidates that do not fit on the chip
cost nothing; the others are measured by simulating their instructions. The strategy `evolutionary` ranks
candidates by the formula of `model.py`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields

import numpy as np
from dlc_tune.choices import Choices
from dlc_tune.ranking.ranker import Scores
from dlc_tune.space import Candidate
from dlc_tune.strategies.evolutionary import EvolutionaryStrategy
from dlc_tune.strategy import Strategy, Tried
from dlc_tune.task import Task

from dlc_backend_vta.config import Config
from dlc_backend_vta.layers import Layer
from dlc_backend_vta.model import estimate
from dlc_backend_vta.search import choose, simulated
from dlc_backend_vta.tiling import Plan, Tiling, parts
from dlc_core import te
from dlc_core.diag import ScheduleError
from dlc_core.plugin.registry import registry
from dlc_core.schedule import Schedule
from dlc_core.target import Target
from dlc_core.tir import PrimFunc

TILING = "vta.tiling"
"""The annotation of a layer's block with its tiling."""
EVOLUTIONARY = "evolutionary"


@dataclass(frozen=True)
class LayerSpace:
    """The tilings of one layer on one machine."""

    layer: Layer
    config: Config
    name: str = "vta_tilings"
    about: str = "Tile sizes, the operand that stays on the chip, and double buffering."

    def fits(self, task: Task) -> str:
        return "" if task.target.kind.name == "vta" else "its target is another machine"

    def generate(self, schedule: Schedule, choose_one: Choices, task: Task) -> None:
        best = choose(self.layer, self.config).tiling
        chosen = {
            name: choose_one(name, options, getattr(best, name))
            for name, options in parts(self.layer, self.config).items()
        }
        plan = Plan(self.layer, Tiling(**chosen), self.config)
        problem = plan.problem()
        if problem is not None:
            raise ScheduleError(f"the tiles {plan.tiling} do not fit", why=problem)
        schedule.annotate(schedule.get_blocks()[-1], TILING, str(plan.tiling))

    def plan(self, candidate: Candidate) -> Plan:
        """The schedule of a candidate."""
        point = candidate.point
        options = parts(self.layer, self.config)
        chosen = {name: next(o for o in options[name] if str(o) == point[name]) for name in options}
        return Plan(self.layer, Tiling(**chosen), self.config)


@dataclass(frozen=True)
class FormulaRanker:
    """Ranks candidates of a space by the formula; it has nothing to learn."""

    space: LayerSpace

    def scores(self, task: Task, candidates: Sequence[Candidate]) -> Scores:
        return np.array([-float(estimate(self.space.plan(each))) for each in candidates])

    def learn(self, task: Task, tried: Sequence[Tried]) -> None:
        """The formula has no parameters."""


@dataclass(frozen=True)
class Tuned:
    """The best schedule that a search found, its simulated cycles, and the number of simulations."""

    plan: Plan
    cycles: int
    trials: int


def program(layer: Layer) -> PrimFunc:
    """The loop nest of a layer as a tensor program, by which the tuner knows it."""
    rows, columns = (
        (extent - 1) * stride + (size - 1) * dilation + 1
        for extent, stride, size, dilation in zip(
            (layer.rows, layer.columns), layer.stride, layer.kernel, layer.dilation
        )
    )
    image = te.placeholder((layer.images, max(layer.inputs, layer.channels), rows, columns), "int8", name="x")
    shape = (layer.images, layer.channels, layer.rows, layer.columns)
    (down, across), (step_down, step_across) = layer.stride, layer.dilation
    if layer.kind != "gemm":
        out = te.compute(shape, lambda n, c, i, j: image[n, c, i * down, j * across], name="y")
        return te.create_prim_func([image], [out], "layer")
    weights = te.placeholder((layer.channels, layer.inputs, *layer.kernel), "int8", name="w")
    k, a, b = (
        te.reduce_axis(layer.inputs, "k"),
        te.reduce_axis(layer.kernel[0], "a"),
        te.reduce_axis(layer.kernel[1], "b"),
    )
    out = te.compute(
        shape,
        lambda n, c, i, j: te.sum(
            image[n, k, i * down + a * step_down, j * across + b * step_across].astype("int32")
            * weights[c, k, a, b].astype("int32"),
            axis=[k, a, b],
        ),
        name="y",
    )
    return te.create_prim_func([image, weights], [out], "layer")


def target_of(config: Config) -> Target:
    """The target whose options are a machine."""
    default = Config()
    options = {each.name: getattr(config, each.name) for each in fields(Config)}
    changed = {name: value for name, value in options.items() if value != getattr(default, name)}
    return Target(
        " ".join(["vta", *(f"-{name.replace('_', '-')}={value}" for name, value in changed.items())])
    )


def tune_layer(
    layer: Layer, config: Config, trials: int = 16, strategy: str | Strategy = EVOLUTIONARY, seed: int = 0
) -> Tuned:
    """Search for the schedule with the fewest simulated cycles by a strategy of the tuner, or its name.

    Raises UnsupportedError if no schedule fits.
    """
    space, task = LayerSpace(layer, config), Task(program(layer), target_of(config), layer.name)
    if strategy == EVOLUTIONARY:
        strategy = EvolutionaryStrategy(lambda: FormulaRanker(space))
    elif isinstance(strategy, str):
        strategy = registry().search_strategies[strategy]
    search = strategy.start(task, space, seed)
    first = choose(layer, config)
    best, count = Tuned(first, _cycles(first), 1), 1
    while count < trials:
        tried = []
        for each in search.ask(min(8, trials - count)):
            plan = space.plan(each)
            found = _cycles(plan)
            count += 1
            tried.append(Tried(each, float(found)))
            if found < best.cycles:
                best = Tuned(plan, found, count)
        if not tried:
            break
        search.tell(tried)
    return Tuned(best.plan, best.cycles, count)


def _cycles(plan: Plan) -> int:
    found = simulated(plan)
    assert found is not None
    return found


__all__ = ["FormulaRanker", "LayerSpace", "Tuned", "program", "target_of", "tune_layer"]
