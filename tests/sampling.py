"""The tests that `make test` runs; `make test-rest` runs the others.

`tests/long_tests.txt` lists the test functions whose cases take more than `BUDGET` seconds together: seconds,
number of cases, name. The sample has as many cases of such a function as fit in `BUDGET`, at least one. It
has none if a case takes more than `LONGEST` seconds on average. A hash of their names chooses the cases, so
they are the same in every process and on every machine. Functions that are not listed run whole.

Without the option `--part`, as with `pytest tests/test_x.py`, all cases run. Make the list again from a whole
run:

    make test ARGS=--junitxml=sample.xml; make test-rest ARGS=--junitxml=rest.xml
    python -m tests.sampling sample.xml rest.xml
"""

from __future__ import annotations

import re
import sys
import xml.etree.ElementTree as ElementTree
import zlib
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import NamedTuple

BUDGET = 1.2
"""The maximum time of the sampled cases of one function, in seconds."""

LONGEST = 2.5
"""If a case takes more seconds on average, only `make test-rest` runs its function."""

LIST = Path(__file__).parent / "long_tests.txt"


class Timing(NamedTuple):
    """The time of all cases of a test function."""

    seconds: float
    cases: int


def function_of(nodeid: str) -> str:
    """The dotted name of the test function of a test, as in JUnit files: module, classes, function."""
    path, *names = nodeid.partition("[")[0].split("::")
    return ".".join((path.removesuffix(".py").replace("/", "."), *names))


def sample(nodeids: Iterable[str], taken: Mapping[str, Timing]) -> set[str]:
    """The tests that are in the sample."""
    chosen: set[str] = set()
    cases: dict[str, list[str]] = {}
    for nodeid in nodeids:
        function = function_of(nodeid)
        if function in taken:
            cases.setdefault(function, []).append(nodeid)
        else:
            chosen.add(nodeid)
    for function, found in cases.items():
        seconds, number = taken[function]
        each = seconds / number
        if each <= LONGEST:
            found.sort(key=lambda nodeid: (zlib.crc32(nodeid.encode()), nodeid))
            chosen.update(found[: max(int(BUDGET / each), 1)])
    return chosen


def read_list(path: Path = LIST) -> dict[str, Timing]:
    """The test functions that take long."""
    found = {}
    for line in path.read_text().splitlines():
        seconds, cases, function = line.split()
        found[function] = Timing(float(seconds), int(cases))
    return found


def list_of(files: Iterable[Path]) -> str:
    """The text of the list, from the JUnit files of a run."""
    total: dict[str, Timing] = {}
    for file in files:
        for case in ElementTree.parse(file).getroot().iter("testcase"):
            function = f"{case.get('classname')}.{(case.get('name') or '').partition('[')[0]}"
            seconds, cases = total.get(function, Timing(0.0, 0))
            total[function] = Timing(seconds + float(case.get("time") or 0), cases + 1)
    long = sorted(
        (function, taken)
        for function, taken in total.items()
        if taken.seconds > BUDGET and re.search(r"\.test_\w+$", function)
    )
    return "".join(f"{taken.seconds:.1f} {taken.cases} {function}\n" for function, taken in long)


if __name__ == "__main__":
    LIST.write_text(list_of(map(Path, sys.argv[1:])))
