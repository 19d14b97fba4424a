"""The page of all models: `page`."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from benchmarks.report import markdown_table
from benchmarks.torch_models.catalog import models

KINDS = {
    "encoders": "Texts: encoders (transformers)",
    "decoders": "Texts: decoders (transformers)",
    "translators": "Texts: encoders with decoders (transformers)",
    "sights": "Images (transformers)",
    "pictures": "Images (timm)",
    "visions": "Images and videos (torchvision)",
    "scenes": "Objects in images (transformers)",
    "meetings": "Images with texts (transformers)",
    "sounds": "Sounds (transformers)",
    "series": "Series of numbers (transformers)",
    "classics": "Networks of torch.nn",
}
COLUMNS = {"static": "torch.export", "dynamic": "symbolic dims", "compile": "torch.compile",
           "training": "training"}  # fmt: skip
BEGIN = """# Models of PyTorch

Networks with random weights, imported and compared with eager. Right means that no output differs from that
of eager by more than 1e-4 of its largest value in float32, for symbolic dims and `torch.compile` with all of
several sizes, and that 20 losses of SGD differ by at most 1e-3 of each. Where rounding grows from step to
step, a loss may be as far from that of float64 as eager's after parameters change by one unit in the last
place. Vacuous are right outputs that hardly depend on the inputs, or that torch computed alone. The numbers
are the greatest differences, for training of the losses. A dash means that this way was not run, or does not
apply: torch exports no program of symbolic dims, or the network is not trained here.

<!-- not run: it takes hours, and needs timm, torchvision and transformers -->

```bash
python -m benchmarks.torch_models --json models.json              # and --dynamic, --compile, --training
python -m benchmarks.torch_models --json models.json --page docs/torch-models.md    # writes this page
```
"""


def records_of(path: Path) -> list[dict[str, Any]]:
    """The outcomes in a file of `--json`."""
    found: list[dict[str, Any]] = json.loads(path.read_text(encoding="utf-8"))
    return found


def page(records: Sequence[Mapping[str, Any]]) -> str:
    """The page of these outcomes."""
    found = {(each["name"], each["way"]): each for each in records}
    parts = [BEGIN, _counts(records)]
    for kind, title in KINDS.items():
        rows = []
        for model in models().values():
            own = [found.get((model.name, way)) for way in COLUMNS]
            if model.kind == kind and any(own):
                rows.append([model.name, *(_cell(each) for each in own), *_reasons(own)])
        if rows:
            parts.append(f"## {title}\n\n" + markdown_table(("model", *COLUMNS.values(), "notes"), rows))
    return "\n".join(parts).rstrip() + "\n"


def _counts(records: Sequence[Mapping[str, Any]]) -> str:
    rows = []
    for way, title in COLUMNS.items():
        own = [each for each in records if each["way"] == way]
        if own:
            right = [each for each in own if each["outcome"] == "right"]
            others = Counter(each["outcome"] for each in own if each["outcome"] != "right")
            rest = ", ".join(f"{count} {outcome}" for outcome, count in others.most_common())
            rows.append([title, str(len(own)), str(len(right)), str(len({e["family"] for e in right})), rest])
    return markdown_table(("way", "models", "right", "families right", "others"), rows) + "\n"


def _cell(record: Mapping[str, Any] | None) -> str:
    if record is None:
        return "-"
    if record["outcome"] == "right":
        return format(record["error"], ".0e")
    return str(record["outcome"])


def _reasons(records: Sequence[Mapping[str, Any] | None]) -> list[str]:
    known = [reason for each in records if each is not None for reason in each["reasons"]]
    return ["; ".join(dict.fromkeys(known)).replace("|", " ").replace("\n", " ")[:200]]


__all__ = ["page", "records_of"]
