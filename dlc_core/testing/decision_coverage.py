"""Decision coverage: the alternatives of the compiler's decisions that differential tests have executed.

    make decisions                                         the tests that force decisions, then the report
    DLC_DECISION_COVERAGE=folder pytest tests/decisions    collect in a folder what any tests execute
    python -m dlc_core.testing.decision_coverage folder    the report of a folder

A test that has compared results calls `executed` with the choices of the compile. An alternative counts as
executed if such results were right. The exit code of the report is 1 if fewer than 95% were executed.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections import Counter
from collections.abc import Iterable
from pathlib import Path

from dlc_core.decisions import Choice, declared
from dlc_core.driver import pipelines

FOLDER = "DLC_DECISION_COVERAGE"
"""The environment variable with the folder in which alternatives are collected. If it is not set,
nothing is collected.
"""
GOAL = 0.95


def executed(choices: Iterable[str | Choice]) -> None:
    """Record the alternatives of choices, or of their texts, as executed with correct results."""
    if not (folder := os.environ.get(FOLDER)):
        return
    made = [Choice.parse(each) if isinstance(each, str) else each for each in choices]
    lines = dict.fromkeys(f"{each.decision}={each.alternative}\n" for each in made)
    Path(folder).mkdir(parents=True, exist_ok=True)
    with (Path(folder) / f"{os.getpid()}.txt").open("a", encoding="utf-8") as file:
        file.writelines(lines)


def counts(folder: Path) -> Counter[tuple[str, str]]:
    """The number of kernels or models with which each (decision, alternative) was executed."""
    found = Counter[tuple[str, str]]()
    for file in sorted(folder.glob("*.txt")):
        for line in file.read_text(encoding="utf-8").splitlines():
            decision, _, alternative = line.partition("=")
            found[decision, alternative] += 1
    return found


def alternatives() -> list[tuple[str, str]]:
    """All declared alternatives (decision, alternative) of the core and of loaded plugins."""
    pipelines(None)  # loads the passes, the rules and the plugins, which declare them
    return [(name, one) for name, decision in declared().items() for one in decision.alternatives]


def report(folder: Path) -> tuple[str, float]:
    """The report: a line for each decision with the counts of its alternatives; and the fraction of executed
    ones.
    """
    found, pairs = counts(folder), alternatives()
    by_name: dict[str, list[str]] = {}
    for name, one in pairs:
        by_name.setdefault(name, []).append(f"{one} {found[name, one]}")
    missing = [f"{name}={one}" for name, one in pairs if not found[name, one]]
    fraction = 1 - len(missing) / max(len(pairs), 1)
    lines = [f"{name:24} {', '.join(texts)}" for name, texts in by_name.items()]
    total = len(pairs)
    lines.append(
        f"{total - len(missing)} of {total} alternatives of {len(by_name)} decisions "
        f"were executed ({fraction:.1%})"
    )
    lines += [f"not executed: {each}" for each in missing]
    return "\n".join(lines), fraction


def main() -> int:
    """The command line. Returns 1 if the fraction is below the goal."""
    parser = argparse.ArgumentParser(
        prog=f"python -m {__spec__.name}", description=(__doc__ or "").split("\n")[0]
    )
    parser.add_argument("folder", type=Path, help=f"the value of {FOLDER} while the tests ran")
    text, fraction = report(parser.parse_args().folder)
    sys.stdout.write(text + "\n")
    return int(fraction < GOAL)


if __name__ == "__main__":
    sys.exit(main())

__all__ = ["FOLDER", "GOAL", "alternatives", "counts", "executed", "report"]
