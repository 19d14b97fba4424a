"""The gain of tuning: models compiled with the records that were found for them, and without.

    python -m benchmarks.tuning                          the light networks, 60 seconds each
    python -m benchmarks.tuning --models DIR --seconds 60 --threads 2 --json FILE [NAME ...]

A model is tuned into a database of its own. Then it is compiled twice, with the records and without them, and
the two executables run alternately in this process. `ratio` is the median of the ratios of neighbouring
intervals, tuned over untuned; `noise` the half width of its 95% interval. Nothing else may run beside it.
"""

from __future__ import annotations

import argparse
import json
import math
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from dlc_tune.comparing_models import compare_models
from dlc_tune.model_result import ModelResult
from dlc_tune.records.locations import RECORDS, RECORDS_URL
from dlc_tune.tuner import SPACES, tune

import dlc_core as dlc
from benchmarks.models import Case, default_cases, folder_cases
from dlc_core.config import config

COMPARE_SECONDS = 6.0


def measure(case: Case, seconds: float, target: str, spaces: Sequence[str], folder: Path) -> dict[str, Any]:
    """Tune a model and compare it. Times are milliseconds of one call."""
    path, inputs = case.make(folder), dict(case.feeds())
    url = str(folder / f"{case.name}.db")
    found = tune(path, target, seconds=seconds, space=tuple(spaces), database=url, inputs=inputs)
    assert isinstance(found, ModelResult)
    with config.override({RECORDS_URL: url, RECORDS: "exact"}):
        tuned = dlc.compile(path, target, cache=False)
    with config.override({RECORDS: "off"}):
        untuned = dlc.compile(path, target, cache=False)
    wrong, ratios = compare_models(tuned, untuned, inputs, COMPARE_SECONDS)
    kernels = {each.name: f"{each.space}: {_changed(dict(each.point))}" for each in found.chosen}
    kernels |= {each.decision: f"{each.option} instead of {each.preferred}" for each in found.decided}
    row: dict[str, Any] = {
        "model": case.name,
        "trials": found.trials,
        "seconds": found.seconds,
        "wrong": wrong,
    }
    if ratios is not None:
        row |= {"untuned": 1e3 * min(ratios.default), "tuned": 1e3 * min(ratios.candidate)}
        row |= {"ratio": ratios.ratio, "noise": ratios.noise}
    return row | {"withdrawn": found.withdrawn, "found": kernels}


def _changed(point: dict[str, str]) -> str:
    """A point in few words: without steps that are kept."""
    return ", ".join(f"{k}={v}" for k, v in point.items() if v not in ("kept", "-1", "1") or "step" not in k)


def report(rows: Sequence[dict[str, Any]], verbose: bool) -> str:
    """A table, and the geometric mean of the ratios."""
    lines = [
        f"{'model':<18} {'untuned ms':>11} {'tuned ms':>10} {'ratio':>7} {'noise':>7} {'trials':>7}  found"
    ]
    ratios = [row["ratio"] for row in rows if "ratio" in row]
    for row in rows:
        if "ratio" not in row:
            lines.append(f"{row['model']:<18} {row['wrong']}")
            continue
        lines.append(
            f"{row['model']:<18} {row['untuned']:>11.3f} {row['tuned']:>10.3f} {row['ratio']:>7.3f} "
            f"{row['noise']:>7.3f} {row['trials']:>7}  {len(row['found'])}{' ' + row['withdrawn']}"
        )
        if verbose:
            lines += [f"    {name}: {what}" for name, what in row["found"].items()]
    if ratios:
        mean = math.exp(sum(map(math.log, ratios)) / len(ratios))
        lines.append(f"geometric mean of the ratios of {len(ratios)} models: {mean:.3f}")
    return "\n".join(lines)


def main() -> int:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.tuning", description=(__doc__ or "").split("\n")[0]
    )
    parser.add_argument("names", nargs="*", help="only these models")
    parser.add_argument(
        "--models", type=Path, help="a folder of .onnx files with .npz files of the same names"
    )
    parser.add_argument("--seconds", type=float, default=60.0, help="the budget of a model")
    parser.add_argument("--target", default="llvm")
    parser.add_argument("--space", action="append", help="a search space; several in order")
    parser.add_argument("--json", type=Path, help="write the rows to a file")
    parser.add_argument("-v", "--verbose", action="store_true", help="show what was found for each kernel")
    options = parser.parse_args()
    cases = default_cases() if options.models is None else folder_cases(options.models)
    known = [case.name for case in cases]
    if unknown := [name for name in options.names if name not in known]:
        print(f"no model {unknown[0]}; known: {', '.join(known)}", file=sys.stderr)
        return 2
    rows = []
    with tempfile.TemporaryDirectory() as folder:
        for case in cases:
            if not options.names or case.name in options.names:
                spaces = options.space or SPACES
                rows.append(measure(case, options.seconds, options.target, spaces, Path(folder)))
                print(report(rows[-1:], options.verbose).split("\n", 1)[1], flush=True)
                if options.json is not None:
                    options.json.write_text(json.dumps(rows, indent=2))
    print(report(rows, False))
    return int(any(row["wrong"] for row in rows))


if __name__ == "__main__":
    sys.exit(main())
