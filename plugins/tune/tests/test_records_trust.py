"""Records that lie: compiles refuse them with reasons, end, and compute the same; caches know of records."""

from __future__ import annotations

import json
import random
import time
from typing import Any

import numpy as np
import pytest
from dlc_tune.choices import defaults
from dlc_tune.records import checks, lookup
from dlc_tune.records.database import Database
from dlc_tune.records.samples import TARGET, by_hand, double, record_of
from dlc_tune.space import Candidate, candidate
from dlc_tune.spaces.decisions import SPACE
from dlc_tune.task import Task

import dlc_core as dlc
from dlc_core.cli.main import main
from dlc_core.config import config
from dlc_core.diag import ScheduleError
from dlc_core.driver.cache import Store
from dlc_core.graph.node import Function, param
from dlc_core.ir.module import IRModule
from dlc_core.ir.types import tensor_type
from dlc_core.op.lookup import registered_ops
from dlc_core.schedule import Schedule
from dlc_core.schedule.trace import primitive_names


def trace(change) -> str:
    """The trace of a schedule that a function makes of the loop of `double`."""
    schedule = Schedule(double())
    (loop,) = schedule.get_loops(schedule.get_block("y"))
    change(schedule, loop)
    return schedule.trace.to_json()


def with_step(name: str, *args: Any) -> str:
    """The usual trace with another name and other arguments of its last step."""
    data = json.loads(by_hand(double()).to_json())
    (*_, step) = [one for one in data["records"] if one["k"] == "step"]
    step["name"] = name
    step["args"] = ["t", [step["args"][1][0], *args]]
    return json.dumps(data)


HOSTILE = {
    "no JSON": ("import os", "no JSON"),
    "nested deep": ('{"records": ' + "[" * 50_000, "no JSON"),
    "a huge number": ('{"schema": ' + "9" * 10_000 + "}", "no JSON"),
    "no steps": (by_hand(double()).to_json().replace('"step"', '"loop"'), "record"),
    "of another kernel": (by_hand(double(48), 16).to_json().replace('"y"', '"z"'), "no block 'z'"),
    "an unknown step": (with_step("compute_root"), "no primitive"),
    "a method that is no primitive": (with_step("__init__"), "no primitive"),
    "a private method": (with_step("_record"), "no primitive"),
    "too many arguments": (with_step("unroll", 1, 2, 3), "fails: TypeError"),
    "arguments of another type": (with_step("split", "abc"), "split"),
    "a factor that no machine has": (with_step("split", ["l", [1 << 200, None]]), ""),
    "threads that a CPU does not have": (
        trace(lambda schedule, loop: schedule.bind(loop, "threadIdx.x")),
        "does not have",
    ),
}


@pytest.mark.parametrize(("text", "why"), HOSTILE.values(), ids=HOSTILE)
def test_hostile_traces_are_refused_with_their_reasons(records_path, text, why):
    with Database() as database:
        database.add(record_of(double(), trace=text))
    begin = time.process_time()
    exe = dlc.build(double(), TARGET)
    assert time.process_time() - begin < 10
    (kernel,) = exe.explain().kernels
    assert kernel.rule == "cpu.map"
    assert kernel.refused[0].startswith("tuned: records.db: ")
    assert why in kernel.refused[0]
    assert len(kernel.refused[0]) < 2000
    np.testing.assert_array_equal(exe(np.ones(24, np.float32)), 2)


def test_traces_that_are_long_or_take_long_are_refused(monkeypatch):
    task = Task(double(), dlc.Target(TARGET))
    text = by_hand(double()).to_json()
    for name, why in (
        ("MAX_STEPS", "steps"),
        ("MAX_SECONDS", "takes more"),
        ("MAX_STATEMENTS", "statements"),
    ):
        with monkeypatch.context() as patch:
            patch.setattr(checks, name, 0)
            with pytest.raises(ScheduleError, match=why):
                checks.CheckedTrace(text, task.target).replay(task.schedule())


def test_unroll_bombs_are_refused(records_path):
    func = double(1 << 20)
    schedule = Schedule(func)
    (loop,) = schedule.get_loops(schedule.get_block("y"))
    schedule.unroll(loop)
    with Database() as database:
        database.add(record_of(func, trace=schedule.trace.to_json()))
    (kernel,) = dlc.build(func, TARGET).explain().kernels
    assert kernel.rule == "cpu.map"
    assert "copy statements 1048576 times" in kernel.refused[0]


NUMBERS = (0, 1, 2, 3, 7, 8, 64, 1000, 1 << 31, 1 << 63, -1, 1 << 200)
TEXTS = ("local", "global", "shared", "nonsense", "", "\0", "threadIdx.x", "predicate", "lanes", "x" * 500)


