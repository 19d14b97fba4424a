"""The command `python -m dlc_frontend_torch.score`."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from fnmatch import fnmatchcase
from pathlib import Path

from dlc_frontend_torch.score.judging import Options
from dlc_frontend_torch.score.processes import judged
from dlc_frontend_torch.score.recorded import summary
from dlc_frontend_torch.score.results import COUNTED, CRASHED, RANDOM, WRONG, Score
from dlc_frontend_torch.score.samples import COMPLEX_DTYPES, DTYPES, operators
from dlc_frontend_torch.score.table import core_table, opinfo_table, totals


def main(arguments: Sequence[str] | None = None) -> int:
    """Print the table. Returns 1 if a sample is wrong or crashed."""
    given = _parser().parse_args(arguments)
    known = operators()
    patterns = given.ops or ["*"]
    names = [name for name in known if any(fnmatchcase(name, pattern) for pattern in patterns)]
    if not names:
        sys.stderr.write(f"no OpInfo is named {' or '.join(patterns)}\n")
        return 2
    dtypes = tuple(given.dtypes or (("float32",) if given.gradients else DTYPES))
    options = Options(dtypes, given.target, given.limit or None, given.group)
    scores = _read(given.json, given.again, names)
    missing = [name for name in names if name not in scores]
    for score in judged(missing, options, given.gradients):
        scores[score.op] = score
        if given.json is not None:
            with given.json.open("a") as file:
                file.write(json.dumps(score.to_json()) + "\n")
        sys.stderr.write(_progress(score) + "\n")
    chosen = [scores[name] for name in names if name in scores]
    if given.summary is not None:
        given.summary.write_text(json.dumps(summary(chosen), indent=1) + "\n")
    parts = (table(chosen, given.gradients) for table in (opinfo_table, core_table, totals))
    sys.stdout.write("\n\n".join("\n".join(part) for part in parts) + "\n")
    return int(any(score.count(status) for score in chosen for status in (WRONG, CRASHED)))


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m dlc_frontend_torch.score", description="Run PyTorch's OpInfo samples with dlc."
    )
    parser.add_argument("ops", nargs="*", metavar="OP", help="names of OpInfos, or patterns; default: all")
    parser.add_argument(
        "--dtypes",
        nargs="+",
        choices=(*DTYPES, *COMPLEX_DTYPES),
        help="default: the first six; with --gradients float32",
    )
    parser.add_argument("--gradients", action="store_true", help="torch.compile with backward")
    parser.add_argument(
        "--json", type=Path, metavar="FILE", help="where scores are kept; operators in it rest"
    )
    parser.add_argument("--summary", type=Path, metavar="FILE", help="where to write a summary, as JSON")
    parser.add_argument("--again", action="store_true", help="judge operators again that the file has")
    parser.add_argument("--limit", type=int, default=40, help="samples of a dtype; 0: all (default: 40)")
    parser.add_argument("--group", type=int, default=16, help="samples compiled together (default: 16)")
    parser.add_argument("--target", default="llvm", help="default: llvm")
    return parser


def _read(path: Path | None, again: bool, names: Sequence[str]) -> dict[str, Score]:
    """The scores of a file. `again` leaves out those of the named operators."""
    if path is None or not path.exists():
        return {}
    scores = [Score.from_json(json.loads(line)) for line in path.read_text().splitlines()]
    return {score.op: score for score in scores if not (again and score.op in names)}


def _progress(score: Score) -> str:
    counts = ", ".join(
        f"{score.count(status)} {status}" for status in (*COUNTED, RANDOM) if score.count(status)
    )
    return f"{score.op}: {counts or 'no samples'}"


if __name__ == "__main__":
    sys.exit(main())
