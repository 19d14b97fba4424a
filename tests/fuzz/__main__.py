"""The command line of the fuzzers."""

from __future__ import annotations

import argparse
import math
import os
import sys
from pathlib import Path

from tests.fuzz import driver, worker


def _print(report: driver.Report) -> None:
    print(f"  … {report.text()}", flush=True)


def main() -> int:
    options = argparse.ArgumentParser(prog="python -m tests.fuzz", description=worker.__doc__)
    options.add_argument("target", choices=[*worker.names(), "all"])
    options.add_argument("--runs", type=int, default=1000)
    options.add_argument("--seed", type=int, default=int.from_bytes(os.urandom(4), "little"))
    options.add_argument("--first", type=int, default=0, help="the number of the first case")
    options.add_argument("--seconds", type=float, default=math.inf, help="the most time for each target")
    options.add_argument("--out", type=Path, default=Path("build/fuzz"), help="the folder of findings")
    options.add_argument("--replay", type=Path, help="run one input and print its finding")
    options.add_argument("--rng", default="replay", help="the random numbers of the replay")
    options.add_argument("--no-shrink", action="store_true")
    given = options.parse_args()
    if given.replay is not None:
        found = driver.replay(given.target, given.replay.read_bytes(), given.rng)
        print("no finding" if found is None else f"{found.place}\n\n{found.text}")
        return int(found is not None)
    failed = 0
    for name in worker.names() if given.target == "all" else [given.target]:
        out = given.out / name
        shrink = not given.no_shrink
        report = driver.run(name, given.runs, given.seed, given.first, out, shrink, _print, given.seconds)
        print(f"{name}, seed {given.seed}: {report.text()}", flush=True)
        for finding in report.findings.values():
            print(f"  case {finding.number}, {len(finding.data)} bytes: {finding.place}")
        failed += len(report.findings)
    if failed:
        print(f"the inputs are in {given.out}")
    return min(failed, 100)


if __name__ == "__main__":
    sys.exit(main())
