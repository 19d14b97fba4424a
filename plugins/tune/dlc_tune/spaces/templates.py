"""Templates: search spaces that a user writes as one function of a schedule, with knobs.

    @template("acme.gemm")
    def gemm(s, cfg):
        c = s.get_block("c")
        y, x, k = s.get_loops(c)
        cfg.define_split("tile_y", y, num_outputs=2, max_factor=16)
        cfg.define_split("tile_x", x, num_outputs=2, max_factor=64)
        cfg.define_knob("unroll", [False, True])
        (yo, yi), (xo, xi) = cfg["tile_y"].apply(s, y), cfg["tile_x"].apply(s, x)
        s.reorder(yo, xo, k, yi, xi)
        s.vectorize(xi)
        if cfg["unroll"].value:
            s.unroll(yi)

    dlc.tune(func, space=gemm)

The names are those of AutoTVM. A definition asks for the choice at once and returns it, so that
`yo, yi = cfg.define_split("tile_y", y).apply(s, y)` is one line. A template fits the kernels on which its
point of defaults is legal; `like` and `when` restrict it. A plugin declares templates by the hook
`dlc_search_spaces`, as other spaces.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from itertools import permutations
from typing import Any, TypeVar

from dlc_core.diag import DlcError, ScheduleError
from dlc_core.ir.expr import const_value
from dlc_core.schedule import LoopRV, Schedule
from dlc_core.support.record import record
from dlc_core.target.description import Description
from dlc_core.tir.stmt import PrimFunc
from dlc_tune.choices import Choices, defaults
from dlc_tune.records.family import family_of
from dlc_tune.space import Invalid, candidate
from dlc_tune.spaces.knobs import Annotation, Knob, Order, Split
from dlc_tune.task import Task

T = TypeVar("T")

MAX_FACTOR = 64
"""The largest factor of a split of a symbolic loop, unless the template says another one."""
MAX_ORDERS = 24
"""The most orders of loops that `define_reorder` proposes by itself."""
USUAL_FACTOR = 16
"""The default of a split is the one whose inner loops are nearest to this many iterations."""

SPLIT_POLICIES = ("factors", "power2", "all")
POLICIES = ("try_unroll", "try_vec", "try_unroll_vec", "parallel")
ANNOTATIONS = ("none", "unroll", "vectorize", "parallel")


class Config:
    """The knobs of a template: definitions ask for choices, `cfg[name]` is what was chosen."""

    def __init__(self, schedule: Schedule, choose: Choices, task: Task) -> None:
        self._schedule = schedule
        self._choose = choose
        self._made: dict[str, Any] = {}
        self.task = task

    @property
    def description(self) -> Description:
        """The facts of the target's machine, such as `lanes(32)`."""
        return self.task.machine.description

    def __getitem__(self, name: str) -> Any:
        """The choice of a definition. Raises ScheduleError for an unknown name."""
        if name not in self._made:
            known = ", ".join(self._made) or "none yet"
            raise ScheduleError(f"the template defines no {name!r}", hint=f"defined: {known}")
        return self._made[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._made)

    def define_knob(self, name: str, options: Sequence[Any], default: Any = None) -> Knob:
        """A value among options, whose texts differ; the default is the first one."""
        return self._keep(name, Knob(self._choose(name, [*options], default)))

    def define_split(
        self,
        name: str,
        loop: LoopRV,
        num_outputs: int = 2,
        *,
        max_factor: int | None = None,
        policy: str = "factors",
        default: Sequence[int] | None = None,
        keep: Callable[[tuple[int, ...]], bool] = lambda factors: True,
    ) -> Split:
        """The factors of `num_outputs` loops; the extent of the outermost one is computed.

        `policy` "factors" proposes factors whose product divides the extent, "power2" powers of two and
        "all" all numbers; the last iterations are then guarded. A symbolic loop has powers of two.
        `max_factor` limits each factor, `keep` selects among the tuples of factors.
        """
        if policy not in SPLIT_POLICIES or num_outputs < 2:
            raise ScheduleError(
                f"the split {name!r} has the policy {policy!r} and {num_outputs} loops",
                hint=f"policies: {', '.join(SPLIT_POLICIES)}; at least 2 loops",
            )
        known = const_value(self._schedule.extent(loop))
        extent = None if known is None else int(known)
        limit = max_factor or extent or MAX_FACTOR
        exact = policy == "factors" and extent is not None
        found = [f for f in _factors(extent, num_outputs - 1, limit, policy) if keep(f)]
        splits = [Split(factors, "exact" if exact else "predicate") for factors in found]
        usual = None if default is None else Split(tuple(default), splits[0].tail if splits else "exact")
        if usual is None and splits:
            usual = min(splits, key=lambda s: abs(math.prod(s.factors) - USUAL_FACTOR))
        return self._keep(name, self._choose(name, splits, usual))

    def define_reorder(
        self,
        name: str,
        loops: Sequence[LoopRV],
        candidates: Sequence[Sequence[LoopRV]] | None = None,
    ) -> Order:
        """An order of loops: one of the candidates, by default of all orders, of which the first is the
        given one.
        """
        if candidates is None:
            count = len(loops)
            orders = [p for p, _ in zip(permutations(range(count)), range(MAX_ORDERS))]
        else:
            orders = [tuple(loops.index(loop) for loop in order) for order in candidates]
        return self._keep(name, self._choose(name, [Order(tuple(order)) for order in orders]))

    def define_annotate(
        self,
        name: str,
        loops: Sequence[LoopRV],
        policy: str = "try_unroll",
        candidates: Sequence[Sequence[str]] | None = None,
    ) -> Annotation:
        """Kinds of loops: "none", "unroll", "vectorize" or "parallel" for each.

        `policy` "try_unroll" unrolls some number of the innermost loops, "try_vec" vectorises the innermost
        one or not, "try_unroll_vec" does both, "parallel" parallelises the outermost one or not.
        `candidates` lists the kinds instead.
        """
        kinds = _kinds(len(loops), policy) if candidates is None else [tuple(each) for each in candidates]
        wrong = [each for each in kinds if len(each) != len(loops) or not set(each) <= set(ANNOTATIONS)]
        if wrong or not kinds:
            raise ScheduleError(
                f"the annotation {name!r} of {len(loops)} loops has no such candidate: {wrong or policy}",
                hint=f"kinds: {', '.join(ANNOTATIONS)}; policies: {', '.join(POLICIES)}",
            )
        return self._keep(name, self._choose(name, [Annotation(each) for each in kinds]))

    def _keep(self, name: str, chosen: T) -> T:
        self._made[name] = chosen
        return chosen


