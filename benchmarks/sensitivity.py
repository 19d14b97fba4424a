"""The effects of the numbers of heuristics: `python -m benchmarks.sensitivity [NAME ...]`

Each number is halved and doubled, or multiplied by each `--factor`. Programs of the corpus whose compile
reads it are lowered again and compared with the default. If kernels differ, both versions run alternately in
this process, and the ratio of their times shows whether the number matters.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from math import exp, log
from pathlib import Path
from statistics import median
from typing import Annotated, Any, cast

import numpy as np
import typer
from rich.console import Console
from rich.progress import Progress

import dlc_core as dlc
from benchmarks.peers import OURS
from benchmarks.programs import Program, corpus
from benchmarks.report import head, machine, print_table
from dlc_core.config import config
from dlc_core.diag import UsageError, similar
from dlc_core.driver import context_for
from dlc_core.driver.stages import lower
from dlc_core.heuristics import Number, declared, merged, overridden, recorded, scaled
from dlc_core.plugin.registry import registry
from tests.generated_code import script_of

ROUNDS = 15
"""Rounds of a measurement; in each, both versions run for the same time."""
MATTERS = 0.03
"""The difference of times from which a number matters.  Such measurements are repeated with new code."""
TOLERANCE = 2e-2
"""The tolerance relative to an output's largest value. Larger differences are failures."""

Clock = Callable[[], float]


@dataclass(frozen=True)
class Change:
    """A program whose kernels depend on the value of a number."""

    program: str
    kernels: tuple[str, ...]
    """The functions that differ, are new or are missing."""
    ratio: float | None = None
    """Time with the value over time with the default; None if it was not measured."""
    failure: str = ""
    """Why the program does not compile or run with the value."""


@dataclass(frozen=True)
class Row:
    """The effects of one value of a number."""

    number: str
    factor: float
    value: str
    read: int
    """The programs whose compile reads the number."""
    changes: tuple[Change, ...]

    @property
    def ratios(self) -> Mapping[str, float]:
        """The ratio of times of each program that was measured."""
        return {each.program: each.ratio for each in self.changes if each.ratio is not None}

    @property
    def mean(self) -> float | None:
        """The geometric mean of the ratios."""
        ratios = self.ratios.values()
        return exp(sum(map(log, ratios)) / len(ratios)) if ratios else None

    @property
    def different(self) -> Mapping[str, float]:
        """The programs whose times differ by more than noise."""
        return {name: ratio for name, ratio in self.ratios.items() if abs(ratio - 1) > MATTERS}

    @property
    def verdict(self) -> str:
        """The outcome in a few words."""
        if any(each.failure for each in self.changes):
            return "fails"
        if not self.changes:
            return "no kernel changes" if self.read else "not read"
        if self.mean is None:
            return "not measured"
        if not self.different:
            return "equal"
        return "better" if self.mean < 1 - MATTERS else "matters"

    def record(self) -> dict[str, Any]:
        return {**asdict(self), "mean": self.mean, "verdict": self.verdict}

    def cells(self) -> list[str]:
        mean = "–" if self.mean is None else f"{self.mean:.3f}"
        apart = sorted(self.different.items(), key=lambda one: -abs(log(one[1])))
        texts = [f"{name} {ratio:.2f}" for name, ratio in apart]
        texts += [f"{each.program}: {each.failure}" for each in self.changes if each.failure]
        return [
            f"{self.number} × {self.factor:g}", self.value, str(self.read), str(len(self.changes)), mean,
            self.verdict, ", ".join(texts),
        ]  # fmt: skip


TITLES = ("number", "value", "read", "changed", "geometric mean", "verdict", "programs that differ")


def ratio_of(
    changed: Callable[[], object], default: Callable[[], object], seconds: float, clock: Clock
) -> float:
    """The time of a call of `changed` over that of `default`: the median ratio of alternating rounds."""
    calls = (default, changed)
    single = max(_timed(call, 2, clock) / 2 for call in calls)
    number = max(1, int(seconds / (2 * ROUNDS) / max(single, 1e-9)))
    ratios = []
    for index in range(ROUNDS):
        order = (0, 1) if index % 2 else (1, 0)
        times = {which: _timed(calls[which], number, clock) for which in order}
        ratios.append(times[1] / times[0])
    return median(ratios)


def _timed(call: Callable[[], object], number: int, clock: Clock) -> float:
    """The seconds of calls after a warm-up call, which loads the data into the caches."""
    call()
    start = clock()
    for _ in range(number):
        call()
    return clock() - start


