"""`python -m benchmarks.corpus COMMAND [FOLDER] [--only TEXT] …`, with the commands of `COMMANDS`."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from pathlib import Path

from benchmarks import corpus, running
from benchmarks.corpus import costs, kept, listing, phases, scaling
from benchmarks.corpus.building import build, build_one
from benchmarks.corpus.catalog import chosen
from benchmarks.corpus.checking import check, check_one, table
from benchmarks.corpus.measuring import cases_of, named
from benchmarks.report import print_table


def main(arguments: Sequence[str] | None = None) -> int:
    """The command line. Returns 1 if a model is wrong, crashed or is slower than before."""
    options = parser().parse_args(arguments)
    if options.what == "list":
        rows = listing.rows(chosen(options.only, small=options.small), options.folder)
        print_table(listing.TITLES, rows, markdown=options.markdown)
    elif options.what == "build":
        return int(build(options.folder, chosen(options.only, small=options.small), options.limit) > 0)
    elif options.what == "one":
        build_one(options.only, options.folder)
    elif options.what == "measure":
        wanted = named(options.only)
        return running.run(cases_of(options.folder, wanted), options, wanted)
    elif options.what in ("costs", "scaling"):
        cases = cases_of(options.folder, named(options.only))
        measure = costs.run if options.what == "costs" else scaling.run
        return measure(cases, options.threads, options.seconds, options.json, markdown=options.markdown)
    elif options.what == "processors":
        return judge_code(options)
    elif options.what == "show":
        record = kept.joined([options.folder, *options.more])
        print_table(*kept.table(record), markdown=options.markdown)
        print("\n" + "\n".join(kept.means(record)))
    elif options.what == "phases":
        return run_phases(options.folder, options.only)
    elif options.what == "verdict":
        print(json.dumps(check_one(options.folder)))
    else:
        records = check(options.folder, options.only)
        print(table(records) if options.markdown else json.dumps(records, indent=1))
        return int(any(r["outcome"].startswith(("wrong", "crashed")) for r in records))
    return 0


def parser() -> argparse.ArgumentParser:
    made = argparse.ArgumentParser(
        prog="python -m benchmarks.corpus", description=(corpus.__doc__ or "").split("\n")[0]
    )
    commands = made.add_subparsers(dest="what", required=True)
    for name, text in COMMANDS.items():
        command = commands.add_parser(name, help=text)
        command.add_argument(
            "folder",
            type=Path,
            nargs="?" if name == "list" else None,
            help=FILE if name == "show" else "where the models are; outside of the repository",
        )
        command.add_argument("--only", default="", help="names that contain this, or one of A,B")
        if name in ("list", "build"):
            command.add_argument("--small", action="store_true", help="the reduced networks")
        if name == "build":
            command.add_argument(
                "--limit", type=float, default=600.0, help="seconds that a model may take (%(default)s)"
            )
        if name == "measure":
            running.add_options(command, apart=True)
        elif name in ("list", "check", "costs", "scaling", "processors", "show"):
            command.add_argument("--markdown", action="store_true", help="print a table as Markdown")
        if name == "show":
            command.add_argument("more", type=Path, nargs="*", help="further runs on the same machine")
        if name == "processors":
            command.add_argument("--processors", default="", help="only these, separated by commas")
        if name in ("costs", "scaling"):
            threads = 1 if name == "costs" else 2
            command.add_argument("--threads", type=int, default=threads, help="(%(default)s)")
            command.add_argument(
                "--seconds", type=float, default=2.0, help="measured per model (%(default)s)"
            )
            command.add_argument("--json", type=Path, help="also write all figures to this file")
    return made


FILE = "a file that `measure --json` wrote"
COMMANDS = {
    "list": "list the recipes; with a folder, the parameters and inputs of its models too",
    "build": "build the models that are not in the folder",
    "measure": "measure the models of the folder against installed peers",
    "check": "compile each model and compare its results with the stored ones",
    "phases": "run each model in four ways, each in a process of its own",
    "costs": "compare the predicted time of each kernel with its measured time and its roofline",
    "scaling": "compare the times of each kernel with one thread and with several",
    "processors": "compile the models for several processors and judge the assembly of their kernels",
    "show": "print the table and the means of kept measurements",
    "one": "build the model of the name --only, in this process",
    "verdict": "check one model file, in this process",
}


def run_phases(folder: Path, only: str) -> int:
    """Print the outcomes of each model of a folder in each phase. Returns 1 if one is not right."""
    paths = [p for p in sorted(folder.glob("*.onnx")) if only.replace("/", "-") in p.stem]
    found = {}
    for path in paths:
        found[path.stem] = phases.outcomes(path)
        sys.stderr.write(phases.rows({path.stem: found[path.stem]}).splitlines()[2] + "\n")
    print(phases.rows(found))
    return int(not all(map(phases.all_right, found.values())))


def judge_code(options: argparse.Namespace) -> int:
    """Print what the code of the kernels is like on each processor. Returns 1 if a model is not compiled."""
    from benchmarks.corpus import processors

    wanted = named(options.only)
    paths = [path for path in sorted(options.folder.glob("*.onnx")) if wanted(path.stem)]
    names = [name for name in options.processors.split(",") if name] or list(processors.PROCESSORS)
    unknown = sorted({*names} - {*processors.PROCESSORS})
    if unknown:
        raise SystemExit(f"no processor {unknown[0]!r}: there are {', '.join(processors.PROCESSORS)}")
    rows, lines = processors.measured(paths, names)
    print_table(processors.TITLES, rows, markdown=options.markdown)
    print("\n".join(lines))
    return int(any(row[-1] != "0" for row in rows))


if __name__ == "__main__":
    sys.exit(main())