def _factors(extent: int | None, count: int, limit: int, policy: str) -> Iterator[tuple[int, ...]]:
    """Factors of the inner loops, whose product is at most the extent."""
    if count == 0:
        yield ()
        return
    most = limit if extent is None else min(limit, extent)
    if extent is None or policy == "power2":
        sizes = [1 << k for k in range(most.bit_length())]
    elif policy == "factors":
        sizes = [n for n in range(1, most + 1) if extent % n == 0]
    else:
        sizes = list(range(1, most + 1))
    for size in sizes:
        rest = None if extent is None else extent // size
        for others in _factors(rest, count - 1, limit, policy):
            yield (*others, size)


def _kinds(count: int, policy: str) -> list[tuple[str, ...]]:
    none = ("none",) * count
    if policy == "parallel":
        return [("parallel", *none[1:]), none]
    unrolled = [(*none[: count - n], *("unroll",) * n) for n in range(count + 1)]
    vectors = (*none[:-1], "vectorize")
    if policy == "try_unroll":
        return unrolled
    if policy == "try_vec":
        return [vectors, none]
    if policy == "try_unroll_vec":
        return [(*each[:-1], last) for last in ("vectorize", "none") for each in unrolled[1:]]
    return []


Function = Callable[[Schedule, Config], object]


@record(frozen=True)
class Template:
    """A search space that is a function of a schedule and its knobs; `template` makes it."""

    name: str
    about: str
    function: Function
    when: Callable[[PrimFunc], bool] | None = None
    families: frozenset[str] = frozenset()
    """Families of kernels (`records.family`) that it is for; empty for all."""

    def fits(self, task: Task) -> str:
        if self.families and family_of(task.func)[0] not in self.families:
            return f"the template {self.name!r} is for kernels of another structure"
        if self.when is not None and not self.when(task.func):
            return f"the condition of the template {self.name!r} does not hold for the kernel"
        made = candidate(self, task, defaults)
        return made.why if isinstance(made, Invalid) else ""

    def generate(self, schedule: Schedule, choose: Choices, task: Task) -> None:
        """Raises ScheduleError, which makes the point invalid, also for other errors of the function."""
        try:
            self.function(schedule, Config(schedule, choose, task))
        except DlcError:
            raise
        except Exception as error:
            raise ScheduleError(
                f"the template {self.name!r} failed on the kernel {task.func.name!r}",
                why=f"{type(error).__name__}: {error}",
            ) from error

    def __call__(self, schedule: Schedule, cfg: Config) -> object:
        """Call the function, so that templates can use one another."""
        return self.function(schedule, cfg)


def template(
    name: str,
    *,
    like: PrimFunc | Sequence[PrimFunc] = (),
    when: Callable[[PrimFunc], bool] | None = None,
) -> Callable[[Function], Template]:
    """Make a search space of a function of a Schedule and a `Config`.

    `like` are kernels: the template then fits those that differ from one of them in sizes only. `when` is a
    condition on kernels. The first line of the function's docstring is the space's `about`.
    """
    kernels = [like] if isinstance(like, PrimFunc) else like
    families = frozenset(family_of(each)[0] for each in kernels)

    def decorated(function: Function) -> Template:
        about = (function.__doc__ or f"The template {name}.").strip().partition("\n")[0]
        return Template(name, about, function, when, families)

    return decorated


__all__ = ["Config", "Template", "template"]
