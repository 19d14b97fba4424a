"""The search over decisions of graph passes: the algorithm of a convolution, of a GEMM, of attention.

The compilers of regions may have such decisions too, such as the tiles of a layer on an accelerator.

Such a decision changes which kernels a model has, so it is measured with the whole model: the model is
compiled with one other option and compared with the best model so far, interleaved. An option stays if the
model is faster beyond the noise with the same results. Only options that the cost model considers legal are
tried; a decision of equal layers is made once for all of them.

The decisions that are searched are those that say so (`Decision.recordable`): their names have the shapes and
attributes that they concern, so a record holds for other models too.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from dlc_core import driver
from dlc_core.config import config
from dlc_core.decisions import declared
from dlc_core.passes import PassContext
from dlc_core.runtime.executable import Executable
from dlc_core.support.record import record
from dlc_core.target import Target
from dlc_core.version import __version__
from dlc_tune.comparing_models import compare_models
from dlc_tune.measuring.comparing import Ratios
from dlc_tune.measuring.vendor import unit_of
from dlc_tune.records.decision import SPACE, decision_key
from dlc_tune.records.locations import OFF, RECORDS
from dlc_tune.records.record import CHOSEN, Record, machine_of
from dlc_tune.schedules import Schedules
from dlc_tune.tasks import inputs_of

COMPARE_SECONDS = 0.5
"""The time of a comparison whose result stays unclear."""


@record(frozen=True)
class Decided:
    """An option that was found to be faster, and the comparison of the model with and without it."""

    decision: str
    option: str
    preferred: str
    ratios: Ratios
    target: Target
    time: float = 0.0
    """When it was found, in seconds since 1970."""


@dataclass
class GraphSearch:
    """The search for one model. `answers` are the options that were found until now."""

    model: Any
    where: Any
    given: Mapping[str, Any] | Sequence[Any] | None = None
    sizes: Mapping[str, Any] | None = None
    options: Mapping[str, Any] = field(default_factory=dict)
    answers: dict[str, str] = field(default_factory=dict)
    found: list[Decided] = field(default_factory=list)
    trials: int = 0
    _asked: dict[str, tuple[tuple[str, ...], Target]] = field(default_factory=dict)
    _best: Executable | None = None
    _remaining: Iterator[tuple[str, str]] = field(default_factory=lambda: iter(()))
    """The options that were not tried yet."""

    def decide(self, decision: str, options: Sequence[str], preferred: int, target: Target) -> int:
        """Answers by what was found, and notes the question."""
        if declared()[decision.partition("/")[0]].recordable:
            self._asked.setdefault(decision, (tuple(options), target))
        answer = self.answers.get(decision)
        return options.index(answer) if answer in options else preferred

    def compiled(self) -> Executable:
        """The model with the current answers, without schedules of a tuner."""
        context = PassContext.current().with_(decider=self.decide, tuner=Schedules())
        with config.override({RECORDS: OFF}), context:
            return driver.compile(self.model, self.where, cache=bool(config.cache), **self.options)

    @cached_property
    def untuned(self) -> Executable:
        """The model as the cost model prefers it. To be used before `run`."""
        return self.compiled()

    def run(self, end: float, report: Callable[[str], None] = lambda _: None) -> None:
        """Try options until a time of `time.monotonic`. A further call goes on where the one before ended."""
        if self._best is None:
            self._best = self.untuned
            self._remaining = iter(list(self._others()))
        inputs = inputs_of(self._best, self.given, self.sizes)
        while time.monotonic() < end:
            decision, option = next(self._remaining, ("", ""))
            if not decision:
                return
            report(f"trying {option} for {decision.partition('/')[0]}")
            before = self.answers
            self.answers = {**before, decision: option}
            if not self._is_faster(decision, option, inputs):
                self.answers = before

    def _is_faster(self, decision: str, option: str, inputs: Any) -> bool:
        """Whether the model with the current answers is faster than the best one. It is the best one then."""
        assert self._best is not None
        tried = self.compiled()
        self.trials += 1
        options, target = self._asked[decision]
        wrong, ratios = compare_models(tried, self._best, inputs, COMPARE_SECONDS, target)
        if wrong or ratios is None or not ratios.is_faster:
            return False
        self._best = tried
        self.found = [each for each in self.found if each.decision != decision]
        self.found.append(Decided(decision, option, options[0], ratios, target, time.time()))
        return True

    def _others(self) -> Iterator[tuple[str, str]]:
        """The options that are not preferred: the first ones of each decision, then the second ones."""
        most = max((len(options) for options, _ in self._asked.values()), default=0)
        for position in range(1, most):
            for decision, (options, _) in self._asked.items():
                if position < len(options):
                    yield decision, options[position]

    @property
    def records(self) -> tuple[Record, ...]:
        """The records of what was found until now."""
        return tuple(self._records())

    def _records(self) -> Iterator[Record]:
        for each in self.found:
            description = each.target.describe()
            yield Record(
                kernel=decision_key(each.decision),
                target=str(each.target.for_code()),
                processor=each.target.identity,
                family="",
                extents=(),
                space=SPACE,
                point={each.decision: each.option},
                trace="",
                state=CHOSEN,
                seconds=min(each.ratios.candidate),
                default_seconds=min(each.ratios.default),
                noise=each.ratios.noise,
                unit=unit_of(each.target),
                threads=description.cores,
                machine=machine_of(description),
                name=each.decision.partition("/")[0],
                compiler=__version__,
                time=each.time,
            )


__all__ = ["Decided", "GraphSearch"]
