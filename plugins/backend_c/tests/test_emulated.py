"""C for other processors, run by QEMU: a part of the conformance kit; all ops are slow tests."""

from __future__ import annotations

import sys
from typing import Any

import numpy as np
import pytest
from dlc_backend_c.emulated import MACHINES, Machine, problem

import dlc_core as dlc
from dlc_core.diag import RuntimeFailure, TargetError
from dlc_core.passes import PassContext
from dlc_core.runtime.guard.mode import MODES
from dlc_core.testing import conformance_suite, networks

CPUS = ("cortex-a72", "cortex-a7", "rv64gc")
SLICE = ("matmul", "conv", "softmax", "erf", "cast", "reduce_max", "gather", "requantize", "floor_divide")

SHIFTED = """
@T.prim_func
def shifted(A: T.Buffer((8,), "float32"), B: T.Buffer((8,), "float32")):
    for i in range(8):
        B[i] = A[i + OFF]
"""


def emulated(cpu: str, suite: type[Any]) -> type[Any]:
    """A conformance suite that is skipped if the processor cannot be emulated."""
    why = problem(cpu)
    return pytest.mark.skipif(why is not None, reason=str(why))(suite)


def fast(cpu: str) -> type[Any]:
    target = f"c_emulated -mcpu={cpu}"
    return emulated(cpu, conformance_suite(target, levels=("ops",), fast_dtypes=("float32",), ops=SLICE))


def whole(cpu: str) -> type[Any]:
    suite = conformance_suite(f"c_emulated -mcpu={cpu}", levels=("ops",))
    return pytest.mark.slow(emulated(cpu, suite))


TestA72 = fast("cortex-a72")
TestA7 = fast("cortex-a7")
TestRiscV = fast("rv64gc")
TestWholeA72 = whole("cortex-a72")
TestWholeA7 = whole("cortex-a7")
TestWholeRiscV = whole("rv64gc")


@pytest.mark.parametrize("cpu", CPUS)
@pytest.mark.parametrize("name", sorted(networks.NETWORKS))
def test_networks(cpu, name):
    why = problem(cpu)
    if why:
        pytest.skip(why)
    module = networks.NETWORKS[name]()
    x = networks.feed(module)
    found = dlc.compile(module, f"c_emulated -mcpu={cpu}", cache=False)(x)
    np.testing.assert_allclose(found, dlc.compile(module, "reference", cache=False)(x), 1e-4, 1e-5)


def test_a_processor_that_is_not_emulated_is_refused():
    with pytest.raises(TargetError, match="not 'cortex-m4'"):
        dlc.compile(networks.mlp(), "c_emulated -mcpu=cortex-m4", cache=False)
    assert "cortex-m4" not in MACHINES


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="the program is this machine's")
@pytest.mark.parametrize("mode", MODES)
def test_guard_mode_protects_pages_of_the_program(mode, monkeypatch):
    """Guard mode in the emulated program, tested with this machine in place of an emulated one."""
    monkeypatch.setitem(MACHINES, "native", Machine("cc", ("env",)))
    x = networks.feed(networks.mlp())
    exe = dlc.compile(networks.mlp(), "c_emulated -mcpu=native", config={"guard": mode}, cache=False)
    np.testing.assert_allclose(exe(x), dlc.compile(networks.mlp(), "reference", cache=False)(x), 1e-4, 1e-5)
    func = dlc.script.parse(SHIFTED.replace("OFF", "1" if mode == "end" else "-1"))
    with PassContext(disabled=("prove_bounds",)):
        exe = dlc.build(func, "c_emulated -mcpu=native", config={"guard": mode})
    with pytest.raises(RuntimeFailure, match="status -11"):
        exe(np.ones(8, np.float32))
