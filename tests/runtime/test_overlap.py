"""Segments on devices whose launches block run at the same time: each device waits for the other one."""

from __future__ import annotations

import os
import signal
import threading
import time
from types import SimpleNamespace

import numpy as np
import pytest

import dlc_core as dlc
from dlc_core.backend import Partitioner, RegionPattern
from dlc_core.diag import RuntimeFailure
from dlc_core.graph.node import Function, get_item, make_tuple, param
from dlc_core.hooks import hookimpl
from dlc_core.ir.module import IRModule
from dlc_core.ir.types import tensor_type
from dlc_core.op import std
from dlc_core.op.declare import op
from dlc_core.plugin.registry import fresh_registry, registry
from dlc_core.rewrite import match_op, var
from dlc_core.runtime.device import HostMemory
from dlc_core.runtime.host_program.overlap import _IDLE, launches_beside, tuples_last
from dlc_core.target import Artifact, Description, TargetKind
from tests.backend.test_broken_plugins import Codegen, Device

PATIENCE = 20.0
NAMES = ("left", "right")
SQUARE = tensor_type((4, 4))
X = np.linspace(-1, 1, 16, dtype=np.float32).reshape(4, 4)


class BlockingDevice(Device):
    """A device whose launches block; `during` is called within each of them."""

    def __init__(self, name):
        super().__init__()
        self.name, self.formats = name, (f"{name}-json",)
        self.during = lambda: None
        self.launches = []

    def launch(self, entry, buffers, scalars, threads):
        self.launches.append(threading.current_thread())
        self.during()
        super().launch(entry, buffers, scalars, threads)


class Card:
    """A plugin with one such device and its code generator."""

    DLC_API = "0.1"

    def __init__(self, name):
        self.name, self.device = name, BlockingDevice(name)
        self.codegen = Codegen()
        self.codegen.name, self.codegen.format = name, f"{name}-json"

    @hookimpl
    def dlc_targets(self):
        describe = lambda options: Description(parallel=False)  # noqa: E731
        return [TargetKind(self.name, "a card", self.name, self.name, describe=describe)]

    @hookimpl
    def dlc_codegens(self):
        return [self.codegen]

    @hookimpl
    def dlc_devices(self):
        return [self.device]


HOST = SimpleNamespace(during=lambda: None)


def _on_the_host(x):
    HOST.during()
    return x + 1


ON_THE_HOST = op(
    "on_the_host",
    "x + 1, on the host",
    ["x"],
    kind="opaque",
    infer=lambda types, attrs: types[0],
    reference=_on_the_host,
)


@pytest.fixture
def cards():
    left, right = Card("left"), Card("right")
    ops = SimpleNamespace(dlc_ops=hookimpl(specname="dlc_ops")(lambda: [ON_THE_HOST]))
    with fresh_registry({"left": left, "right": right, "ops": ops}):
        yield left.device, right.device
    HOST.during = lambda: None


def call(name, *args, **attrs):
    return registry().ops[name].build(*args, **attrs)


def compiled(params, *results, host="reference"):
    body = results[0] if len(results) == 1 else make_tuple(results)
    model = IRModule({"main": Function("main", tuple(params), body)})
    place = {"relu": "left", "exp": "right", "split": "left"}
    return dlc.compile(model, host, place=place), dlc.compile(model, "reference")


def two_branches(host="reference"):
    """relu on one card, exp on the other one, and their sum on the host."""
    x = param("x", SQUARE)
    return compiled([x], call("add", call("relu", x), call("exp", x)), host=host)


def meet(*devices):
    """Make devices wait in their launches until all of them are in one."""
    barrier = threading.Barrier(len(devices))
    for device in devices:
        device.during = lambda: barrier.wait(PATIENCE)


def check(exe, reference, *inputs):
    expected, found = reference(*inputs), exe(*inputs)
    pairs = zip(found, expected, strict=True) if isinstance(found, tuple) else [(found, expected)]
    for a, b in pairs:
        np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("host", ["reference", "reference -level=tir"])
def test_independent_segments_are_in_flight_at_the_same_time(cards, host):
    exe, reference = two_branches(host)
    meet(*cards)
    for _ in range(5):
        check(exe, reference, X)
    assert [len(device.launches) for device in cards] == [5, 5]


def test_a_segment_of_the_host_runs_beside_a_device(cards):
    x = param("x", SQUARE)
    exe, reference = compiled([x], call("add", call("relu", x), ON_THE_HOST.build(x)))
    expected = reference(X)
    meet(cards[0], HOST)
    np.testing.assert_allclose(exe(X), expected, rtol=1e-5)


