"""Forged ONNX models, compiled in guard mode and called: with right inputs, and with wrong ones.

Wrong are the number of inputs, their sizes, ranks, dtypes, layouts and values. In guard mode each value has
pages of its own between protected ones, so an access outside of a value ends the process.
"""

from __future__ import annotations

import os
import random
from collections.abc import Iterator
from functools import cache
from typing import Any

import numpy as np
from dlc_frontend_onnx.testing import seeds as light
from dlc_frontend_onnx.testing import suite
from dlc_frontend_onnx.testing.mutations import BYTES, STRUCTURED
from dlc_frontend_onnx.testing.semantic import CHANGES
from google.protobuf.message import DecodeError
from onnx import ModelProto, numpy_helper

import dlc_core as dlc
from dlc_core.diag import DlcError
from dlc_core.driver.request import DISABLED
from dlc_core.passes.tir.schedule_kernels import ScheduleKernels
from tests.fuzz.calls import call

SECONDS = 60.0
OPERATORS = "DLC_FUZZ_OPERATORS"
"""The environment variable with the only operators whose models are changed, for a fast start."""
PLAIN = 0.5
"""The part of the cases whose kernels have no schedule, which compile in about half the time."""
OPTIMIZED = 0.25
"""The part of the cases whose machine code LLVM optimizes. dlc's own passes run in all of them."""
MAX_BYTES = 1 << 16
"""Larger models are not changed: they take most of the time."""


@cache
def _cases() -> dict[bytes, tuple[Any, ...]]:
    """Models with inputs: the node tests of the ONNX package."""
    found: dict[bytes, tuple[Any, ...]] = {}
    for case in suite.cases(*os.environ.get(OPERATORS, "").split()):
        data = case.model.SerializeToString()
        if len(data) < MAX_BYTES and case.data_sets:
            found.setdefault(data, tuple(case.data_sets[0][0]))
    return found


def seeds() -> list[bytes]:
    own = [data for _, data in light.seeds() if len(data) < MAX_BYTES]
    return [*_cases(), *own]


def mutate(rng: random.Random, data: bytes, inputs: list[bytes]) -> bytes:
    if rng.random() < 0.1:
        return rng.choice(BYTES)(rng, data, [("seed", rng.choice(inputs))])
    try:
        model = ModelProto.FromString(data)
    except DecodeError:
        return data
    values = _cases().get(data, ())
    try:
        if rng.random() < 0.8:
            rng.choice(CHANGES)(rng, model, values)
        else:
            rng.choice(STRUCTURED)(rng, model)
        return model.SerializeToString()
    except (ValueError, DecodeError):  # names that are no UTF-8, or nested too deep
        return data


def check(data: bytes, rng: random.Random) -> str:
    config = {"guard": rng.choice(("end", "begin")), "check_bounds": rng.random() < 0.2}
    if rng.random() < PLAIN:
        config[DISABLED] = (ScheduleKernels.name,)
    target = "llvm" if rng.random() < OPTIMIZED else "llvm -opt=0"
    level = rng.choice((0, 1, 3))
    exe = dlc.compile(data, target, cache=False, num_threads=1, opt_level=level, config=config)
    outcomes = {call(exe, rng) for _ in range(4)}
    outcomes |= {_call_with_given(exe, data)}
    return "called" if "called" in outcomes else "calls refused"


def _call_with_given(exe: Any, data: bytes) -> str:
    """A call with the inputs of the node test, if the model is unchanged but for its nodes."""
    given = _cases().get(data)
    if given is None:
        return "no inputs"
    arrays = [numpy_helper.to_array(each) if hasattr(each, "raw_data") else each for each in given]
    try:
        exe(*[each for each in arrays if isinstance(each, np.ndarray)])
    except DlcError:
        return "refused"
    return "called"


def parts(data: bytes) -> Iterator[bytes]:
    """The model without one of its nodes, constants, outputs, inputs, functions or attributes."""
    try:
        model = ModelProto.FromString(data)
    except DecodeError:
        return
    graph = model.graph
    fields = [(owner, name) for owner, name in _lists(model, graph)]
    for number, (owner, name) in enumerate(fields):
        for position in range(len(getattr(owner, name))):
            smaller = ModelProto.FromString(data)
            place, field = [*_lists(smaller, smaller.graph)][number]
            del getattr(place, field)[position]
            yield smaller.SerializeToString()


def _lists(model: ModelProto, graph: Any) -> Iterator[tuple[Any, str]]:
    for name in ("functions", "metadata_props"):
        yield model, name
    for name in ("output", "node", "initializer", "sparse_initializer", "value_info", "input"):
        yield graph, name
    for node in graph.node:
        for name in ("attribute", "input", "output"):
            yield node, name


__all__ = ["SECONDS", "check", "mutate", "parts", "seeds"]
