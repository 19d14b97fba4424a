"""Running of cases in forked workers; a worker that dies is counted and replaced."""

from __future__ import annotations

import os
import random
import signal
import tempfile
import traceback
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path

import dlc_core as dlc
from dlc_core.cancel import CancelToken, entered
from dlc_core.diag import DlcError
from tests.forging.files import forged, forged_portable
from tests.forging.graphs import changed
from tests.forging.models import GRAPHS, write
from tests.forging.mutations import mutate
from tests.fuzz.calls import call

BATCH = 500
SECONDS = 20
"""After this time a case is cancelled; after three times this time its worker is ended by a signal."""
Case = Callable[[int], str]


def run(
    runs: int,
    seed: int,
    target: str,
    contract: bool = False,
    models: Sequence[str] = ("mlp",),
    portable: bool = False,
    report: Callable[[str, int], None] = lambda word, number: None,
) -> Counter[str]:
    """Counts of outcomes: kinds of errors, "called", "refused" for calls, and "died" with the status.

    `report` gets deaths and unexpected errors, each with the number of its case.
    """
    total: Counter[str] = Counter()
    with tempfile.TemporaryDirectory() as name:
        seeds = []
        for model in models:
            path = Path(name, f"{model}.dlc")
            if portable:
                dlc.save_portable(GRAPHS[model](), path)
            else:
                write(model, target, path)
            seeds.append(path.read_bytes())

        def case(number: int) -> str:
            rng = random.Random(f"{seed} {number}")
            path = Path(name, "bad.dlc")
            data = seeds[number % len(seeds)]
            with entered(CancelToken(timeout=SECONDS)):
                return (
                    _portable(data, path, rng, target) if portable else _compiled(data, path, rng, contract)
                )

        first = 0
        while first < runs:
            first = _batch(case, first, min(first + BATCH, runs), total, report)
    return total


def _batch(case: Case, first: int, end: int, total: Counter[str], report: Callable[[str, int], None]) -> int:
    """Run cases in one worker. Returns the number of the next case."""
    reader, writer = os.pipe()
    child = os.fork()
    if not child:
        os.close(reader)
        for number in range(first, end):
            signal.alarm(3 * SECONDS)
            try:
                word = case(number)
            except BaseException as error:  # noqa: BLE001
                place = traceback.extract_tb(error.__traceback__)[-1]
                word = (
                    f"unexpected {type(error).__name__}: {error!r:.100} in {place.name}, line {place.lineno}"
                )
                word = word.replace("\n", " ")
            os.write(writer, f"{word}\n".encode())
        os._exit(0)
    os.close(writer)
    with open(reader) as lines:  # noqa: PTH123
        words = [line.strip() for line in lines]
    status = os.waitpid(child, 0)[1]
    if status:
        words.append(f"died {status}")
    for number, word in enumerate(words, first):
        if word.startswith(("unexpected", "died")):
            report(word, number)
    total.update(word.partition(":")[0] for word in words)
    return first + len(words) if status else end


def _compiled(data: bytes, path: Path, rng: random.Random, contract: bool) -> str:
    """Open and call one forged file with code."""
    path.write_bytes(forged(data, lambda header: mutate(rng, header), contract=contract))
    try:
        exe = dlc.open(path, trust=True, num_threads=1)
        found = call(exe, rng)
        for name in exe.entries:
            call(exe[name], rng)
    except DlcError as error:
        return type(error).__name__
    return found


def _portable(data: bytes, path: Path, rng: random.Random, target: str) -> str:
    """Open, compile and call one forged portable model."""
    guard = rng.choice(("end", "begin", "off"))
    try:
        with dlc.config.config.override(
            cache=False, max_seconds=SECONDS, max_bytes=1 << 30, guard=guard, check_bounds=False
        ):
            _write_portable(data, path, rng)
            exe = dlc.open(path, target, num_threads=1)
            found = call(exe, rng)
            for name in exe.entries:
                call(exe[name], rng)
    except DlcError as error:
        return type(error).__name__
    return found


def _write_portable(data: bytes, path: Path, rng: random.Random) -> None:
    """Write a forged portable model: JSON that may be anything, or a graph whose types are right."""
    if rng.random() < 0.5:
        part = "header" if rng.random() < 0.1 else "graph"
        path.write_bytes(forged_portable(data, **{part: lambda value: mutate(rng, value)}))
        return
    path.write_bytes(data)
    dlc.save_portable(changed(dlc.load(path), rng), path)


__all__ = ["run"]
