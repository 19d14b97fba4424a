"""Programs over several devices: copies, overlap of devices and host, memory of values."""

from __future__ import annotations

import threading
import time
from types import SimpleNamespace

import numpy as np
import pytest

import dlc_core as dlc
from dlc_core.diag import RuntimeFailure
from dlc_core.graph.node import Function, constant, get_item, make_tuple, param
from dlc_core.hooks import hookimpl
from dlc_core.ir.expr import Var
from dlc_core.ir.module import IRModule
from dlc_core.ir.types import tensor_type
from dlc_core.op.declare import op
from dlc_core.plugin.registry import fresh_registry, registry
from dlc_core.runtime.host_program.resident import Pool
from dlc_core.runtime.memory.host import bytes_of
from dlc_core.runtime.memory.recycled import class_of
from dlc_core.testing.card import CardPlugin

SQUARE = tensor_type((8, 8))
X = np.random.default_rng(0).standard_normal((8, 8)).astype(np.float32)
W = np.random.default_rng(1).standard_normal((8, 8)).astype(np.float32) / 8
PATIENCE = 20.0

STARTED, ALLOWED = threading.Event(), threading.Event()


def _host_work(x):
    STARTED.wait(PATIENCE)
    ALLOWED.set()
    return x + 1


HOST_WORK = op(
    "host_work",
    "x + 1, after the card has started",
    ["x"],
    kind="opaque",
    infer=lambda types, attrs: types[0],
    reference=_host_work,
)


@pytest.fixture
def cards():
    STARTED.clear()
    ALLOWED.clear()
    first, second = CardPlugin("first"), CardPlugin("second")
    plugin = SimpleNamespace(dlc_ops=hookimpl(specname="dlc_ops")(lambda: [HOST_WORK]))
    with fresh_registry({"first": first, "second": second, "ops": plugin}):
        yield first.card, second.card


def call(name, *args, **attrs):
    return registry().ops[name].build(*args, **attrs)


def dense(x):
    return call("relu", call("add", call("matmul", x, constant(W)), constant(np.ones(8, np.float32))))


def module(params, *results):
    body = results[0] if len(results) == 1 else make_tuple(results)
    return IRModule({"main": Function("main", tuple(params), body)})


def check(exe, model, *inputs):
    want = dlc.compile(model, "reference")(*inputs)
    got = exe(*inputs)
    for a, b in zip(got if isinstance(got, tuple) else (got,), want if isinstance(want, tuple) else (want,)):
        np.testing.assert_allclose(a, b, 1e-5, 1e-6)


HOST_TARGETS = ["reference", "reference -level=tir"]


@pytest.mark.parametrize("host_target", HOST_TARGETS)
def test_a_value_is_copied_once_to_each_device(cards, host_target):
    """The host reads the result of the card's first region; the card keeps it for the second one."""
    a = param("a", SQUARE)
    first = dense(a)
    last = call("add", dense(call("tanh", first)), first)
    model = module([a], last)
    exe = dlc.compile(model, targets=["first", host_target])
    assert len(exe.regions) == 2
    check(exe, model, X)
    card = cards[0]
    card.log.clear()
    check(exe, model, X)
    # x to the card, the first result back, its tanh to the card, the last result back.
    assert card.log == ["write", "region_0", "read", "write", "region_1", "read"]


def test_values_between_regions_stay_on_the_card(cards):
    """Values between regions that are not merged are not copied to the host."""
    with fresh_registry({"first": (plugin := CardPlugin("first", merge=False))}):
        a = param("a", SQUARE)
        model = module([a], dense(dense(dense(a))))
        exe = dlc.compile(model, targets=["first", "reference"])
        check(exe, model, X)
        plugin.card.log.clear()
        check(exe, model, X)
        assert plugin.card.log == ["write", "region_0", "region_1", "region_2", "read"]


def test_the_state_of_a_loop_stays_on_the_card(cards):
    i, x = param("i", tensor_type((), "int32")), param("x", SQUARE)
    cond = Function("cond", (i, x), call("less", i, constant(5, "int32")))
    j, y = param("j", tensor_type((), "int32")), param("y", SQUARE)
    body = Function("body", (j, y), make_tuple((call("sub", j, constant(-1, "int32")), dense(y))))
    a = param("a", SQUARE)
    model = module([a], get_item(call("while_", constant(0, "int32"), a, cond=cond, body=body), 1))
    exe = dlc.compile(model, targets=["first", "reference"])
    check(exe, model, X)
    cards[0].log.clear()
    check(exe, model, X)
    assert cards[0].log == ["write", *["region_0"] * 5, "read"]


def chain(a):
    """Steps on the first card, the second, and the first again."""
    there = call("relu", call("matmul", a, constant(W)))
    return call("matmul", call("add", there, there), constant(W))


PLACES = {"matmul": "first", "relu": "second", "add": "second"}


