"""Checks of compiled code against the reference: samples of ops and small networks, with and without guard
mode, on this machine and in the interpreter.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from itertools import islice
from typing import Any

import numpy as np

import dlc_core as dlc
from dlc_core.graph.node import Node, constant, get_item, make_tuple, param
from dlc_core.ir.expr import Var
from dlc_core.ir.module import IRModule
from dlc_core.ir.types import tensor_type
from dlc_core.op import std
from dlc_core.op.declare import OpDecl
from dlc_core.op.std import convolution, indexing, pool, shape, slicing
from dlc_core.runtime.executable import Executable
from dlc_core.testing.blocks import BLOCKS
from dlc_core.testing.cases import Case, difference, module_of, op_cases, outputs_of, symbolic_cases
from dlc_core.testing.control_programs import check_random_control, scan_and_loop
from dlc_core.testing.networks import NETWORKS
from dlc_core.testing.strategies import random_graph
from tests.mutation.check import Check
from tests.passes import test_joins as joins

NATIVE = "llvm"
INTERPRETED = "reference -level=tir -check=true"
MODES = ("end", "begin")
N, M = Var("n"), Var("m")
FAMILIES = (convolution, pool, slicing, shape, indexing)
"""Families whose ops are tried in all their samples."""
CLOSE = {"float16": (1e-2, 1e-2), "float32": (1e-4, 1e-4), "float64": (1e-8, 1e-8)}
Results = Sequence[Any]


def kernel_checks() -> Iterator[Check]:
    """Samples, graphs of several kernels, networks, control flow, joins."""
    yield from _samples()
    for name in _GRAPHS:
        for mode in MODES:
            yield Check(f"graph/{name}/{mode}", partial(_graph, name, NATIVE, 1, guard=mode))
        yield Check(f"graph/{name}/threads", partial(_graph, name, NATIVE, 2))
        yield Check(f"graph/{name}/interpreted", partial(_graph, name, INTERPRETED, 1))
    for name in ("keywords", "recurrent", "encoder"):
        yield Check(f"network/{name}/end", partial(_network, name, 1, guard="end"))
        yield Check(f"network/{name}/threads", partial(_network, name, 2))
    for seed in range(8):
        yield Check(f"control/{seed}", partial(_control, seed, False))
        yield Check(f"control/stacking {seed}", partial(_control, seed, True))
        yield Check(f"random/{seed}/interpreted", partial(_random, seed, INTERPRETED))
        yield Check(f"random/{seed}/end", partial(_random, seed, NATIVE, guard="end"))
        yield Check(f"random/{seed}/off", partial(_random, seed, NATIVE))
    for step in (1, 2, -1, -3):
        yield Check(f"slice/open {step}", partial(_open_slice, step))
    yield Check("control/every kind/off", _scan_and_loop)
    yield Check("control/every kind/end", partial(_scan_and_loop, guard="end"))
    for name in _JOINS:
        yield Check(f"joins/{name}", partial(_joined, name))


# Samples of ops.


def _samples() -> Iterator[Check]:
    for family in FAMILIES:
        for decl in family.OPS:
            for number, sample in enumerate(decl.samples):
                dtype = (sample.dtypes or decl.dtypes)[0]
                mode = MODES[number % 2]
                key = f"op/{decl.name}/{number}/{mode}"
                yield Check(key, partial(_sample, decl, number, dtype, guard=mode))
            for start in range(4):
                yield Check(f"op/{decl.name}/symbolic {start}", partial(_symbolic, decl, start))


def _sample(decl: OpDecl, number: int, dtype: str, **config: str) -> int:
    found = [c for c in op_cases(decl, (dtype,)) if c.name == f"ops/{decl.name}/{number}/{dtype}"]
    return sum(_case(case, **config) for case in found)


def _symbolic(decl: OpDecl, start: int) -> int:
    """Every fourth sample, with symbolic dims."""
    return sum(_case(case, guard="end") for case in islice(symbolic_cases(decl), start, None, 4))


def _case(case: Case, **config: str) -> int:
    exe = _compiled(case.module, NATIVE, 1, **config)
    for trial in case.trials:
        with np.errstate(all="ignore"):
            found = outputs_of(exe(*trial.inputs))
        wrong = difference(found, trial.expected, case.tolerances)
        if wrong is not None:
            raise AssertionError(f"{case.name}: {wrong}")
    return _open(exe)


def _compiled(module: IRModule, target: str, threads: int, **config: str) -> Executable:
    return dlc.compile(module, target, cache=False, num_threads=threads, config=config)


def _open(exe: Executable) -> int:
    accesses = exe.about.get("accesses")
    return int(accesses["checked"]) if accesses else 0


# Graphs.


def _tensor(*dims: int | Var, name: str = "x", dtype: str = "float32") -> Node:
    return param(name, tensor_type(dims, dtype))


def _weights(*dims: int) -> Node:
    return constant(np.random.default_rng(dims).integers(-2, 3, dims).astype(np.float32))


def _heads(*, transposed: bool) -> tuple[Node, list[Node]]:
    """Concatenated detections of three scales."""
    heads = [_tensor(1, 8, n, n, name=f"x{n}") for n in (8, 4, 2)]
    flat = [std.reshape(std.relu(h), shape=(1, 8, n * n)) for h, n in zip(heads, (8, 4, 2), strict=True)]
    both = std.concat(*flat, axis=2)
    return (std.transpose(both, axes=(0, 2, 1)) if transposed else both), heads


def _chain() -> tuple[Node, list[Node]]:
    """Values of many sizes with overlapping live ranges; several results, one at the end of a chain."""
    x = _tensor(7, 24)
    a = std.relu(std.matmul(x, _weights(24, 40)))
    b = std.matmul(a, _weights(40, 9))
    c = std.matmul(a, _weights(40, 64))
    d = std.matmul(std.tanh(c), _weights(64, 40))
    e = std.matmul(std.add(a, d), _weights(40, 33))
    last = std.matmul(std.concat(e, b, axis=1), _weights(42, 5))
    return make_tuple([last, std.softmax(b), std.reduce_sum(e, axes=(1,))]), [x]


def _open_chain() -> tuple[Node, list[Node]]:
    """The same with symbolic rows and columns."""
    x, y = _tensor(N, 24), _tensor(24, M, name="y")
    a = std.relu(std.matmul(x, _weights(24, 40)))
    b = std.matmul(x, y)
    c = std.matmul(std.concat(a, b, axis=1), std.concat(_weights(40, 11), std.transpose(
        std.matmul(_weights(11, 24), y), axes=(1, 0)), axis=0))  # fmt: skip
    return make_tuple([std.softmax(c), std.relu(std.concat(b, std.exp(b), axis=0))]), [x, y]


def _image() -> tuple[Node, list[Node]]:
    """Parallel convolutions and pools, a residual, and joined channels."""
    x = _tensor(1, 6, 15, 13)
    same = {"padding": (1, 1, 1, 1)}
    a = std.relu(std.conv(x, _weights(16, 6, 3, 3), **same))
    b = std.conv(a, _weights(16, 1, 3, 3), groups=16, **same)
    c = std.max_pool(a, kernel=(3, 3), strides=(1, 1), padding=(1, 1, 1, 1))
    d = std.conv(std.concat(b, c, axis=1), _weights(16, 32, 1, 1))
    e = std.relu(std.add(a, d))
    parts = std.split(e, sizes=(5, 11), axis=1)
    first, second = get_item(parts, 0), get_item(parts, 1)
    down = std.avg_pool(second, kernel=(2, 2), strides=(2, 2))
    return make_tuple([std.neg(first), std.conv(down, _weights(9, 11, 3, 3), strides=(2, 2))]), [x]


def _binary(make: Callable[[Node, Node], Node], a: Sequence[Any], b: Sequence[Any]) -> Any:
    def build() -> tuple[Node, list[Node]]:
        params = [_tensor(*a, name="a"), _tensor(*b, name="b")]
        return make(*params), params

    return build


def _unary(make: Callable[[Node], Node], *dims: Any) -> Any:
    def build() -> tuple[Node, list[Node]]:
        x = _tensor(*dims)
        return make(x), [x]

    return build


def _sliced(x: Node) -> Node:
    parts = std.split(std.relu(x), sizes=(3, 5, 9), axis=1)
    first, second, third = (get_item(parts, i) for i in range(3))
    return make_tuple([std.concat(third, first, axis=1), std.exp(second), std.flip(first, axes=(1, 2))])


_GRAPHS: dict[str, Callable[[], tuple[Node, list[Node]]]] = {
    "product": _binary(std.matmul, (19, 23), (23, 37)),
    "product of open sizes": _binary(std.matmul, (N, 20), (20, M)),
    "row": _binary(std.matmul, (1, 300), (300, 40)),
    "softmax": _unary(std.softmax, 3, 17, 33),
    "softmax of open rows": _unary(std.softmax, N, M),
    "sum": _unary(lambda x: std.reduce_sum(x, axes=(1,)), 3, 17, 33),
    "transpose": _unary(lambda x: std.transpose(x, axes=(2, 0, 1)), 3, 17, 33),
    "open transpose": _unary(lambda x: std.transpose(x, axes=(2, 0, 1)), 3, N, M),
    "pad": _unary(lambda x: std.pad(x, pads=(0, 1, 2, 0, 0, 0, 1, 3)), 2, 3, 9, 7),
    "split and flip": _unary(_sliced, 3, 17, 6),
    "open pool": _unary(lambda x: std.max_pool(x, kernel=(3, 2), strides=(2, 1), padding=(1, 0, 1, 1)),
                        1, 3, Var("h"), 7),
    "open conv": _unary(lambda x: std.conv(x, _weights(7, 5, 3, 3), padding=(1, 1, 1, 1)),
                        1, 5, Var("h"), Var("w")),
    "heads": partial(_heads, transposed=False),
    "transposed heads": partial(_heads, transposed=True),
    "chain": _chain,
    "open chain": _open_chain,
    "image": _image,
}  # fmt: skip
_SIZES = (
    {"n": 21, "m": 18, "h": 9, "w": 11},
    {"n": 1, "m": 1, "h": 4, "w": 3},
    {"n": 4, "m": 33, "h": 7, "w": 5},
    {"n": 0, "m": 3, "h": 5, "w": 1},
)


def _graph(name: str, target: str, threads: int, **config: str) -> int:
    body, params = _GRAPHS[name]()
    module = module_of(body, params)
    exe = _compiled(module, target, threads, **config)
    rng = np.random.default_rng(0)
    given = module["main"].params
    is_open = any(isinstance(d, Var) for p in given for d in p.shape)
    for sizes in _SIZES if is_open else _SIZES[:1]:
        dims = [[sizes[d.name] if isinstance(d, Var) else d for d in p.shape] for p in given]
        feeds = [rng.integers(-3, 4, s).astype(p.dtype.numpy) for s, p in zip(dims, given, strict=True)]
        _compare(module, exe, feeds)
    return _open(exe)


def _compare(module: IRModule, exe: Executable, feeds: Sequence[Any]) -> None:
    """Check that two runs of an executable have the results of the reference."""
    expected = outputs_of(dlc.compile(module, "reference", cache=False)(*feeds))
    for _ in range(2):
        _differ(outputs_of(exe(*feeds)), expected)


def _differ(found: Results, expected: Results) -> None:
    """Raise AssertionError if results differ."""
    wrong = difference(found, expected, CLOSE)
    if wrong is not None:
        raise AssertionError(wrong)


def _network(name: str, threads: int, **config: str) -> int:
    module = NETWORKS[name]() if name in NETWORKS else BLOCKS[name]("float32")
    exe = _compiled(module, NATIVE, threads, **config)
    _compare(module, exe, _feeds(module))
    return _open(exe)


def _feeds(module: IRModule) -> list[Any]:
    rng = np.random.default_rng(1)
    made = []
    for own in module["main"].params:
        dims = own.type.static_shape()
        drawn = rng.integers(0, 9, dims) if own.dtype.is_int else rng.standard_normal(dims)
        made.append(drawn.astype(own.dtype.numpy))
    return made


def _random(seed: int, target: str, **config: str) -> int:
    graph = random_graph(random.Random(seed), symbolic=seed % 2 == 1)
    module = IRModule({"main": graph.function})
    exe = _compiled(module, target, 1, **config)
    for number, sizes in enumerate(graph.sizes):
        _compare(module, exe, graph.feeds(sizes, number))
    return _open(exe)


def _open_slice(step: int) -> int:
    """A slice of rows between symbolic indices."""
    low, high = Var("low"), Var("high")
    params = [_tensor(N, 3), _tensor(low, name="low"), _tensor(high, name="high")]
    begin, end = (low, high) if step > 0 else (high, low)
    body = std.slice(params[0], begins=(begin,), ends=(end,), strides=(step,), axes=(0,))
    exe = _compiled(module_of(body, params), NATIVE, 1, guard="end")
    for rows, first, last in ((9, 2, 7), (9, 0, 9), (5, 5, 5), (7, 1, 7), (1, 0, 1)):
        x = np.arange(3 * rows, dtype=np.float32).reshape(rows, 3)
        cut = slice(first, last, step) if step > 0 else slice(last, first, step)
        found = outputs_of(exe(x, *(np.zeros(size, np.float32) for size in (first, last))))
        _differ(found, [x[cut]])
    return _open(exe)


# Control flow and joins.


def _control(seed: int, stacking: bool) -> int:
    check_random_control(seed, NATIVE, stacking=stacking)
    return 0


def _scan_and_loop(**config: str) -> int:
    module = scan_and_loop()
    exe = _compiled(module, NATIVE, 1, **config)
    wanted = dlc.compile(module, "reference", cache=False)
    rng = np.random.default_rng(0)
    for size, rounds in ((0, 1), (1, 0), (7, 3), (7, 2), (2, 1)):
        vectors = [rng.standard_normal(size).astype(np.float32) for _ in range(2)]
        rows = rng.standard_normal((rounds, size)).astype(np.float32)
        for count in range(6):
            feeds = [*vectors, rows, np.int32(count)]
            _differ(outputs_of(exe(*feeds)), outputs_of(wanted(*feeds)))
    return _open(exe)


_JOINS = tuple(
    name for name in vars(joins) if name.startswith("test_") and not vars(joins)[name].__code__.co_argcount
)


def _joined(name: str) -> int:
    vars(joins)[name]()
    return 0


__all__ = ["kernel_checks"]
