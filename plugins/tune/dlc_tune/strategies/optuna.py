"""The samplers of the library Optuna (https://optuna.org) as a strategy; needs the extra `dlc-tune[optuna]`.

A question becomes a categorical parameter. Optuna wants the same options whenever a parameter is suggested,
so a question whose options differ between points is a parameter of its own for each set of options.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from hashlib import sha256
from importlib import import_module
from typing import Any

from dlc_core.diag import PluginError
from dlc_tune.choices import Question
from dlc_tune.space import Candidate, Space
from dlc_tune.strategies.made import PointSearch
from dlc_tune.strategy import Tried
from dlc_tune.task import Task

SUGGESTIONS = 16
"""Suggestions that give nothing new, one after the other, before random points are tried: samplers suggest
the best points again and again, since they expect noise."""


def _library() -> Any:
    try:
        return import_module("optuna")
    except ImportError as error:
        raise PluginError(
            "the strategy optuna needs the library Optuna", hint="pip install dlc-tune[optuna]"
        ) from error


def _parameter(question: Question) -> str:
    return f"{question.name}#{sha256(repr(question.options).encode()).hexdigest()[:8]}"


class OptunaSearch(PointSearch):
    """One study."""

    def __init__(self, task: Task, space: Space, seed: int, sampler: Callable[[Any, int], Any]) -> None:
        optuna = self._optuna = _library()
        optuna.logging.set_verbosity(optuna.logging.ERROR)
        super().__init__(task, space, seed)
        self._study = optuna.create_study(sampler=sampler(optuna, seed))
        self._trials: dict[str, Any] = {}

    def ask(self, count: int) -> Sequence[Candidate]:
        found: list[Candidate] = []
        in_vain = 0
        while len(found) < count and in_vain < SUGGESTIONS:
            trial = self._study.ask()

            def answer(question: Question, trial: Any = trial) -> int:
                return int(trial.suggest_categorical(_parameter(question), range(len(question.options))))

            made = self._made.new(answer)
            if made is None:
                in_vain += 1
                self._study.tell(trial, state=self._optuna.trial.TrialState.FAIL)
            else:
                in_vain = 0
                self._trials[made.trace.as_python()] = trial
                found.append(made)
        return [*found, *self._made.drawn(count - len(found), self._random)]

    def tell(self, tried: Sequence[Tried]) -> None:
        super().tell(tried)
        for each in tried:
            trial = self._trials.pop(each.candidate.trace.as_python(), None)
            if trial is None:
                self._add(each)
            elif each.seconds is None:
                self._study.tell(trial, state=self._optuna.trial.TrialState.FAIL)
            else:
                self._study.tell(trial, each.seconds)

    def _add(self, tried: Tried) -> None:
        """Add a result of an earlier search."""
        if tried.seconds is None:
            return
        options = {_parameter(q): range(len(q.options)) for q in tried.candidate.questions}
        point = tried.candidate.point
        create, categorical = self._optuna.trial.create_trial, self._optuna.distributions
        self._study.add_trial(
            create(
                value=tried.seconds,
                params={_parameter(q): q.options.index(point[q.name]) for q in tried.candidate.questions},
                distributions={
                    name: categorical.CategoricalDistribution(indices) for name, indices in options.items()
                },
            )
        )


class OptunaStrategy:
    """A sampler of Optuna, by default the tree-structured Parzen estimator."""

    name = "optuna"
    about = "Optuna's tree-structured Parzen estimator; needs the extra `dlc-tune[optuna]`."

    def __init__(
        self, sampler: Callable[[Any, int], Any] = lambda optuna, seed: optuna.samplers.TPESampler(seed=seed)
    ) -> None:
        self._sampler = sampler

    def start(self, task: Task, space: Space, seed: int) -> OptunaSearch:
        return OptunaSearch(task, space, seed, self._sampler)


STRATEGY = OptunaStrategy()

__all__ = ["STRATEGY", "OptunaSearch", "OptunaStrategy"]
