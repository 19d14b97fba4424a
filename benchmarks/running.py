"""A run of measurements: options, measurements of models, the report, comparison with an earlier run."""

from __future__ import annotations

import argparse
import gc
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any
from zipfile import BadZipFile

from benchmarks import against
from benchmarks.chart import check_chart, write_chart
from benchmarks.measure import OF_LARGEST, Result, measure_case
from benchmarks.models import Case
from benchmarks.peers import OURS, Peer, for_targets, installed_peers
from benchmarks.report import head, machine, print_report, write_json


def add_options(parser: argparse.ArgumentParser, *, apart: bool) -> None:
    """Add the options of a run. With `apart` each side has a separate process, and its peak memory is
    measured.
    """
    parser.set_defaults(apart=apart)
    parser.add_argument(
        "--targets", nargs="+", default=[], help="of ours: the first is measured, the others beside it"
    )
    parser.add_argument(
        "--at-most", type=float, help="fail where the first target takes more than so many times another's"
    )
    parser.add_argument("--threads", default="1,2", help="thread counts (%(default)s)")
    parser.add_argument(
        "--seconds", type=float, default=2.0, help="measured per model and peer (%(default)s)"
    )
    parser.add_argument(
        "--precision",
        default="float32",
        help="of ours and of the peers that can be told: float32, fast, bfloat16, float16 (%(default)s)",
        choices=("float32", "fast", *OF_LARGEST),
    )
    parser.add_argument(
        "--peers", help="only these, with commas between; all that are installed if not given"
    )
    parser.add_argument(
        "--limit", type=float, default=300.0, help="seconds that a peer has for a model's start (%(default)s)"
    )
    if apart:
        parser.add_argument("--memory", action="store_true", help="also measure processes that serve")
    else:
        parser.add_argument(
            "--no-memory", dest="memory", action="store_false", help="leave the memory columns out"
        )
    parser.add_argument("--markdown", action="store_true", help="print the table as Markdown")
    parser.add_argument("--json", type=Path, help="also write all figures to this file, model by model")
    parser.add_argument(
        "--chart", type=Path, help="also draw the ratios: a .html file, or .png by matplotlib"
    )
    parser.add_argument(
        "--against", type=Path, help="the --json of an earlier run; a regression gives exit code 1"
    )
    parser.add_argument(
        "--threshold",
        type=float,
        default=against.THRESHOLD,
        help="part by which a time may grow, with --against (%(default)s)",
    )


def run(cases: Sequence[Case], options: argparse.Namespace, wanted: Callable[[str], bool]) -> int:
    """Measure, report, compare. `wanted` selects the models of an earlier run that are expected again.
    Returns 1 if dlc is wrong, fails, or is slower than the options allow, and 2 if the options are wrong.
    """
    peers, facts = installed_peers(), machine()
    wrong = _mistake(cases, peers, options)
    if wrong:
        print(wrong, file=sys.stderr)
        return 2
    before = None if options.against is None else against.read(options.against)
    if options.peers is not None:
        names = {OURS.name, *options.peers.split(",")}
        peers = [peer for peer in peers if peer.name in names]
    if options.targets:
        facts["targets"] = options.targets
        peers = [*for_targets(options.targets), *(peer for peer in peers if peer.name != OURS.name)]
    if options.precision != "float32":
        facts["precision"] = options.precision
        facts["in_float32"] = [peer.name for peer in peers if options.precision not in peer.precisions]
    print(head(facts, peers), flush=True)
    results = _measured(cases, peers, facts, options)
    print_report(results, peers, markdown=options.markdown)
    if options.json is not None:
        write_json(options.json, results, peers, facts)
    if options.chart is not None:
        write_chart(options.chart, results, peers, head(facts, peers))
    slow = _slower_targets(results, options)
    for line in slow:
        print(line)
    regressed = False
    if before is not None:
        now = [result.record() for result in results]
        counts = list(map(int, options.threads.split(",")))
        changes = against.compared(before["results"], now, wanted, counts, options.threshold)
        against.print_changes(before["machine"], facts, changes, markdown=options.markdown)
        regressed = any(change.regression for change in changes)
    return int(regressed or bool(slow) or any(result.problem for result in results))


def _mistake(cases: Sequence[Case], peers: Sequence[Peer], options: argparse.Namespace) -> str:
    """The error in the options; empty if there is none."""
    if not cases:
        return "no model here"
    if options.chart is not None and (wrong := check_chart(options.chart)):
        return wrong
    if options.against is not None and not options.against.is_file():
        return f"no file {options.against}"
    wanted = set(filter(None, (options.peers or "").split(",")))
    absent = sorted(wanted - {peer.name for peer in peers})
    if absent:
        names = ", ".join(peer.name for peer in peers if peer.name != OURS.name)
        return f"no peer {absent[0]} installed; there are: {names or 'none'}"
    return ""


def _measured(
    cases: Sequence[Case], peers: Sequence[Peer], facts: dict[str, Any], options: argparse.Namespace
) -> list[Result]:
    """The results of all models; after each one they are written to the JSON file, if there is one."""
    results: list[Result] = []
    counts = list(map(int, options.threads.split(",")))
    for case in cases:
        _progress(case.name)
        found = measure_case(
            case,
            peers,
            counts,
            seconds=options.seconds,
            memory=options.memory,
            limit=options.limit,
            precision=options.precision,
            target=options.targets[0] if options.targets else "",
            apart=options.apart,
        )
        try:
            results.extend(found)
        except (OSError, ValueError, BadZipFile) as error:
            problem = f"its files cannot be read: {error}"
            results += [Result(case.name, count, case.family, problem=problem) for count in counts]
        if options.json is not None:
            write_json(options.json, results, peers, facts)
        gc.collect()
    _progress("")
    return results


def _slower_targets(results: Sequence[Result], options: argparse.Namespace) -> list[str]:
    """A line for each result whose first target takes more than `--at-most` times the time of another one."""
    return [
        f"{each.model}, threads {each.threads}: {ratio:.2f} times the time for {target}"
        for each in results
        for target in options.targets[1:]
        if options.at_most is not None
        and (ratio := each.ratio(target)) is not None
        and ratio > options.at_most
    ]


def _progress(model: str) -> None:
    """Show the model that is being measured, on a terminal."""
    if sys.stderr.isatty():
        print(f"\r  {model:40}\r", end="", file=sys.stderr, flush=True)
