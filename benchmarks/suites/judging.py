"""The outcome of one model, and the process that finds the outcomes of many."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, TextIO

import numpy as np
import onnx

from benchmarks.suites.comparing import Features, difference, features
from benchmarks.suites.drawing import drawn
from benchmarks.suites.runtime import Session
from benchmarks.suites.storage import stored

UNOPTIMISED = "as onnxruntime without graph optimisations"
"""The reason of a right model whose outputs onnxruntime's optimisations change by more than the tolerance."""


def judge(path: Path, target: str | None, say: Callable[..., None]) -> dict[str, Any]:
    """The outcome of a model: "right", "differs" or "refused" with the reason, or "skipped" without inputs.

    A model that differs is right if its outputs are those of onnxruntime without graph optimisations.
    `peer` is "runs", or the reason why onnxruntime does not run the model. Then the stored outputs are
    compared, and the outcome "runs" says that there are none. If there are, `stored` is "right", "refused",
    or how the outputs of dlc differ from them. `say` takes each stage that begins, with the record so far
    before that of dlc.
    """
    say("reading")
    record: dict[str, Any] = {"outcome": "skipped", "reason": ""}
    try:
        model = onnx.load(path, load_external_data=False)
        feeds, outputs = stored(path, model)
    except Exception as error:  # noqa: BLE001  (a damaged file of a suite is an outcome)
        return {**record, "peer": _line(error), "reason": "the file cannot be read"}
    say("onnxruntime")
    wanted, peer = None, "runs"
    try:
        session = Session(path, model)
        feeds, wanted = _first(session, [feeds] if feeds is not None else drawn(model))
    except Exception as error:  # noqa: BLE001  (what onnxruntime refuses is an outcome)
        peer = _line(error)
        feeds = next(drawn(model)) if feeds is None else feeds
    record["peer"] = peer
    if outputs is not None:
        record["stored"] = "refused"
    say("dlc", record)

    def plain() -> list[Any]:
        return Session(path, model, optimised=False)(feeds)

    return {**record, **_of_dlc(path, target, feeds, wanted, outputs, features(model), plain)}


def _of_dlc(
    path: Path,
    target: str | None,
    feeds: Any,
    wanted: Any,
    outputs: Any,
    known: Features,
    plain: Callable[[], list[Any]],
) -> dict[str, Any]:
    from dlc_frontend_onnx.specialized import CallableModel

    from dlc_core.diag import DlcError

    try:
        found = list(CallableModel(path, target)(feeds))
    except DlcError as error:
        return {"outcome": "refused", "reason": " ".join(str(error).split())}
    except Exception as error:  # noqa: BLE001  (any other error is a defect, and is reported)
        return {"outcome": "crashed", "reason": f"{type(error).__name__}: {_line(error)}"}
    if wanted is None and outputs is None:
        return {"outcome": "runs"}
    reasons = [difference(found, each, known) for each in (wanted, outputs) if each is not None]
    about = {} if outputs is None else {"stored": reasons[-1] or "right"}
    if all(reasons):
        if wanted is not None and not difference(found, plain(), known):
            return {**about, "outcome": "right", "reason": UNOPTIMISED}
        return {**about, "outcome": "differs", "reason": reasons[0]}
    note = "as the stored outputs, unlike onnxruntime" if reasons[0] else ""
    return {**about, "outcome": "right", "reason": note}


def _first(session: Session, choices: Any) -> tuple[Any, list[Any]]:
    """The first inputs that a session accepts, and its outputs."""
    first: Exception | None = None
    for feeds in choices:
        try:
            with np.errstate(all="ignore"):
                return feeds, session(feeds)
        except Exception as error:  # noqa: BLE001
            first = first or error
    assert first is not None
    raise first


def _line(error: Exception) -> str:
    return " ".join((str(error) or type(error).__name__).split())[:300]


def serve(source: TextIO, sink: TextIO) -> None:
    """Judge models until the source ends. Each line is a JSON list of path and target."""

    def write(record: object) -> None:
        sink.write(json.dumps(record) + "\n")
        sink.flush()

    for line in source:
        path, target = json.loads(line)
        write(judge(Path(path), target, lambda *stage: write({"stage": stage})))


if __name__ == "__main__":
    serve(sys.stdin, sys.stdout)
