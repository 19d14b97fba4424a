"""The command line."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from pathlib import Path

from benchmarks import exported
from benchmarks.exported import phases
from benchmarks.exported.building import build, build_one
from benchmarks.exported.checking import check, check_one, table
from benchmarks.exported.families import all_recipes


def main(arguments: Sequence[str] | None = None) -> int:
    """The command line; 1 where a model is wrong or crashed."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.exported", description=(exported.__doc__ or "").split("\n")[0]
    )
    parser.add_argument("what", choices=("build", "one", "check", "phases", "verdict", "list"))
    parser.add_argument("folder", type=Path, help="where the models are; outside of the repository")
    parser.add_argument("--only", default="", help="names that contain this")
    parser.add_argument("--limit", type=float, default=300.0, help="seconds that building a model may take")
    parser.add_argument("--markdown", action="store_true", help="print a table")
    options = parser.parse_args(arguments)
    if options.what == "build":
        build(options.folder, options.only, options.limit)
    elif options.what == "one":
        build_one(options.only, options.folder)
    elif options.what == "phases":
        return run_phases(options.folder, options.only)
    elif options.what == "verdict":
        print(json.dumps(check_one(options.folder)))
    elif options.what == "list":
        print("\n".join(all_recipes()))
    else:
        records = check(options.folder, options.only)
        print(table(records) if options.markdown else json.dumps(records, indent=1))
        return int(any(r["outcome"].startswith(("wrong", "crashed")) for r in records))
    return 0


def run_phases(folder: Path, only: str) -> int:
    """Print what each model of a folder comes to in each phase; 1 where one is not right."""
    paths = [p for p in sorted(folder.glob("*.onnx")) if only.replace("/", "-") in p.stem]
    found = {}
    for path in paths:
        found[path.stem] = phases.outcomes(path)
        sys.stderr.write(phases.rows({path.stem: found[path.stem]}).splitlines()[2] + "\n")
    print(phases.rows(found))
    return int(not all(map(phases.all_right, found.values())))


if __name__ == "__main__":
    sys.exit(main())
