"""`python -m benchmarks.torch_models [NAMES] [--dynamic] [--training] [--json FILE]`."""

from __future__ import annotations

import argparse
import json
import sys
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from benchmarks import torch_models
from benchmarks.report import print_table
from benchmarks.torch_models.catalog import chosen
from benchmarks.torch_models.processes import apart

TITLES = ("model", "family", "outcome", "error", "export s", "compile s", "reasons")


def main(arguments: Sequence[str] | None = None) -> int:
    """The command line. Returns 1 if a model is wrong or crashed."""
    options = _parser().parse_args(arguments)
    way = "training" if options.training else "dynamic" if options.dynamic else "static"
    try:
        wanted = chosen(options.names)
    except KeyError as error:
        print(f"no model or family is named {error}", file=sys.stderr)
        return 2
    wanted = [m for m in wanted if way == "static" or (m.dynamic if way == "dynamic" else m.trains)]
    records = []
    for model in wanted:
        records.append(apart(model, way))
        print(f"{model.name}: {records[-1]['outcome']}", file=sys.stderr, flush=True)
        if options.json:
            options.json.write_text(json.dumps(records, indent=1), encoding="utf-8")
    print_table(TITLES, [_row(each) for each in records], markdown=True)
    print("\n" + _summary(records))
    return int(any(each["outcome"] in ("wrong", "crashed") for each in records))


def _parser() -> argparse.ArgumentParser:
    made = argparse.ArgumentParser(
        prog="python -m benchmarks.torch_models", description=(torch_models.__doc__ or "").split("\n")[0]
    )
    made.add_argument("names", nargs="*", help="models or families; all of them by default")
    made.add_argument("--dynamic", action="store_true", help="symbolic shapes, called with several sizes")
    made.add_argument("--training", action="store_true", help="steps of training through torch.compile")
    made.add_argument("--json", type=Path, help="also write the outcomes to this file")
    return made


def _row(record: dict[str, Any]) -> list[str]:
    def number(key: str, form: str) -> str:
        return format(record[key], form) if key in record else ""

    seconds = [number(key, ".1f") for key in ("export_seconds", "compile_seconds")]
    reasons = "; ".join(record["reasons"])
    return [record["name"], record["family"], record["outcome"], number("error", ".1e"), *seconds, reasons]


def _summary(records: Sequence[dict[str, Any]]) -> str:
    counts = Counter(each["outcome"] for each in records)
    families = {each["family"] for each in records if each["outcome"] == "right"}
    parts = ", ".join(f"{count} {outcome}" for outcome, count in counts.most_common())
    return f"{len(records)} models: {parts}; {len(families)} families right"


if __name__ == "__main__":
    sys.exit(main())
