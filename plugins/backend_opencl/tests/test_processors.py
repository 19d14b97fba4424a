"""Schedules of CPU rules become launches with one thread per group, which compute the same without races."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest
from dlc_backend_opencl import kind
from dlc_backend_opencl.processors import RULES

import dlc_core as dlc
from dlc_core.driver import find_target
from dlc_core.graph.node import Node, constant, param, post_order
from dlc_core.ir.expr import Var
from dlc_core.ir.types import tensor_type
from dlc_core.op import std
from dlc_core.script import parse
from dlc_core.target.cost import Machine
from dlc_core.testing.cases import module_of
from dlc_core.testing.launches import check_launches
from dlc_core.testing.schedules import kernel_of

PROCESSOR = find_target("opencl -vector-bits=128 -cores=2").describe()


def tensor(*shape: object, dtype: str = "float32", name: str = "x") -> Node:
    return param(name, tensor_type(shape, dtype))


def product() -> Node:
    return std.relu(std.add(std.matmul(tensor(24, 16), tensor(16, 40, name="y")), tensor(40, name="z")))


def ragged_product() -> Node:
    return std.matmul(tensor(13, 7), tensor(7, 11, name="y"))


def rows() -> Node:
    return std.softmax(tensor(40, 33))


def columns() -> Node:
    return std.reduce_sum(tensor(21, 64), axes=(0,))


def symbolic_map() -> Node:
    return std.tanh(tensor(Var("n"), 8))


def transposed() -> Node:
    return std.transpose(tensor(96, 80), axes=(1, 0))


KERNELS = {
    product: "contraction",
    ragged_product: "contraction",
    rows: "rows",
    columns: "lanes",
    symbolic_map: "map",
    transposed: "map",
}


@pytest.mark.parametrize("kernel", KERNELS)
def test_kernels_match_the_interpreter(kernel: Callable[[], Node]) -> None:
    func = kernel_of(kernel())
    sizes = dict.fromkeys(func.scalars, 21)
    launched = check_launches(func, PROCESSOR, sizes, rules=RULES)
    assert launched.rule == f"opencl.cpu.{KERNELS[kernel]}"
    assert launched.scheduled.attrs["why_not"] == ()
    assert launched.shared_bytes == 0


def test_gpus_use_rules_for_thread_axes() -> None:
    plain = replace(PROCESSOR, extra={})
    assert check_launches(kernel_of(rows()), plain, rules=RULES).rule.startswith("gpu.")


def test_rooflines_count_gpu_units_and_cpu_cores() -> None:
    facts = [find_target(f"opencl {words}").describe() for words in ("", "-vector-bits=256")]
    gpu, processor = map(Machine.of, facts)
    assert (gpu.executor, processor.executor) == ("unit", "thread")
    assert (gpu.flops, processor.flops) == (2 * 64 * facts[0].frequency, 2 * 8 * 2 * facts[1].frequency)


def test_vector_accesses_are_not_calls() -> None:
    """Vectors are loaded and stored without function calls, around which accumulators would be saved."""
    module = module_of(std.relu(a := tensor(13, 24)), [a])
    for target in ("opencl_simulated -check=true", "opencl_simulated"):
        exe = dlc.compile(module, f"{target} -vector-bits=256", cache=False)
        assert "((global const dlc_packed_float8 *)(p0" in exe.source("cl")
        assert not re.search(r"\bv(load|store)\d", exe.source("cl"))
        x = np.random.default_rng(0).standard_normal((13, 24)).astype(np.float32)
        np.testing.assert_array_equal(exe(x), np.maximum(x, 0))


def bordered() -> Node:
    x, w = tensor(1, 7, 7, 16), tensor(3, 3, 1, 16, name="w")
    made = std.conv(x, w, groups=16, padding=(1, 1, 1, 1), layout="NXC", kernel_layout="XIO")
    return std.clip(std.sub(made, tensor(16, name="z")), min=0.0, max=6.0)


def curve() -> Node:
    x = tensor(5, 24)
    return std.neg(std.div(std.mul(std.add(x, x), std.sub(x, tensor(24, name="z"))), tensor(5, 1, name="y")))


@pytest.mark.parametrize("kernel", [product, bordered, curve])
def test_arithmetic_of_vectors(kernel: Callable[[], Node]) -> None:
    """Vector arithmetic is written with vector operators, not lane by lane."""
    node = kernel()
    module = module_of(node, [n for n in post_order(node) if n.op.name == "param"])
    text = dlc.compile(module, "opencl -vector-bits=256 -cores=2", cache=False).source("cl")
    assert re.search(r"\bfloat8\b", text)
    assert not re.search(r"\.s[0-9a-f]\b", text)
    assert len(text) < 20_000


@pytest.mark.usefixtures("opencl")
@pytest.mark.parametrize("kernel", [product, bordered, curve, rows, columns])
def test_arithmetic_of_vectors_on_a_device(kernel: Callable[[], Node]) -> None:
    node = kernel()
    params = [n for n in post_order(node) if n.op.name == "param"]
    module = module_of(node, params)
    rng = np.random.default_rng(0)
    arrays = [rng.standard_normal([int(d) for d in p.shape]).astype(np.float32) for p in params]
    arrays[0].flat[:2] = np.nan, np.inf
    with np.errstate(all="ignore"):
        expected = dlc.compile(module, "reference")(*arrays)
    np.testing.assert_allclose(
        dlc.compile(module, "opencl -device=0", cache=False)(*arrays), expected, 1e-4, 1e-5
    )


OWN = """
@T.prim_func
def main(a: T.Buffer((8,), "float32"), b: T.Buffer((8,), "float32")):
    for g in T.thread_binding(1, thread="block.x"):
        own = T.alloc_buffer((8,), "float32", scope="global")
        for v in T.vectorized(4):
            own[v] = a[v]
        for v in T.vectorized(4):
            own[v + 4] = a[v + 4]
        for i in range(8):
            b[i] = own[i * 3 % 8]
