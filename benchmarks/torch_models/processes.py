"""Models checked in processes of their own, which are forked from one that has imported torch: `apart`."""

from __future__ import annotations

import multiprocessing
import time
import warnings
from typing import Any

from benchmarks.torch_models.catalog import models
from benchmarks.torch_models.checking import check
from benchmarks.torch_models.recipe import Model

LIMIT = 120.0
"""Seconds that a model may take."""
PRELOADED = ["benchmarks.torch_models.preloaded"]


def apart(model: Model, way: str) -> dict[str, Any]:
    """The outcome of a model in a process of its own."""
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(PRELOADED)
    receive, send = context.Pipe(duplex=False)
    process = context.Process(target=_child, args=(model.name, way, send))
    begun = time.perf_counter()
    process.start()
    send.close()
    try:
        found: dict[str, Any] = receive.recv() if receive.poll(LIMIT) else {}
    except EOFError:
        found = {}
    late = time.perf_counter() - begun >= LIMIT
    process.kill()
    process.join()
    if found:
        return found
    why = f"took more than {LIMIT:g} s" if late else "the process ended"
    return {"name": model.name, "family": model.family, "way": way, "outcome": "crashed", "reasons": [why]}


def _child(name: str, way: str, send: Any) -> None:
    warnings.simplefilter("ignore")
    model = models()[name]
    try:
        send.send(check(model, way))
    except BaseException as error:  # noqa: BLE001  (any error is an outcome)
        why = f"{type(error).__name__}: {error}"[:400]
        send.send({"name": name, "family": model.family, "way": way, "outcome": "crashed", "reasons": [why]})


__all__ = ["LIMIT", "apart"]
