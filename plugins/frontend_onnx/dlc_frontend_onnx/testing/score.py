"""The test suite of the onnx package for dlc: every case runs in a separate process with a time limit.

    python -m dlc_frontend_onnx.testing.score                       # all cases on this machine's CPU
    python -m dlc_frontend_onnx.testing.score -t reference -k resize
    python -m dlc_frontend_onnx.testing.score -o report.json

The cases are those of the installed package that need no download. They run as in `onnx.backend.test`, with
its comparison of shape, dtype and value. None is left out. The values of the Bernoulli cases were drawn
without a seed; their shapes, dtypes and frequencies are compared. Outcomes are those of `Verdict`, "crashed"
for other exceptions and for processes that died, and "late" after the time limit.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import os
import sys
import tempfile
import time
import traceback
import unittest
import warnings
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from itertools import count
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any
from unittest import mock

import onnx
from onnx.backend.test import BackendTest
from onnx.backend.test.loader import load_model_tests

from dlc_core.diag import DlcError, UnsupportedError
from dlc_core.driver import find_target
from dlc_core.runtime.guard.faults import report_to, reported
from dlc_frontend_onnx.backend import DlcBackend, DlcBackendRep
from dlc_frontend_onnx.testing.suite import COINS, Score, Verdict, cases, coins_problem

KINDS = ("node", "simple", "real", "pytorch-converted", "pytorch-operator")
LIMIT = 60.0
"""Time limit of a case in seconds."""

Tests = dict[str, Callable[[], None]]


class Watched(DlcBackend):
    """The backend for one target, which stores the model that it prepared last."""

    target: str | None = None
    prepared: DlcBackendRep | None = None

    @classmethod
    def draws_coins(cls) -> bool:
        """Whether the latest model is a Bernoulli case, whose expected values were drawn without a seed."""
        return cls.prepared is not None and cls.prepared.model.model.name.startswith(COINS)

    @classmethod
    def is_compatible(cls, model: Any, device: str = "CPU", **kwargs: Any) -> bool:
        """Always true: no case is left out, and `prepare` reports unsupported parts."""
        return True

    @classmethod
    def prepare(cls, model: Any, device: str = "CPU", **kwargs: Any) -> DlcBackendRep:
        cls.prepared = super().prepare(model, device, **{"target": cls.target, **kwargs})
        return cls.prepared


class Suite(BackendTest):
    """The suite of the package, except that arrays in a sequence are compared like other arrays."""

    @classmethod
    def assert_similar_outputs(
        cls, ref_outputs: Any, outputs: Any, rtol: float, atol: float, model_dir: str | None = None
    ) -> None:
        if len(outputs) != len(ref_outputs):
            raise AssertionError(f"{len(outputs)} values, {len(ref_outputs)} are wanted")
        if Watched.draws_coins():
            problems = [problem for pair in zip(outputs, ref_outputs) if (problem := coins_problem(*pair))]
            if problems:
                raise AssertionError(problems[0])
            return
        for wanted, found in zip(ref_outputs, outputs):
            is_list = isinstance(wanted, (list, tuple))
            if isinstance(found, (list, tuple)) != is_list or (found is None) != (wanted is None):
                raise AssertionError(f"a {type(found).__name__}, a {type(wanted).__name__} is wanted")
            if is_list:
                cls.assert_similar_outputs(wanted, found, rtol, atol, model_dir)
            elif wanted is not None:
                super().assert_similar_outputs([wanted], [found], rtol, atol, model_dir)


def load_tests(modules: Sequence[str] = ()) -> Tests:
    """The cases as functions by name: all, or the node cases of some modules (see `suite.cases`)."""

    def chosen(kind: str) -> Sequence[Any]:
        if kind == "node":
            return cases(*modules)
        if modules:
            return ()
        found = load_model_tests(kind=kind)
        return [case for case in found if case.url is None or case.url.startswith("onnx/backend/test/data/")]

    with mock.patch("onnx.backend.test.runner.load_model_tests", chosen):
        classes = Suite(Watched, __name__).test_cases
    tests: Tests = {}
    for cls in classes.values():
        for name in unittest.defaultTestLoader.getTestCaseNames(cls):
            if name.endswith("_cpu"):
                tests[name.removesuffix("_cpu")] = getattr(cls(name), name)
    return dict(sorted(tests.items()))


def judge_test(name: str, test: Callable[[], None]) -> Verdict:
    """The verdict of one case, in this process."""
    Watched.prepared = None
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # some cases test overflows and invalid values
            test()
    except unittest.SkipTest as skipped:
        return Verdict(name, "refused", str(skipped))
    except UnsupportedError as error:
        return Verdict(name, "unsupported", str(error))
    except DlcError as error:
        return Verdict(name, "refused", str(error))
    except AssertionError as error:
        return Verdict(name, "wrong", " ".join(str(error).split()))
    except Exception:  # noqa: BLE001  (any other exception is a defect)
        return Verdict(name, "crashed", traceback.format_exc(limit=-3))
    return Verdict(name, "pass", notes=_notes(Watched.prepared))


def _notes(prepared: DlcBackendRep | None) -> tuple[str, ...]:
    """The parts that were not native code before the call."""
    if prepared is None:
        return ()
    made = prepared.model.latest
    host = [f"host: {entry['op']}: {entry['why']}" for entry in made.about.get("host", ())]
    fixed = [f"constant: {name}" for name in prepared.model.decisive]
    return (*dict.fromkeys(host), *fixed)


@dataclass
class Worker:
    """A process that runs one case at a time."""

    process: BaseProcess
    pipe: Connection
    fault: Path
    """The file of the process's fault report."""
    case: str = ""
    until: float = 0.0

    def close(self) -> None:
        self.process.kill()
        self.process.join()
        self.pipe.close()


