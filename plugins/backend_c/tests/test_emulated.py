"""C for other processors, run under QEMU: a slice of the conformance kit, the whole ops tier when slow."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from dlc_backend_c.emulated import MACHINES, problem

import dlc_core as dlc
from dlc_core.diag import TargetError
from dlc_core.testing import conformance_suite, networks

CPUS = ("cortex-a72", "cortex-a7", "rv64gc")
SLICE = ("matmul", "conv", "softmax", "erf", "cast", "reduce_max", "gather", "requantize", "floor_divide")


def emulated(cpu: str, suite: type[Any]) -> type[Any]:
    """A conformance suite that is skipped where the processor cannot be emulated."""
    why = problem(cpu)
    return pytest.mark.skipif(why is not None, reason=str(why))(suite)


def fast(cpu: str) -> type[Any]:
    target = f"c_emulated -mcpu={cpu}"
    return emulated(cpu, conformance_suite(target, tiers=("ops",), fast_dtypes=("float32",), ops=SLICE))


def whole(cpu: str) -> type[Any]:
    suite = conformance_suite(f"c_emulated -mcpu={cpu}", tiers=("ops",))
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


def test_a_processor_that_is_not_emulated():
    with pytest.raises(TargetError, match="not 'cortex-m4'"):
        dlc.compile(networks.mlp(), "c_emulated -mcpu=cortex-m4", cache=False)
    assert "cortex-m4" not in MACHINES