"""


@pytest.mark.parametrize(("flags", "registers"), [("avx2 fma", 16), ("avx2 fma avx512vl", 32)])
def test_register_tiles_use_all_registers(
    flags: str, registers: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    cpu = SimpleNamespace(
        type=2,
        max_work_group_size=64,
        max_work_item_sizes=(64, 64, 64),
        local_mem_size=1 << 15,
        max_compute_units=2,
        global_mem_cacheline_size=64,
        max_clock_frequency=0,
        native_vector_width_float=16,
        extensions="cl_khr_fp64",
    )
    monkeypatch.setattr(kind, "find_device", lambda *_: cpu)
    monkeypatch.setattr(kind, "pyopencl", lambda: SimpleNamespace(device_type=SimpleNamespace(CPU=2)))
    monkeypatch.setattr(kind, "processor_facts", lambda: f"flags\t\t: {flags}\n")
    facts = kind.description({option.name: option.default for option in kind.OPTIONS} | {"device": "0"})
    assert (facts.vector_bits, facts.vector_registers) == (256, registers)


@pytest.mark.usefixtures("opencl")
def test_allocations_of_kernels_are_private() -> None:
    exe = dlc.build(parse(OWN), "opencl -vector-bits=128")
    assert "((dlc_packed_float4 *)(own" in exe.source("cl")
    x = np.arange(8, dtype=np.float32)
    np.testing.assert_array_equal(exe(x), x[np.arange(8) * 3 % 8])


@pytest.mark.usefixtures("opencl")
def test_gemm_on_a_device() -> None:
    x, y = (np.random.default_rng(seed).standard_normal((96, 96)).astype(np.float32) for seed in (0, 1))
    a = tensor(96, 96)
    module = module_of(std.relu(std.matmul(a, constant(y))), [a])
    exe = dlc.compile(module, "opencl -vector-bits=256", cache=False)
    assert exe.explain().kernels[0].rule == "opencl.cpu.contraction"
    assert "barrier" not in exe.source("cl")
    np.testing.assert_allclose(exe(x), np.maximum(x @ y, 0), 1e-4, 1e-4)
