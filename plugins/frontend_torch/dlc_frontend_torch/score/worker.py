"""The process that judges operators: reads a job from its input, writes JSON lines to its output.

It is a process of its own because native code may crash. Lines are `{"at": [op, dtype, index]}` before a
sample runs, and `{"op": ..., "outcomes": [...]}` after the last one of an operator.
"""

from __future__ import annotations

import json
import os
import sys
from typing import Any

import torch

from dlc_frontend_torch.score import gradients, judging
from dlc_frontend_torch.score.results import Score
from dlc_frontend_torch.score.samples import operators


def main() -> None:
    """Judge the operators of the job."""
    out = os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(2, 1)  # nothing else writes there
    torch.set_num_threads(1)
    job = json.load(sys.stdin)
    infos = operators()
    settings = dict(job["options"], dtypes=tuple(job["options"]["dtypes"]))
    options = judging.Options(**settings)
    judge = gradients.outcomes if job["gradients"] else judging.outcomes
    crashed = {(op, dtype, index) for op, dtype, index in job["crashed"]}

    def write(value: Any) -> None:
        out.write(json.dumps(value) + "\n")

    for name in job["ops"]:
        write({"at": [name, "", -1]})
        own = {(dtype, index) for op, dtype, index in crashed if op == name}

        def mark(dtype: str, index: int, name: str = name) -> None:
            write({"at": [name, dtype, index]})

        found = judge(infos[name], options, mark, own)
        write(Score(name, tuple(found)).to_json())


if __name__ == "__main__":
    main()
