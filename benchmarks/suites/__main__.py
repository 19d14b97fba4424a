"""`python -m benchmarks.suites COMMAND …`, see the package."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from benchmarks import suites
from benchmarks.report import print_table
from benchmarks.suites import table
from benchmarks.suites.gathering import from_backend, from_files, from_tests
from benchmarks.suites.workers import outcomes


def main(arguments: Sequence[str] | None = None) -> int:
    """The command line. `compare` and `show` return 1 if a model differs or crashes."""
    options = parser().parse_args(arguments)
    if options.what == "backend":
        print(f"{from_backend(options.folder)} models")
    elif options.what == "files":
        print(f"{from_files(options.folder, options.source, options.under)} models")
    elif options.what == "tests":
        print(f"{from_tests(options.folder, options.files, options.stub, options.option)} models")
    else:
        if options.what == "compare":
            records = compare(options)
        else:
            records = json.loads(options.file.read_text())
        print_table(table.TITLES, list(table.rows(records)), markdown=options.markdown)
        stored = list(table.stored_rows(records))
        if stored:
            print()
            print_table(table.STORED_TITLES, stored, markdown=options.markdown)
        for line in table.details(records):
            print(line)
        return int(any(each["outcome"] in ("differs", "crashed") for each in records.values()))
    return 0


def compare(options: Any) -> dict[str, Any]:
    """The outcomes of the models below a folder. Outcomes in the file of `--json` are kept, except those of
    `--again`.
    """
    file = options.json
    records = json.loads(file.read_text()) if file is not None and file.exists() else {}
    again = set(options.again.split(","))
    named = {path.relative_to(options.folder).as_posix()[:-5]: path for path in _models(options.folder)}
    records = {name: each for name, each in records.items() if name in named and each["outcome"] not in again}
    waiting = [path for name, path in named.items() if options.only in name and name not in records]
    names = {path: name for name, path in named.items()}
    for path, record in outcomes(waiting, options.target, options.limit, options.guard):
        records[names[path]] = record
        if record["peer"] == "runs" and record["outcome"] != "right":
            sys.stderr.write(f"{names[path]}: {record['outcome']}: {record['reason'][:200]}\n")
        if file is not None:
            _replace(file, json.dumps(records, indent=1, sort_keys=True))
    return {name: each for name, each in records.items() if options.only in name}


def _replace(file: Path, text: str) -> None:
    """Write a file so that an interruption leaves the old one."""
    made = file.with_name(f"{file.name}.new")
    made.write_text(text)
    made.replace(file)


def _models(folder: Path) -> list[Path]:
    return sorted(folder.rglob("*.onnx"))


def parser() -> argparse.ArgumentParser:
    made = argparse.ArgumentParser(
        prog="python -m benchmarks.suites", description=(suites.__doc__ or "").split("\n")[0]
    )
    commands = made.add_subparsers(dest="what", required=True)
    backend = commands.add_parser("backend", help="copy the backend tests of the onnx package")
    files = commands.add_parser("files", help="copy .onnx files, and convert .prototxt files")
    tests = commands.add_parser("tests", help="run Python tests and save the models that they use")
    for each in (backend, files, tests):
        each.add_argument("folder", type=Path, help="where the models go; outside of the repository")
    files.add_argument("source", type=Path, help="a folder, or a git folder, whose last commit is read")
    files.add_argument("--under", nargs="+", default=[], help="only these paths of it")
    tests.add_argument("files", type=Path, nargs="+", help="files or folders of tests")
    tests.add_argument(
        "--stub", nargs="+", default=[], help="packages that the tests need and that are absent"
    )
    tests.add_argument("--option", action="append", default=[], help="a further option of pytest")
    run = commands.add_parser("compare", help="run all models below a folder by onnxruntime and by dlc")
    run.add_argument("folder", type=Path)
    run.add_argument("--json", type=Path, help="the file of outcomes; a second run continues it")
    run.add_argument("--again", default="", help="outcomes that are found again: refused,differs,crashed")
    run.add_argument("--only", default="", help="models whose path contains this")
    run.add_argument("--target", help="of dlc; this machine if not given")
    run.add_argument("--guard", action="store_true", help="with pages without access around each buffer")
    run.add_argument("--limit", type=float, default=60.0, help="seconds of a stage (%(default)s)")
    show = commands.add_parser("show", help="print the table of kept outcomes")
    show.add_argument("file", type=Path, help="what `compare --json` wrote")
    for each in (run, show):
        each.add_argument("--markdown", action="store_true", help="print the table as Markdown")
    return made


if __name__ == "__main__":
    sys.exit(main())