def run(
    tests: Mapping[str, Callable[[], None]],
    *,
    target: str | None = None,
    jobs: int = 0,
    limit: float = LIMIT,
    modules: Sequence[str] = (),
) -> Iterator[Verdict]:
    """The verdicts of cases as they finish. `jobs` 0 is one process per usable core.

    It forks if the system can, so the caller must not have started native threads before. `modules` are the
    modules of `tests`, for systems that spawn processes.
    """
    fork = "fork" in multiprocessing.get_all_start_methods()
    context: Any = multiprocessing.get_context("fork" if fork else "spawn")
    Watched.target = target
    waiting = list(tests)[::-1]
    workers: list[Worker] = []
    folder = tempfile.TemporaryDirectory(prefix="dlc-score-")
    numbers = count()

    def start() -> Worker:
        here, there = context.Pipe()
        fault = Path(folder.name) / f"fault{next(numbers)}"
        given = tests if fork else modules
        process = context.Process(target=_work, args=(there, given, target, fault), daemon=True)
        process.start()
        there.close()
        return Worker(process, here, fault)

    def feed(worker: Worker) -> None:
        if waiting:
            worker.case = waiting.pop()
            worker.until = time.monotonic() + limit
            worker.pipe.send(worker.case)
        else:
            workers.remove(worker)
            worker.close()

    try:
        for _ in range(min(jobs or _cores(), len(tests))):
            workers.append(start())
            feed(workers[-1])
        while workers:
            soonest = min(worker.until for worker in workers)
            ready = wait([worker.pipe for worker in workers], max(0.0, soonest - time.monotonic()))
            for worker in list(workers):
                if worker.pipe in ready:
                    verdict = _received(worker)
                elif time.monotonic() >= worker.until:
                    verdict = Verdict(worker.case, "late", f"it took more than {limit:g} s")
                else:
                    continue
                yield verdict
                if verdict.outcome == "late" or not worker.process.is_alive():
                    workers.remove(worker)
                    worker.close()
                    if not waiting:
                        continue
                    worker = start()
                    workers.append(worker)
                feed(worker)
    finally:
        for worker in workers:
            worker.close()
        folder.cleanup()


def _received(worker: Worker) -> Verdict:
    try:
        verdict: Verdict = worker.pipe.recv()
        return verdict
    except (EOFError, OSError):
        worker.process.join()
        details = [f"its process ended with code {worker.process.exitcode}", *reported(worker.fault).lines()]
        return Verdict(worker.case, "crashed", "; ".join(details))


