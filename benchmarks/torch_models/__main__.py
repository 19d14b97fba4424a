"""The command line of `python -m benchmarks.torch_models`."""

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
from benchmarks.torch_models.listing import page, records_of
from benchmarks.torch_models.processes import apart

WAYS = {
    "dynamic": "symbolic shapes, called with several sizes",
    "compile": "through torch.compile, called with several sizes",
    "training": "steps of training through torch.compile",
}
TITLES = ("model", "family", "outcome", "error", "export s", "compile s", "reasons")


def main(arguments: Sequence[str] | None = None) -> int:
    """The command line. Returns 1 if a model is wrong or crashed."""
    options = _parser().parse_args(arguments)
    kept = records_of(options.json) if options.json and options.json.exists() else []
    if options.page:
        options.page.write_text(page(kept), encoding="utf-8")
        return 0
    try:
        wanted = chosen([*options.names, *options.family])
    except KeyError as error:
        print(f"no model, family or kind is named {error}", file=sys.stderr)
        return 2
    way = options.way
    wanted = [m for m in wanted if m.dynamic or way != "dynamic"]
    wanted = [m for m in wanted if m.trains or way != "training"]
    if options.rest:
        done = {(each["name"], each["way"]) for each in kept}
        wanted = [m for m in wanted if (m.name, way) not in done]
    records = []
    for model in wanted:
        records.append(apart(model, way))
        print(f"{model.name}: {records[-1]['outcome']}", file=sys.stderr, flush=True)
        if options.json:
            kept = [each for each in kept if (each["name"], each["way"]) != (model.name, way)]
            kept.append(records[-1])
            options.json.write_text(json.dumps(kept, indent=1) + "\n", encoding="utf-8")
    print_table(TITLES, [_row(each) for each in records], markdown=True)
    print("\n" + _summary(records))
    return int(any(each["outcome"] in ("wrong", "crashed") for each in records))


def _parser() -> argparse.ArgumentParser:
    made = argparse.ArgumentParser(
        prog="python -m benchmarks.torch_models", description=(torch_models.__doc__ or "").split("\n")[0]
    )
    made.add_argument("names", nargs="*", help="models, families or kinds; all of them by default")
    made.add_argument("--family", action="append", default=[], help="as one more name; may be repeated")
    ways = made.add_mutually_exclusive_group()
    for way, text in WAYS.items():
        ways.add_argument(f"--{way}", dest="way", action="store_const", const=way, help=text)
    made.set_defaults(way="static")
    made.add_argument("--json", type=Path, help="keep the outcomes in this file, beside those that it has")
    made.add_argument("--rest", action="store_true", help="only models that the JSON file lacks")
    made.add_argument("--page", type=Path, help="only write the page of the outcomes in the JSON file")
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
