"""Lines of tuning records with changed JSON and bytes: read, replayed, built and called.

A record may choose any legal schedule. So a result that differs is a finding.
"""

from __future__ import annotations

import json
import random

import numpy as np
from dlc_tune.records.checks import CheckedTrace
from dlc_tune.records.lines import of_line, to_line
from dlc_tune.records.samples import TARGET, by_hand, double, record_of

import dlc_core as dlc
from dlc_core.schedule import Schedule
from tests.fuzz.mutations import change_bytes, change_json

SECONDS = 60.0
SIZE = 24


def seeds() -> list[bytes]:
    func = double(SIZE)
    unrolled = Schedule(func)
    (loop,) = unrolled.get_loops(unrolled.get_block("y"))
    outer, inner = unrolled.split(loop, [None, 8])
    unrolled.unroll(inner)
    unrolled.parallel(outer)
    traces = [by_hand(func).to_json(), by_hand(func, 8).to_json(), unrolled.trace.to_json()]
    return [to_line(record_of(func, trace=text)).encode() for text in traces]


def mutate(rng: random.Random, data: bytes, inputs: list[bytes]) -> bytes:
    if rng.random() < 0.15:
        return change_bytes(rng, data, inputs)
    try:
        value = json.loads(data)
    except (ValueError, RecursionError):
        return data
    if isinstance(value, dict) and isinstance(value.get("trace"), str) and rng.random() < 0.8:
        try:
            value["trace"] = json.dumps(change_json(rng, json.loads(value["trace"])))
        except (ValueError, RecursionError):
            value["trace"] = change_bytes(rng, value["trace"].encode()).decode(errors="replace")
    else:
        value = change_json(rng, value)
    return json.dumps(value).encode()


def check(data: bytes, rng: random.Random) -> str:
    found = of_line(data)
    assert of_line(to_line(found)) == found
    schedule = Schedule(double(SIZE))
    CheckedTrace(found.trace, dlc.Target(TARGET)).replay(schedule)
    exe = dlc.build(schedule.func, TARGET)
    value = np.full(SIZE, rng.randrange(100), np.float32)
    np.testing.assert_array_equal(exe(value), 2 * value)
    return "called"
