"""`python -m benchmarks [NAME ...] [--models DIR] [--threads 1,2] [--seconds 2] [--json FILE]`"""

from __future__ import annotations

import argparse
import gc
import sys
from pathlib import Path

from benchmarks.measure import Result, measure_case
from benchmarks.models import default_cases, folder_cases
from benchmarks.peers import installed_peers
from benchmarks.report import head, machine, print_report, write_json


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description="Ours against installed peers.")
    parser.add_argument("names", nargs="*", help="only these models")
    parser.add_argument("--models", type=Path, help="a folder of .onnx files with .npz files beside them")
    parser.add_argument("--threads", default="1,2", help="thread counts (%(default)s)")
    parser.add_argument(
        "--seconds", type=float, default=2.0, help="measured per model and peer (%(default)s)"
    )
    parser.add_argument("--no-memory", action="store_true", help="leave the memory columns out")
    parser.add_argument("--markdown", action="store_true", help="print the table as Markdown")
    parser.add_argument("--json", type=Path, help="also write all figures to this file")
    options = parser.parse_args()

    cases = default_cases() if options.models is None else folder_cases(options.models)
    known = [case.name for case in cases]
    unknown = [name for name in options.names if name not in known]
    if unknown or not cases:
        print(f"no model {unknown[0] if unknown else 'here'}; known: {', '.join(known)}", file=sys.stderr)
        return 2
    peers, facts = installed_peers(), machine()
    print(head(facts, peers), flush=True)
    results: list[Result] = []
    chosen = [case for case in cases if not options.names or case.name in options.names]
    for case in chosen:
        for threads in map(int, options.threads.split(",")):
            print(f"  {case.name}, {threads} threads", end="\r", file=sys.stderr, flush=True)
            results.append(
                measure_case(case, peers, threads, seconds=options.seconds, memory=not options.no_memory)
            )
            gc.collect()
    print_report(results, peers, markdown=options.markdown)
    if options.json is not None:
        write_json(options.json, results, peers, facts)
    return int(any(result.problem for result in results))


if __name__ == "__main__":
    sys.exit(main())