def _work(
    pipe: Connection,
    given: Mapping[str, Callable[[], None]] | Sequence[str],
    target: str | None,
    fault: Path,
) -> None:
    report_to(fault)
    tests = given if isinstance(given, Mapping) else load_tests(given)
    Watched.target = target
    while True:
        try:
            name = pipe.recv()
        except EOFError:
            return
        pipe.send(judge_test(name, tests[name]))


def _cores() -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def native_cases(score: Score) -> list[Verdict]:
    """The passing cases that run no op on the host, including those compiled for values of inputs."""
    return [v for v in score.of("pass") if not any(note.startswith("host") for note in v.notes)]


def summary(score: Score) -> str:
    """Counts, the reasons of failures, and the parts of passing cases that were not native."""
    counts, total = score.counts, len(score.verdicts)
    passed = score.of("pass")
    on_host = [v for v in passed if any(note.startswith("host") for note in v.notes)]
    native = native_cases(score)
    fixed = [v for v in native if v.notes]
    share = len(native) / max(len(passed), 1)
    lines = [
        f"{counts['pass']} of {total} pass ({counts['pass'] / max(total, 1):.1%})",
        f"of these {len(native)} are wholly native ({share:.1%})",
        f"{len(on_host)} run partly on the host, {len(fixed)} native ones are compiled for values of inputs",
        ", ".join(f"{count} {outcome}" for outcome, count in counts.most_common() if outcome != "pass"),
    ]
    for outcome in ("wrong", "crashed", "late"):
        lines += [
            f"  {outcome}: {v.name}: {v.reason.strip().splitlines()[-1][:160]}" for v in score.of(outcome)
        ]
    for outcome in ("unsupported", "refused"):
        reasons = Counter(v.reason.split("\n")[0][:120] for v in score.of(outcome))
        lines += [f"  {outcome}: {count:4} {reason}" for reason, count in reasons.most_common()]
    notes = Counter(note for v in on_host for note in v.notes if note.startswith("host"))
    lines += [f"  {count:4} {note}" for note, count in notes.most_common()]
    return "\n".join(line for line in lines if line)


def report(score: Score, target: str) -> dict[str, Any]:
    """The score as JSON data."""
    return {
        "onnx": onnx.__version__,
        "target": target,
        "counts": dict(score.counts),
        "native": len(native_cases(score)),
        "cases": [asdict(verdict) for verdict in sorted(score.verdicts, key=lambda v: v.name)],
    }


def score_of(tests: Tests, **options: Any) -> Score:
    """The verdicts of all cases. Models that cases copy go to a temporary folder."""
    with tempfile.TemporaryDirectory() as folder, mock.patch.dict(os.environ, {"ONNX_MODELS": folder}):
        return Score(list(run(tests, **options)))


def main(arguments: Sequence[str] | None = None) -> int:
    """The command line; returns 1 if a case was wrong, crashed or late."""
    parser = argparse.ArgumentParser(
        prog="python -m dlc_frontend_onnx.testing.score", description=(__doc__ or "").split("\n")[0]
    )
    parser.add_argument("-t", "--target", help="target; by default this machine's CPU")
    parser.add_argument("-k", "--only", default="", help="only cases whose names contain this")
    parser.add_argument("-j", "--jobs", type=int, default=0, help="processes; by default one for each core")
    parser.add_argument("--limit", type=float, default=LIMIT, help="seconds that a case may take")
    parser.add_argument("-o", "--output", type=Path, help="write the verdicts to a JSON file")
    options = parser.parse_args(arguments)
    try:
        target = str(find_target(options.target))
    except DlcError as error:
        parser.error(str(error))
    tests = {name: test for name, test in load_tests().items() if options.only in name}
    score = score_of(tests, target=target, jobs=options.jobs, limit=options.limit)
    if options.output is not None:
        options.output.write_text(json.dumps(report(score, target), indent=1) + "\n", encoding="utf-8")
    sys.stdout.write(f"onnx {onnx.__version__} on {target}: {summary(score)}\n")
    return int(any(score.of(outcome) for outcome in ("wrong", "crashed", "late")))


__all__ = [
    "LIMIT",
    "judge_test",
    "load_tests",
    "main",
    "native_cases",
    "report",
    "run",
    "score_of",
    "summary",
]

if __name__ == "__main__":
    sys.exit(main())