@pytest.mark.parametrize("host_target", HOST_TARGETS)
def test_cards_copy_from_each_other(cards, host_target):
    """Once for each value that the other card uses; only inputs and results are on the host."""
    first, second = cards
    a = param("a", SQUARE)
    model = module([a], chain(a))
    exe = dlc.compile(model, targets=["first", "second", host_target], place=PLACES)
    check(exe, model, X)
    first.log.clear()
    second.log.clear()
    check(exe, model, X)
    # A card logs copies when they are requested, and regions when they run.
    assert sorted(first.log) == ["copy", "read", "region_0", "region_2", "write"]
    assert sorted(second.log) == ["copy", "region_1"]


def test_copies_between_cards_wait_for_both(cards, monkeypatch):
    """A copy waits until its source is computed and its destination is no longer in use."""
    for card in cards:
        monkeypatch.setattr(card, "run", slowly(card.run))
    a = param("a", SQUARE)
    model = module([a], *(chain(call("mul", a, constant(np.float32(k)))) for k in range(1, 5)))
    exe = dlc.compile(model, targets=["first", "second", "reference"], place=PLACES)
    for _ in range(3):
        check(exe, model, X)


def slowly(run):
    def delayed(*args):
        time.sleep(0.003)
        run(*args)

    return delayed


def test_cards_without_direct_copies_exchange_through_the_host(cards, monkeypatch):
    first, _ = cards
    for card in cards:
        monkeypatch.setattr(card, "copy", lambda *args: False)
    a = param("a", SQUARE)
    model = module([a], chain(a))
    exe = dlc.compile(model, targets=["first", "second", "reference"], place=PLACES)
    check(exe, model, X)
    first.log.clear()
    check(exe, model, X)
    assert first.log == ["write", "region_0", "read", "write", "region_2", "read"]


def test_failed_copies_raise_in_the_call(cards, monkeypatch):
    def copy(*args):
        raise OSError("the link is down")

    a = param("a", SQUARE)
    model = module([a], chain(a))
    exe = dlc.compile(model, targets=["first", "second", "reference"], place=PLACES)
    with monkeypatch.context() as broken:
        broken.setattr(cards[1], "copy", copy)
        with pytest.raises(RuntimeFailure, match="the link is down"):
            exe(X)
    check(exe, model, X)


ITERATIONS = 4


def test_the_state_of_a_scan_stays_on_the_card(cards):
    """The host slices and stacks: in each iteration one part is copied to the card and one row from it."""
    y, part = param("y", SQUARE), param("part", SQUARE)
    after = dense(y)
    body = Function("body", (y, part), make_tuple((after, call("tanh", dense(call("add", after, part))))))
    a, parts = param("a", SQUARE), param("parts", tensor_type((ITERATIONS, 8, 8)))
    scan = call("scan", a, parts, num_state=1, body=body)
    model = module([a, parts], get_item(scan, 0), get_item(scan, 1))
    exe = dlc.compile(model, targets=["first", "reference"])
    xs = np.random.default_rng(2).standard_normal((ITERATIONS, 8, 8)).astype(np.float32)
    check(exe, model, X, xs)
    log = cards[0].log
    log.clear()
    check(exe, model, X, xs)
    # To the card: the state once, and a part in each iteration.  From it: a row in each, and the last state.
    assert (log.count("write"), log.count("read")) == (1 + ITERATIONS, ITERATIONS + 1)


def test_the_state_of_a_loop_with_rows_stays_on_the_card(cards):
    i, x = param("i", tensor_type((), "int32")), param("x", SQUARE)
    cond = Function("cond", (i, x), call("less", i, constant(ITERATIONS, "int32")))
    j, y = param("j", tensor_type((), "int32")), param("y", SQUARE)
    after = dense(y)
    row = call("reduce_sum", call("tanh", after), axes=(0, 1))
    body = Function("body", (j, y), make_tuple((call("sub", j, constant(-1, "int32")), after, row)))
    a = param("a", SQUARE)
    loop = call("loop", constant(0, "int32"), a, iterations=Var("n"), cond=cond, body=body)
    model = module([a], get_item(loop, 1), get_item(loop, 2))
    exe = dlc.compile(model, targets=["first", "reference"])
    check(exe, model, X)
    log = cards[0].log
    log.clear()
    check(exe, model, X)
    assert (log.count("write"), log.count("read")) == (1, ITERATIONS)
    assert sum(name.startswith("region") for name in log) == ITERATIONS


def test_two_cards_work_at_once(cards):
    """The first card ends after the second one has begun."""
    first, second = cards
    a = param("a", SQUARE)
    product = call("matmul", a, constant(W))
    model = module([a], call("tanh", product), call("exp", call("neg", call("relu", call("tanh", a)))))
    exe = dlc.compile(
        model, targets=["first", "second", "reference"], place={"relu": "second", "matmul": "first"}
    )
    order, plain = [], (first.run, second.run)

    def run_first(*args):
        STARTED.set()
        assert ALLOWED.wait(PATIENCE)
        plain[0](*args)
        order.append("first")

    def run_second(*args):
        assert STARTED.wait(PATIENCE)
        plain[1](*args)
        order.append("second")
        ALLOWED.set()

    first.run, second.run = run_first, run_second
    try:
        check(exe, model, X)
    finally:
        del first.run, second.run
    assert order == ["second", "first"]


