"""`python -m benchmarks [NAME ...] [--models DIR] [--targets T ...] [--threads 1,2] [--json FILE]`"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from benchmarks import running
from benchmarks.models import default_cases, folder_cases


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description="Ours against installed peers.")
    parser.add_argument("names", nargs="*", help="only these models")
    parser.add_argument(
        "--models", type=Path, help="a folder of .onnx files with .npz files of the same names"
    )
    parser.add_argument("--generated", action="store_true", help="with --models: also the generated models")
    running.add_options(parser, apart=False)
    options = parser.parse_args()
    cases = [] if options.models is None else folder_cases(options.models)
    if options.models is None or options.generated:
        cases += default_cases()
    known = [case.name for case in cases]
    unknown = [name for name in options.names if name not in known]
    if unknown:
        print(f"no model {unknown[0]}; known: {', '.join(known)}", file=sys.stderr)
        return 2

    def wanted(name: str) -> bool:
        return not options.names or name in options.names

    return running.run([case for case in cases if wanted(case.name)], options, wanted)


if __name__ == "__main__":
    sys.exit(main())
