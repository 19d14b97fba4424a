"""The comparison of a whole model with what was found and without it, and what is withdrawn.

While the model is slower or its results differ, half of the schedules is withdrawn, the least gains first,
and decisions of graph passes last. The rest is kept.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

from dlc_core.runtime.executable import Executable
from dlc_tune.comparing_models import compare_models
from dlc_tune.graph_search import GraphSearch
from dlc_tune.model_result import ModelResult
from dlc_tune.records.record import Record
from dlc_tune.selecting import tuned_model
from dlc_tune.store import Store, forget
from dlc_tune.tasks import ModelTasks

SLOWER = 0.01
"""Schedules are withdrawn if the whole model takes this much longer, or longer beyond the noise."""
VERIFY_SECONDS = 3.0
"""The time of a comparison of whole models."""


@dataclass
class Verification:
    """The comparison of one model. `untuned` is the model without schedules and decisions of a tuner."""

    tasks: ModelTasks
    untuned: Executable
    store: Store
    graph: GraphSearch | None = None
    report: Callable[[str], None] = lambda _: None

    def run(self, found: ModelResult, milliseconds: Mapping[str, float]) -> ModelResult:
        """Compare, and withdraw what makes the model slower or its results wrong.

        `milliseconds` is the time of each kernel in a call by the default schedules, by its key.
        """
        gains = {each.task.key: (1 - each.ratio) * milliseconds[each.task.key] for each in found.results}
        kept = sorted(found.chosen, key=lambda each: -gains[each.kernel])
        while True:
            self.report("comparing the whole model with the untuned one")
            exe, _ = tuned_model(self.tasks, {each.kernel: each.trace for each in kept})
            why, ratios = compare_models(exe, self.untuned, self.tasks.inputs, VERIFY_SECONDS)
            if ratios is not None:
                found = replace(found, ratio=ratios.ratio, noise=ratios.noise)
                if not why and ratios.ratio > 1 + min(ratios.noise, SLOWER):
                    why = f"the model took {ratios.ratio:.3f} ± {ratios.noise:.3f} of the untuned one's time"
            if not why:
                return found
            found = self._without(found, kept[len(kept) // 2 :], why)
            if not kept:
                found = self._without_decisions(found)
            kept = kept[: len(kept) // 2]
            if not kept and not found.decided:
                return found

    def _without(self, found: ModelResult, records: Sequence[Record], why: str) -> ModelResult:
        """Withdraw schedules."""
        forget(self.store, records)
        kernels = {each.kernel for each in records}
        results = tuple(
            replace(each, chosen=None, why=f"withdrawn: {why}") if each.task.key in kernels else each
            for each in found.results
        )
        return replace(found, results=results, withdrawn=found.withdrawn or why)

    def _without_decisions(self, found: ModelResult) -> ModelResult:
        """Withdraw the decisions of graph passes."""
        forget(self.store, () if self.graph is None else self.graph.records)
        return replace(found, decided=())


__all__ = ["VERIFY_SECONDS", "Verification"]