def test_bodies_of_control_flow_overlap_too(cards):
    x, y, z = (param(name, SQUARE) for name in "xyz")
    then = Function("then", (y,), call("add", call("relu", y), call("exp", y)))
    other = Function("other", (z,), z)
    condition = call("greater", call("reduce_sum", call("exp", call("neg", x))), call("reduce_min", x))
    chosen = call("if_", condition, x, then_branch=then, else_branch=other)
    exe, reference = compiled([x], chosen)
    expected = reference(X)
    exe(X)
    meet_in_branch = threading.Barrier(2)
    counts = {"right": 0}

    def left():
        meet_in_branch.wait(PATIENCE)

    def right():
        counts["right"] += 1
        if counts["right"] == 2:  # the first launch is that of the condition
            meet_in_branch.wait(PATIENCE)

    cards[0].during, cards[1].during = left, right
    np.testing.assert_allclose(exe(X), expected, rtol=1e-5)
    assert counts["right"] == 2


def test_chains_stay_in_the_thread_of_the_caller(cards):
    x = param("x", SQUARE)
    exe, reference = compiled([x], call("exp", call("relu", x)))
    check(exe, reference, X)
    assert {thread for device in cards for thread in device.launches} == {threading.current_thread()}


def test_results_of_one_launch_are_used_at_different_times(cards):
    x = param("x", SQUARE)
    halves = call("split", call("relu", x), axis=1, sizes=(2, 2))
    parts = [get_item(halves, 0), get_item(halves, 1)]
    exe, reference = compiled([x], call("add", *parts), call("exp", call("neg", x)))
    meet(*cards)
    check(exe, reference, X)


def test_launches_on_one_device_are_in_order(cards):
    """Two launches of one card, beside one of the other: never two at once."""
    left, _ = cards
    x, y = param("x", SQUARE), param("y", SQUARE)
    first, second = call("relu", call("neg", x)), call("relu", call("neg", y))
    exe, reference = compiled([x, y], call("add", first, second), call("exp", call("add", x, y)))
    running = []

    def alone():
        running.append(1)
        time.sleep(0.01)
        assert len(running) == 1
        running.pop()

    left.during = alone
    for _ in range(3):
        check(exe, reference, X, X + 1)


def test_launches_in_a_body_follow_those_of_the_same_device(cards):
    """A branch on the card of a launch before it waits; what is before the branch does not."""
    x, y, z = (param(name, SQUARE) for name in "xyz")
    then = Function("then", (y,), call("relu", call("neg", y)))
    condition = call("greater", call("reduce_sum", call("exp", x)), call("reduce_min", x))
    chosen = call("if_", condition, x, then_branch=then, else_branch=Function("other", (z,), z))
    exe, reference = compiled([x], call("relu", x), chosen)
    running = []

    def alone():
        running.append(1)
        time.sleep(0.02)
        assert len(running) == 1
        running.pop()

    cards[0].during = alone
    for _ in range(3):
        check(exe, reference, X)
    assert len(cards[0].launches) == 6
    order = [n for n, _ in exe.loaded_caller()._steps.order]
    lanes = {name: str(region.target) for name, region in exe.regions.items()}
    beside = launches_beside(order, lanes)
    (waited,) = [order[i].op.name for n, i in beside.items() if lanes[n.attrs["symbol"]] == "left"]
    assert waited == "if_"


def quiet_after(work):
    """Run something that raises; the number of threads that work on segments is as before."""
    work()
    deadline = time.monotonic() + PATIENCE
    busy = lambda: sum(t.name == "dlc-segment" for t in threading.enumerate()) - len(_IDLE)  # noqa: E731
    while busy() and time.monotonic() < deadline:
        time.sleep(0.001)
    assert not busy()


def failing(error):
    def during():
        raise error

    return during


@pytest.mark.parametrize("failed", [0, 1])
def test_an_error_in_one_device_ends_the_call_and_leaves_nothing(cards, failed):
    exe, reference = two_branches()
    ended = []
    cards[failed].during = failing(ValueError("too hot"))
    cards[1 - failed].during = lambda: (time.sleep(0.05), ended.append(1))

    def run():
        with pytest.raises(RuntimeFailure, match="too hot"):
            exe(X)
        assert len(ended) == len(cards[1 - failed].launches)  # what has begun has ended

    quiet_after(run)
    for device in cards:
        device.during = lambda: None
    check(exe, reference, X)


@pytest.mark.parametrize("interrupted", [0, 1])
def test_an_interrupt_in_one_device_is_raised_in_the_call(cards, interrupted):
    exe, reference = two_branches()
    cards[interrupted].during = failing(KeyboardInterrupt())

    def run():
        with pytest.raises(KeyboardInterrupt):
            exe(X)

    quiet_after(run)
    for device in cards:
        device.during = lambda: None
    check(exe, reference, X)


