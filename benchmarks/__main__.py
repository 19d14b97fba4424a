"""`python -m benchmarks [NAME ...] [--models DIR] [--targets T ...] [--threads 1,2] [--json FILE]`"""

from __future__ import annotations

import argparse
import gc
import sys
from pathlib import Path

from benchmarks.chart import check_chart, write_chart
from benchmarks.measure import OF_LARGEST, Result, measure_case
from benchmarks.models import default_cases, folder_cases
from benchmarks.peers import OURS, for_targets, installed_peers
from benchmarks.report import head, machine, print_report, write_json


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description="Ours against installed peers.")
    parser.add_argument("names", nargs="*", help="only these models")
    parser.add_argument(
        "--models", type=Path, help="a folder of .onnx files with .npz files of the same names"
    )
    parser.add_argument("--generated", action="store_true", help="with --models: also the generated models")
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
    parser.add_argument("--no-memory", action="store_true", help="leave the memory columns out")
    parser.add_argument("--markdown", action="store_true", help="print the table as Markdown")
    parser.add_argument("--json", type=Path, help="also write all figures to this file")
    parser.add_argument(
        "--chart", type=Path, help="also draw the ratios: a .html file, or .png by matplotlib"
    )
    options = parser.parse_args()

    cases = [] if options.models is None else folder_cases(options.models)
    if options.models is None or options.generated:
        cases += default_cases()
    known = [case.name for case in cases]
    unknown = [name for name in options.names if name not in known]
    if unknown or not cases:
        print(f"no model {unknown[0] if unknown else 'here'}; known: {', '.join(known)}", file=sys.stderr)
        return 2
    wrong = check_chart(options.chart) if options.chart is not None else ""
    if wrong:
        print(wrong, file=sys.stderr)
        return 2
    peers, facts = installed_peers(), machine()
    if options.peers is not None:
        expected = {OURS.name, *filter(None, options.peers.split(","))}
        absent = sorted(expected - {peer.name for peer in peers})
        if absent:
            names = ", ".join(peer.name for peer in peers if peer.name != OURS.name)
            print(f"no peer {absent[0]} installed; there are: {names or 'none'}", file=sys.stderr)
            return 2
        peers = [peer for peer in peers if peer.name in expected]
    if options.targets:
        facts["targets"] = options.targets
        peers = [*for_targets(options.targets), *(peer for peer in peers if peer.name != OURS.name)]
    if options.precision != "float32":
        facts["precision"] = options.precision
        facts["in_float32"] = [peer.name for peer in peers if options.precision not in peer.precisions]
    print(head(facts, peers), flush=True)
    results: list[Result] = []
    chosen = [case for case in cases if not options.names or case.name in options.names]
    counts = list(map(int, options.threads.split(",")))
    for case in chosen:
        _progress(case.name)
        found = measure_case(
            case,
            peers,
            counts,
            seconds=options.seconds,
            memory=not options.no_memory,
            limit=options.limit,
            precision=options.precision,
            target=options.targets[0] if options.targets else "",
        )
        results.extend(found)
        gc.collect()
    _progress("")
    print_report(results, peers, markdown=options.markdown)
    if options.json is not None:
        write_json(options.json, results, peers, facts)
    if options.chart is not None:
        write_chart(options.chart, results, peers, head(facts, peers))
    slow = [
        f"{each.model}, threads {each.threads}: {ratio:.2f} times the time for {target}"
        for each in results
        for target in options.targets[1:]
        if options.at_most is not None
        and (ratio := each.ratio(target)) is not None
        and ratio > options.at_most
    ]
    for line in slow:
        print(line)
    return int(bool(slow) or any(result.problem for result in results))


def _progress(model: str) -> None:
    """Show what is being measured, where somebody looks on."""
    if sys.stderr.isatty():
        print(f"\r  {model:40}\r", end="", file=sys.stderr, flush=True)


if __name__ == "__main__":
    sys.exit(main())