def mutated(text: str, rng: random.Random) -> str:
    """A trace with one to three random changes: numbers, texts, and the names and the order of steps."""
    data = json.loads(text)
    steps = [one for one in data["records"] if one["k"] == "step"]
    for _ in range(rng.choice([1, 1, 2, 3])):
        body, what = data["root"][1], rng.randrange(4)
        if what == 0 and body:
            first, second = (rng.randrange(len(body)) for _ in range(2))
            body[first], body[second] = body[second], body[first]
        elif what == 1 and body:
            body.pop(rng.randrange(len(body)))
        elif what == 2:
            rng.choice(steps)["name"] = rng.choice(primitive_names(Schedule))
        else:
            leaves = list(_leaves(data["records"]))
            holder, key = rng.choice(leaves)
            is_number = isinstance(holder[key], int)
            holder[key] = rng.choice(NUMBERS if is_number else TEXTS)
    return json.dumps(data)


def _leaves(value: Any):
    """The lists and mappings with the keys of their numbers and texts."""
    for key, item in value.items() if isinstance(value, dict) else enumerate(value):
        if isinstance(item, (dict, list)):
            yield from _leaves(item)
        elif isinstance(item, (int, str)) and not isinstance(item, bool) and key != "k":
            yield value, key


@pytest.mark.parametrize("seed", [0, *(pytest.param(seed, marks=pytest.mark.slow) for seed in range(1, 6))])
def test_no_mutated_trace_crashes_a_compile_or_changes_results(task, seed):
    func, target = task.func, dlc.Target(TARGET)
    made = candidate(SPACE, Task(func, target), defaults)
    assert isinstance(made, Candidate)
    rng = random.Random(seed)
    inputs = [
        np.random.default_rng(seed).standard_normal(buffer.static_shape()).astype(np.float32)
        for buffer in func.buffers[:-1]
    ]
    with dlc.PassContext(tuner=lambda *_: None):
        expected = dlc.build(func, target)(*inputs)
    texts = [mutated(made.trace.to_json(), rng) for _ in range(30)]
    for text in (*texts, made.trace.to_json()):

        def tuner(*_: Any, text: str = text) -> lookup.Answer:
            return lookup.Answer(checks.CheckedTrace(text, target), "a mutation")

        with dlc.PassContext(tuner=tuner):
            exe = dlc.build(func, target)
        np.testing.assert_allclose(exe(*inputs), expected, rtol=1e-4, atol=1e-4)
    assert exe.explain().kernels[0].rule == "tuned"


def doubled() -> IRModule:
    x = param("x", tensor_type((24,)))
    return IRModule({"main": Function("main", (x,), registered_ops()["add"].build(x, x))})


def test_compiled_models_are_cached_until_a_chosen_record_changes(records_path, tmp_path, capsys):
    kernels = []
    with dlc.PassContext(tuner=lambda kernel, target: kernels.append(kernel)):
        dlc.compile(doubled(), target=TARGET)
    (func,) = kernels
    schedule = Schedule(func)
    (loop,) = schedule.get_loops(schedule.get_blocks()[0])
    schedule.unroll(schedule.split(loop, [None, 4])[1])
    chosen = record_of(func, trace=schedule.trace.to_json())

    def rules() -> list[str]:
        exe = dlc.compile(doubled(), target=TARGET, cache=True)
        np.testing.assert_array_equal(exe(np.ones(24, np.float32)), 2)
        return [kernel.rule for kernel in exe.explain().kernels]

    with config.override(cache=True, cache_dir=tmp_path / "cache"):
        assert [rules(), rules(), len(Store().entries())] == [["cpu.map"], ["cpu.map"], 1]
        with Database() as database:
            assert [rules(), len(Store().entries())] == [["cpu.map"], 2]  # now there is a database
            database.add(record_of(func, state="tried", trace=""))
            assert [rules(), len(Store().entries())] == [["cpu.map"], 2]
            database.add(chosen)
            assert [rules(), rules(), len(Store().entries())] == [["tuned"], ["tuned"], 3]
            database.forget(kernel=chosen.kernel)
            assert [rules(), len(Store().entries())] == [["cpu.map"], 4]
            database.add(chosen)
        exe = dlc.compile(doubled(), target=TARGET)
        exe.save(tmp_path / "model.dlc")
        assert main(["explain", str(tmp_path / "model.dlc")]) == 0
        assert "fused_add is tuned: records.db: 1.5 µs, default 2 µs" in capsys.readouterr().out
        assert main(["explain", str(tmp_path / "model.dlc"), "--json"]) == 0
        assert json.loads(capsys.readouterr().out)["kernels"][0]["origin"].startswith("records.db: 1.5 µs")
