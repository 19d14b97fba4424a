"""Mutation testing of index arithmetic: wrong sums, factors and bounds must be detected.

    python -m tests.mutation.run --count 220 --processes 2

First every check runs once on the unmodified code, which records the nodes that it evaluates, its time, and
the number of accesses that are not proved. Then each mutant runs the checks that evaluate it, the fastest
first, in a separate process, until one detects it: fewer accesses are proved, the process crashes (as in
guard mode), numbers differ, or something raises.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import resource
import signal
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from tests.mutation.check import Check
from tests.mutation.kernels import kernel_checks
from tests.mutation.mutants import Mutant, Place, Probes, all_mutants, apply, drawn
from tests.mutation.ordinary import FILES, ordinary_checks
from tests.mutation.programs import program_checks
from tests.mutation.rules import rule_checks

SURVIVED = "survived"
SECONDS, TIMES, WAIT = 20, 10, 900
"""The limits of a check: seconds of computing, the factor of its usual time, and seconds in all. A mutant
that exceeds them is detected.
"""
MEMORY = 12 << 30
"""The maximum address space of a process, in bytes."""


@dataclass(frozen=True)
class Facts:
    """A check of the unmodified code: its seconds of computing, accesses that are not proved, evaluated
    nodes.
    """

    check: Check
    seconds: float
    open: int
    nodes: frozenset[Place]


@dataclass(frozen=True)
class Verdict:
    """How a mutant was detected and by which check, or that it survived."""

    said: str
    check: str

    @property
    def kind(self) -> str:
        """The way in which it was detected."""
        if self.said.startswith("ended by"):
            return "the process does not survive"
        kinds = {
            "NotProvedError": "an access is not proved",
            "AssertionError": "numbers differ",
            "FailedTestError": "an ordinary test fails",
        }
        return kinds.get(self.said, self.said if self.said == SURVIVED else "the compiler or a check refuses")


class NotProvedError(Exception):
    """More accesses are not proved than in the unmodified code."""


def all_checks() -> list[Check]:
    return [*program_checks(), *rule_checks(), *kernel_checks(), *ordinary_checks()]


def in_processes(
    jobs: Sequence[Callable[[], Iterator[str]]], processes: int
) -> Iterator[tuple[int, list[str]]]:
    """Run jobs in forks of this process, up to `processes` at a time. Yields the number of each job and its
    lines.

    If a job did not finish, its last line has the reason.
    """
    waiting, running = list(enumerate(jobs))[::-1], dict[int, tuple[int, int]]()
    while waiting or running:
        while waiting and len(running) < processes:
            number, job = waiting.pop()
            reader, writer = os.pipe()
            child = os.fork()
            if not child:
                os.close(reader)
                _child(job, writer)
            os.close(writer)
            running[child] = number, reader
        child, status = os.wait()
        number, reader = running.pop(child)
        with os.fdopen(reader) as text:
            lines = text.read().splitlines()
        if os.WIFSIGNALED(status):
            lines.append(f"ended by {signal.Signals(os.WTERMSIG(status)).name}")
        yield number, lines


def _child(job: Callable[[], Iterator[str]], writer: int) -> None:
    """Write the lines of a job, and end the process."""
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    for each in (signal.SIGALRM, signal.SIGPROF):
        signal.signal(each, signal.SIG_DFL)
    with Path(os.devnull).open("w") as nowhere:
        os.dup2(nowhere.fileno(), 1)
        os.dup2(nowhere.fileno(), 2)
    try:
        for line in job():
            os.write(writer, f"{line}\n".encode())
    finally:
        os._exit(0)


def facts_of(checks: Sequence[Check], mutants: Sequence[Mutant], processes: int) -> list[Facts]:
    """Run all checks on the unmodified code. Raises SystemExit if one of them fails."""
    names = list(dict.fromkeys(m.place for m in mutants))
    probes = Probes(names)

    def job(check: Check) -> Iterator[str]:
        seen = probes.install()
        begin = time.process_time()
        try:
            found = check.run()
        except BaseException as error:  # noqa: BLE001  (it is reported)
            yield json.dumps(f"{type(error).__name__}: {error}"[:2000])
        else:
            yield json.dumps([time.process_time() - begin, found, sorted(seen)])

    made = []
    jobs = [partial(job, check) for check in checks]
    for number, lines in in_processes(jobs, processes):
        found = json.loads(lines[0]) if lines and lines[0][:1] in '["' else str(lines)
        if isinstance(found, str):
            raise SystemExit(f"the code as it is does not pass {checks[number].name}: {found}")
        seconds, left, nodes = found
        made.append(Facts(checks[number], seconds, left, frozenset(names[n] for n in nodes)))
    return made


def kept_facts(file: Path | None, mutants: Sequence[Mutant], processes: int) -> list[Facts]:
    """Read the facts about these sources from a file, or run all checks and write them."""
    checks, sources = all_checks(), _digest()
    if file is not None and file.exists():
        kept = json.loads(file.read_text(encoding="utf-8"))
        if kept["sources"] == sources:
            by_name = {check.name: check for check in checks}
            places = [(module, tuple(path), node) for module, path, node in kept["places"]]
            return [
                Facts(by_name[name], seconds, left, frozenset(places[n] for n in nodes))
                for name, seconds, left, nodes in kept["checks"]
            ]
    facts = facts_of(checks, mutants, processes)
    if file is not None:
        numbers = {place: n for n, place in enumerate(sorted({p for f in facts for p in f.nodes}))}
        rows = [[f.check.name, f.seconds, f.open, sorted(numbers[p] for p in f.nodes)] for f in facts]
        text = json.dumps({"sources": sources, "places": list(numbers), "checks": rows})
        file.write_text(text, encoding="utf-8")
    return facts


def _digest() -> str:
    """A digest of all files that determine what checks evaluate."""
    here = Path(__file__).resolve()
    tests = [here.parents[1] / file for file in FILES]
    files = [*(here.parents[2] / "dlc_core").rglob("*.py"), *here.parent.glob("*.py"), *tests]
    made = hashlib.sha256()
    for file in sorted(set(files) - {here.with_name("equivalent.py")}):
        made.update(file.read_bytes())
    return made.hexdigest()


def verdicts(
    mutants: Sequence[Mutant], checks: Sequence[Sequence[Facts]], processes: int
) -> Iterator[tuple[int, Verdict]]:
    """Yield the number and the verdict of each mutant."""

    def job(mutant: Mutant, own: Sequence[Facts]) -> Iterator[str]:
        apply(mutant)
        for each in own:
            yield each.check.name
            signal.alarm(WAIT)
            signal.setitimer(signal.ITIMER_PROF, SECONDS + TIMES * each.seconds)
            try:
                if each.check.run() > each.open:
                    raise NotProvedError
            except BaseException as error:  # noqa: BLE001  (whatever it is, it was seen)
                yield type(error).__name__
                return
        yield SURVIVED

    jobs = [partial(job, m, own) for m, own in zip(mutants, checks, strict=True)]
    for number, lines in in_processes(jobs, processes):
        name, said = lines[-2:] if len(lines) > 1 else ("", lines[-1] if lines else "nothing")
        yield number, Verdict(said, name)


def evaluated(mutants: Sequence[Mutant], facts: Sequence[Facts]) -> list[tuple[Mutant, list[Facts]]]:
    """The mutants that some check evaluates, with their checks, the fastest first."""
    by_place: dict[Place, list[Facts]] = {}
    for each in sorted(facts, key=lambda f: (f.seconds, f.check.name)):
        for place in each.nodes:
            by_place.setdefault(place, []).append(each)
    return [(m, by_place[m.place]) for m in mutants if m.place in by_place]


def main() -> None:
    parser = argparse.ArgumentParser(description="Change index arithmetic and see what notices.")
    parser.add_argument("--count", type=int, default=220)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--processes", type=int, default=2)
    parser.add_argument(
        "--facts", type=Path, help="a file that keeps what checks evaluate, while sources stay"
    )
    parser.add_argument("--only", default="", help="part of the text of the mutants wanted")
    options = parser.parse_args()
    mutants, begin = all_mutants(), time.monotonic()
    facts = kept_facts(options.facts, mutants, options.processes)
    known = evaluated(mutants, facts)
    total = sum(f.seconds for f in facts)
    print(f"{len(facts)} checks of {total:.0f} s evaluate {len(known)} of {len(mutants)} mutants", flush=True)
    if options.only:
        known = [(m, own) for m, own in known if options.only in str(m)]
    chosen = drawn(known, options.count, options.seed)
    outcomes, kinds = Counter[str](), Counter[str]()
    for number, found in verdicts(*zip(*chosen, strict=True), options.processes):
        outcomes[found.said] += 1
        kinds[found.kind] += 1
        mutant = chosen[number][0]
        print(f"{found.said:24} {found.check:40} {mutant}", flush=True)
    caught = len(chosen) - kinds[SURVIVED]
    share = caught / max(len(chosen), 1)
    print(f"{caught} of {len(chosen)} noticed ({share:.1%}) in {time.monotonic() - begin:.0f} s")
    for said, number in kinds.most_common():
        print(f"{number:5}  {said}")


if __name__ == "__main__":
    main()

__all__ = ["SURVIVED", "Facts", "Verdict", "all_checks", "evaluated", "facts_of", "verdicts"]