class Versions:
    """A program compiled with default numbers, and the measurements of other versions."""

    def __init__(self, program: Program, target: str, clock: Clock, precision: str = "float32") -> None:
        self.program, self.target, self.clock, self.precision = program, target, clock, precision
        with recorded() as self.reads:
            self._texts = self._lowered()
        self._inputs = program.inputs()
        self._outputs: list[Any] = []
        self._default: Any = None
        self._ratios: dict[str, float] = {}
        """By the text of the version: several numbers may lead to the same one."""
        self._known: dict[str, tuple[tuple[str, ...], str]] = {}
        """The kernels that differ, and the text, by overrides."""

    def affecting(self, values: Mapping[str, Any]) -> set[str]:
        """The names of the numbers that change kernels, or fail.

        Numbers that together do not change kernels are not tried separately, because compiles are slow and
        most numbers do not change kernels.
        """
        if not values or not self._affect(values):
            return set()
        if len(values) == 1:
            return set(values)
        items = list(values.items())
        middle = len(items) // 2
        return self.affecting(dict(items[:middle])) | self.affecting(dict(items[middle:]))

    def _affect(self, values: Mapping[str, Any]) -> bool:
        try:
            return bool(self._difference(values)[0])
        except Exception:  # noqa: BLE001 (`change` reports it)
            return True

    def change(self, values: Mapping[str, Any], seconds: float) -> Change | None:
        """The change by these numbers, measured for about `seconds` seconds; None if no kernel differs."""
        kernels: tuple[str, ...] = ()
        try:
            kernels, text = self._difference(values)
            if not kernels:
                return None
            ratio = self._ratio(text, values, seconds) if seconds else None
        except Exception as error:  # noqa: BLE001 (the table has it; other programs are measured)
            return Change(self.program.name, kernels, failure=str(error).partition("\n")[0])
        return Change(self.program.name, kernels, ratio)

    def _difference(self, values: Mapping[str, Any]) -> tuple[tuple[str, ...], str]:
        """The functions that differ from the default, and the text of all."""
        key = merged(values).text
        if key not in self._known:
            with overridden(values):
                texts = self._lowered()
            names = sorted({*self._texts, *texts})
            kernels = tuple(each for each in names if self._texts.get(each) != texts.get(each))
            self._known[key] = kernels, "\n".join(texts.values()) if kernels else ""
        return self._known[key]

    def _lowered(self) -> dict[str, str]:
        """The text of each function; the instrumented entry is left out."""
        lowered, _ = lower(self.program.module(), context_for(self.target, precision=self.precision))
        return {
            name: script_of(func)
            for name, func in lowered.functions.items()
            if not name.endswith("__profile")
        }

    def _bound(self, values: Mapping[str, Any]) -> Callable[[], object]:
        """A call of newly compiled code; all versions share the memory of inputs and outputs."""
        with overridden(values), config.override(compile_processes=1):
            exe = dlc.compile(
                self.program.module(),
                self.target,
                precision=self.precision,
                cache=False,
            )
        if not self._outputs:
            self._outputs = [np.array(each) for each in _several(exe(*self._inputs))]
        return cast(Callable[[], object], exe.bind(self._inputs, self._outputs))

    def _ratio(self, key: str, values: Mapping[str, Any], seconds: float) -> float:
        """The ratio of times. If it matters, it is measured again, and the one closer to 1 is returned."""
        if key not in self._ratios:
            self._default = self._default or self._bound({})
            changed = self._bound(values)
            self._check(changed)
            ratio = ratio_of(changed, self._default, seconds, self.clock)
            if abs(ratio - 1) > MATTERS:
                again = ratio_of(self._bound(values), self._default, 2 * seconds, self.clock)
                ratio = min(ratio, again, key=lambda each: abs(log(each)))
            self._ratios[key] = ratio
        return self._ratios[key]

    def _check(self, changed: Callable[[], object]) -> None:
        """Raise ArithmeticError if the results of a version are not those of the default."""
        self._default()
        wanted = [np.array(each, np.float64) for each in self._outputs]
        changed()
        for found, each in zip(self._outputs, wanted, strict=True):
            if not np.max(np.abs(found - each), initial=0) <= TOLERANCE * np.max(np.abs(each), initial=0):
                raise ArithmeticError("results differ from those of the default")


def _several(results: Any) -> Sequence[Any]:
    return results if isinstance(results, tuple) else (results,)


