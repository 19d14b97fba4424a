"""The outcomes of models: the results of dlc, compared with the stored ones."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.corpus.building import plain
from benchmarks.corpus.catalog import recipe_of

RTOL = {"float32": 2e-3, "bfloat16": 2e-2, "int8": 2e-2}
"""By dtype of the recipe, the maximum error relative to an output's largest value. Networks that round to 8
bits may differ by a step because of the last bit of a float.
"""


def check_one(path: Path) -> dict[str, Any]:
    """The outcome of one model."""
    recipe = recipe_of(path.stem)
    dtype = "float32" if recipe is None else recipe.dtype
    rtol = RTOL[dtype]
    from dlc_frontend_onnx.specialized import CallableModel

    from dlc_core.diag import DlcError

    start = time.perf_counter()
    record: dict[str, Any] = {"model": path.stem}
    with np.load(path.with_suffix(".npz"), allow_pickle=False) as saved:
        feeds = {key[3:]: _fed(saved[key]) for key in saved.files if key.startswith("in_")}
        wanted = {int(key[4:]): saved[key] for key in saved.files if key.startswith("out_")}
    try:
        model = CallableModel(path, precision="float32" if dtype == "int8" else dtype)
        found, others = model(feeds), model(_other(feeds))
    except DlcError as error:
        return {**record, "outcome": str(error).splitlines()[0], "error": None, "host": 0}
    except Exception as error:  # noqa: BLE001  (any other error is a defect, and is reported)
        return {**record, "outcome": f"crashed: {type(error).__name__}: {error}", "error": None, "host": 0}
    worst, moved = 0.0, False
    right = True
    for index, expected in wanted.items():
        got, other = plain(found[index]), plain(others[index])
        if got.dtype.kind == "U":
            right = right and np.array_equal(got, expected)
            moved = moved or not np.array_equal(got, other)
            continue
        if got.shape != expected.shape or got.dtype != expected.dtype:
            return {
                **record,
                "outcome": f"wrong: output {index} is {got.dtype}{list(got.shape)}",
                "error": None,
                "host": 0,
            }
        if expected.size:
            scale = max(float(np.abs(expected.astype(np.float64)).max()), 1e-6)
            off = float(np.abs(got.astype(np.float64) - expected.astype(np.float64)).max()) / scale
            worst, right = max(worst, off), right and off <= rtol
            moved = moved or _moves(got, other, rtol * scale)
    host = len(model.latest.about.get("host", ()))
    return {
        **record,
        "outcome": "wrong" if not right else "right" if moved or not wanted else "still",
        "error": worst,
        "host": host,
        "seconds": time.perf_counter() - start,
    }


def _fed(array: Any) -> Any:
    return array.astype(object) if array.dtype.kind == "U" else array


def _other(feeds: Mapping[str, Any]) -> dict[str, Any]:
    """Other inputs of the same types: the elements in another order."""
    return {name: np.flip(array).copy() for name, array in feeds.items()}


def _moves(before: Any, after: Any, least: float) -> bool:
    """Whether other inputs have other outputs, by more than the tolerance."""
    if before.shape != after.shape:
        return True
    return bool(np.any(np.abs(before.astype(np.float64) - after.astype(np.float64)) > least))


def check(folder: Path, only: str) -> list[dict[str, Any]]:
    """The outcomes of all models of a folder, each in a separate process."""
    records = []
    for path in sorted(folder.glob("*.onnx")):
        if only.replace("/", "-") not in path.stem or not path.with_suffix(".npz").exists():
            continue
        command = [sys.executable, "-W", "ignore", "-m", "benchmarks.corpus", "verdict", str(path)]
        try:
            result = subprocess.run(command, capture_output=True, text=True, timeout=300)
            record = json.loads(result.stdout) if result.returncode == 0 else None
            last = (result.stderr.strip().splitlines() or ["died"])[-1]
        except subprocess.TimeoutExpired:
            record, last = None, "late"
        records.append(
            record or {"model": path.stem, "outcome": f"crashed: {last}", "error": None, "host": 0}
        )
        sys.stderr.write(f"{records[-1]['model']}: {records[-1]['outcome'][:160]}\n")
    return records


def table(records: Sequence[dict[str, Any]]) -> str:
    """The outcomes as a table in Markdown."""
    lines = [
        "| model | outcome | largest error / largest output | ops on the host |",
        "| --- | --- | --- | --- |",
    ]
    for each in records:
        error = "" if each["error"] is None else f"{each['error']:.1e}"
        lines.append(f"| {each['model']} | {each['outcome']} | {error} | {each['host'] or ''} |")
    right = sum(each["outcome"] == "right" for each in records)
    return "\n".join([*lines, "", f"{right} of {len(records)} right."])