@pytest.mark.skipif(not hasattr(signal, "pthread_kill"), reason="the system has no signals for threads")
def test_ctrl_c_during_a_wait_ends_the_call_when_the_launches_have_ended(cards):
    exe, reference = two_branches()
    launched, allowed = threading.Event(), threading.Event()

    def during():
        launched.set()
        allowed.wait(PATIENCE)

    for device in cards:
        device.during = during

    def interrupt():
        launched.wait(PATIENCE)
        os.kill(os.getpid(), signal.SIGINT)
        time.sleep(0.05)
        allowed.set()

    def run():
        thread = threading.Thread(target=interrupt)
        thread.start()
        with pytest.raises(KeyboardInterrupt):
            exe(X)
        thread.join()

    before = signal.signal(signal.SIGINT, signal.default_int_handler)  # workers of pytest-xdist ignore it
    try:
        quiet_after(run)
    finally:
        signal.signal(signal.SIGINT, before)
    check(exe, reference, X)


def test_a_profile_shows_the_overlap_and_measures_each_segment_alone(cards):
    exe, _ = two_branches()
    busy, most = [], []

    def during():
        busy.append(1)
        most.append(len(busy))
        time.sleep(0.03)
        busy.pop()

    for device in cards:
        device.during = during
    report = exe.profile([X], runs=2)
    assert "1111" in "".join(map(str, most))  # in the two calls whose segments are measured
    spans = {span.device: span for span in report.timeline if span.kind == "segment" and span.device in NAMES}
    assert spans["left"].start < spans["right"].end
    assert spans["right"].start < spans["left"].end


def test_many_callers_share_an_executable(cards):
    exe, reference = two_branches()
    inputs = [X + i for i in range(6)]
    expected = [reference(x) for x in inputs]
    found = [None] * len(inputs)

    def work(i):
        for _ in range(5):
            found[i] = exe(inputs[i])

    threads = [threading.Thread(target=work, args=(i,)) for i in range(len(inputs))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(PATIENCE)
    for a, b in zip(found, expected, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-5)


def test_memory_of_inputs_lives_until_the_launch_has_ended(cards):
    exe, _ = two_branches()
    order = exe.loaded_caller()._steps.order
    launches = [i for i, (n, _) in enumerate(order) if n.op.name == "call_prim"]
    used_at = next(i for i, (n, _) in enumerate(order) if n.op.name == "add")
    dead_at = {arg: i for i, (_, dead) in enumerate(order) for arg in dead}
    (x,) = {arg for i in launches for arg in order[i][0].args}
    assert dead_at[x] == used_at > max(launches)
    assert exe.memory.maximum is not None


def test_the_analysis_of_an_order():
    x = param("x", SQUARE)
    halves = std.BY_NAME["split"].build(x, axis=0, sizes=(2, 2))
    part, other = get_item(halves, 0), std.exp(x)
    late = std.relu(part)
    assert tuples_last([halves, part, other, late]) == [halves, other, part, late]
    assert tuples_last([halves, part, other]) == [halves, other, part]
    assert launches_beside([halves, part, other, late], {}) == {}


# Devices in the host's memory


class NearDevice(HostMemory):
    """A device in the host's memory that computes regions of one op by NumPy."""

    def __init__(self, name):
        super().__init__()
        self.name, self.formats = name, (f"{name}-op",)
        self.during = lambda: None

    def load(self, artifact):
        function = {"relu": lambda x: np.maximum(x, 0), "exp": np.exp}[artifact.code.decode()]

        def evaluate(arrays, weights, plan):
            self.during()
            return [function(*arrays)]

        return SimpleNamespace(entry=lambda symbol: SimpleNamespace(evaluate=evaluate), close=lambda: None)


class Near:
    """A plugin with such a device, for one op."""

    DLC_API = "0.1"

    def __init__(self, name, op_name):
        self.name, self.op_name, self.device = name, op_name, NearDevice(name)

    @hookimpl
    def dlc_targets(self):
        return [TargetKind(self.name, "a unit", "", self.name)]

    @hookimpl
    def dlc_devices(self):
        return [self.device]

    @hookimpl
    def dlc_partitioners(self):
        def compile_region(region, target):
            return Artifact(f"{self.name}-op", self.op_name.encode(), str(target), (region.name,))

        pattern = RegionPattern(self.op_name, match_op(self.op_name, var("x")))
        return [Partitioner(self.name, self.name, [pattern], compile_region, merge=False)]


def test_devices_in_the_memory_of_the_host_overlap_too():
    near, other = Near("left", "relu"), Near("right", "exp")
    with fresh_registry({"left": near, "right": other}):
        x = param("x", SQUARE)
        model = IRModule({"main": Function("main", (x,), call("add", call("relu", x), call("exp", x)))})
        exe = dlc.compile(model, targets=["left", "right", "reference"])
        meet(near.device, other.device)
        check(exe, dlc.compile(model, "reference"), X)
        near.device.during = failing(ValueError("too hot"))
        other.device.during = lambda: None
        with pytest.raises(RuntimeFailure, match="too hot"):
            exe(X)