def chosen_numbers(names: Sequence[str]) -> list[Number]:
    """The numbers of these names or families; all if there is no name.  `UsageError` for unknown names."""
    registry().import_deciders()
    known = declared()
    for name in names:
        if not any(f"{each}.".startswith(f"{name}.") for each in known):
            close = similar(name, [*known, *(each.rpartition(".")[0] for each in known)])
            hint = f"did you mean {close[0]!r}?" if close else "`dlc rules --heuristics` lists the numbers"
            raise UsageError(f"there is no heuristic or family {name!r}", hint=hint)
    wanted = [f"{name}." for name in names] or [""]
    return [number for full, number in known.items() if f"{full}.".startswith(tuple(wanted))]


def affected(
    numbers: Sequence[Number],
    versions: Sequence[Versions],
    factors: Sequence[float],
    step: Callable[[], object] = lambda: None,
) -> Mapping[tuple[str, float], Sequence[Versions]]:
    """The programs that change, by number and factor; `step` is called after each program and factor."""
    found: dict[tuple[str, float], list[Versions]] = {}
    for each in versions:
        for factor in factors:
            values = {
                number.name: value
                for number in numbers
                if number.name in each.reads and (value := scaled(number.default, factor)) != number.default
            }
            for name in each.affecting(values):
                found.setdefault((name, factor), []).append(each)
            step()
    return found


def rows(
    numbers: Sequence[Number],
    versions: Sequence[Versions],
    factors: Sequence[float],
    seconds: float,
    changing: Mapping[tuple[str, float], Sequence[Versions]],
    step: Callable[[str], object] = lambda name: None,
) -> Iterator[Row]:
    """The effects of each number times each factor; `step` is called with its name after each program."""
    for number in numbers:
        read = sum(number.name in each.reads for each in versions)
        for factor in factors:
            value = scaled(number.default, factor)
            changes: list[Change | None] = []
            for each in changing.get((number.name, factor), ()):
                changes.append(each.change({number.name: value}, seconds))
                step(number.name)
            yield Row(number.name, factor, str(value), read, tuple(filter(None, changes)))


def main(
    names: Annotated[
        list[str] | None, typer.Argument(help="Numbers, or families of numbers; all if none.", metavar="NAME")
    ] = None,
    target: Annotated[str, typer.Option(help="Without the number of threads.")] = "llvm",
    threads: Annotated[int, typer.Option(help="Threads of a call.")] = 1,
    seconds: Annotated[float, typer.Option(help="Of a measurement; with 0 nothing is measured.")] = 0.4,
    factor: Annotated[list[float] | None, typer.Option(help="Instead of 0.5 and 2; repeatable.")] = None,
    precision: Annotated[str, typer.Option(help="Some algorithms need `fast`.")] = "float32",
    only: Annotated[str, typer.Option(help="A part of the names of programs.")] = "",
    output: Annotated[Path | None, typer.Option(help="Write all figures to this JSON file.")] = None,
    markdown: Annotated[bool, typer.Option("--markdown", help="Print the table as Markdown.")] = False,
) -> None:
    """Change each number of the heuristics, and measure the programs whose kernels change."""
    console = Console()
    try:
        numbers = chosen_numbers(names or [])
    except UsageError as error:
        console.print(str(error), markup=False)
        raise typer.Exit(2) from None
    programs = [program for name, program in corpus().items() if only in name]
    if not programs:
        console.print(f"no program {only!r}; known: {', '.join(corpus())}", markup=False)
        raise typer.Exit(2)
    facts = machine()
    console.print(head(facts, [OURS]), markup=False)
    # The time of a thread does not include the time of other processes on its core.
    clock = time.thread_time if threads == 1 else time.perf_counter
    factors = factor or (0.5, 2.0)
    found: list[Row] = []
    with Progress(console=Console(stderr=True), transient=True) as progress:
        task = progress.add_task("corpus", total=len(programs))
        versions = []
        for program in programs:
            versions.append(Versions(program, f"{target} -num-threads={threads}", clock, precision))
            progress.advance(task)
        task = progress.add_task("kernels", total=len(programs) * len(factors))
        changing = affected(numbers, versions, factors, lambda: progress.advance(task))
        timing = progress.add_task("times", total=sum(map(len, changing.values())))

        def step(name: str) -> None:
            progress.update(timing, description=f"times: {name}", advance=1)

        for row in rows(numbers, versions, factors, seconds, changing, step):
            found.append(row)
            if output is not None:  # written after each row, so that little is lost if the run is stopped
                record = {"machine": facts, "rows": [each.record() for each in found]}
                output.write_text(json.dumps(record, indent=1) + "\n", encoding="utf-8")
    print_table(TITLES, [row.cells() for row in found], markdown=markdown)


if __name__ == "__main__":
    typer.run(main)