@pytest.mark.parametrize("host_target", HOST_TARGETS)
def test_the_host_and_a_card_work_at_once(cards, host_target):
    """The card ends after the host has run an independent op, which is later in the program."""
    card = cards[0]
    a = param("a", SQUARE)
    model = module([a], call("tanh", dense(a)), call("mul", HOST_WORK.build(a), constant(2.0, "float32")))
    exe = dlc.compile(model, targets=["first", host_target])
    STARTED.set()
    expected = dlc.compile(model, "reference")(X)
    STARTED.clear()
    ALLOWED.clear()
    plain = card.run

    def run(*args):
        STARTED.set()
        assert ALLOWED.wait(PATIENCE)
        plain(*args)

    card.run = run
    try:
        for have, want in zip(exe(X), expected, strict=True):
            np.testing.assert_allclose(have, want, 1e-5, 1e-6)
    finally:
        del card.run


def test_failures_raise_in_their_call(cards):
    card = cards[0]
    a = param("a", SQUARE)
    model = module([a], call("tanh", dense(a)))
    exe = dlc.compile(model, targets=["first", "reference"])

    def run(*args):
        raise ValueError("too hot")

    card.run = run
    with pytest.raises(RuntimeFailure, match="too hot"):
        exe(X)
    del card.run
    check(exe, model, X)


def test_memory_between_segments_is_reused_within_its_bound(cards):
    """A chain of regions and host ops has only two live values."""
    card = cards[0]
    a = value = param("a", SQUARE)
    for _ in range(12):
        value = call("tanh", dense(value))
    model = module([a], value)
    exe = dlc.compile(model, targets=["first", "reference"])
    assert len(exe.regions) == 12
    (bound,) = exe.explain().device_memory.values()
    assert bound == 2 * class_of(X.nbytes)
    before = card.memory_used
    exe(X)
    resident = card.memory_used - before
    exe(X)
    assert card.memory_used - before == resident
    (pool,) = exe._caller._pools.values()
    assert pool.allocated <= bound
    assert f"at most {bound}" in str(exe.explain())
    exe.release()
    assert card.memory_used - before == len(exe.regions)  # weights of no bytes, of which each is one


def test_bounds_of_loops_and_dims(cards):
    n = Var("n")
    a = param("a", tensor_type((n, 8)))
    exe = dlc.compile(module([a], call("tanh", dense(a))), targets=["first", "reference"])
    assert exe.explain().device_memory == {"first": None}
    assert "depending on dims" in str(exe.explain())
    assert dlc.compile(module([a], call("tanh", a)), "reference").explain().device_memory == {}


def test_many_threads_share_an_executable(cards):
    a = param("a", SQUARE)
    model = module([a], call("add", dense(call("tanh", dense(a))), a))
    exe = dlc.compile(model, targets=["first", "reference"])
    expected = {k: exe(X * k) for k in range(6)}
    wrong = []

    def work(k):
        results = [exe(X * k) for _ in range(10)]
        wrong.extend(k for result in results if not np.array_equal(result, expected[k]))

    threads = [threading.Thread(target=work, args=(k,)) for k in expected]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong


def test_devices_in_this_memory_copy_nothing(devices, monkeypatch):
    """Regions of a device in this process's memory work on the caller's arrays."""
    a = param("a", SQUARE)
    model = module([a], call("tanh", call("exp", call("tanh", dense(a)))))
    exe = dlc.compile(model, targets=["shared", "reference"], place={"exp": "reference"})
    assert len(exe.regions) == 2
    for name in ("alloc", "write", "read"):
        monkeypatch.setattr(type(exe.regions["region_0"].device), name, None)
    check(exe, model, X)
    assert exe.explain().device_memory == {}


def test_pools_separate_size_classes(cards):
    card = cards[0]
    pool = Pool(card)
    first = pool.upload(np.arange(10, dtype=np.float32))
    handle = first.handle
    assert list(first.numpy()) == list(range(10))
    del first
    again = pool.empty((3,), "float32")
    assert again.handle == handle
    assert pool.allocated == 64
    large = pool.empty((1000,), "float32")
    assert large.handle != handle
    assert pool.allocated == 64 + class_of(4000)
    used = card.memory_used
    del again, large
    pool.clear()
    assert card.memory_used == used - pool.allocated
    card.write(handle := card.alloc(4), bytes_of(np.zeros(4, np.uint8)))
    card.free(handle)


@pytest.mark.parametrize("size", [0, 1, 64, 65, 100, 1000, 4097, 123456, 1 << 20, (1 << 20) + 1])
def test_size_classes_hold_their_values(size):
    found = class_of(size)
    assert size <= found <= size + size // 8 + 64
    assert class_of(found) == found
