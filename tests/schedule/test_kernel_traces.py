"""Every kernel is made only by primitives: its printed trace, run on the unscheduled kernel, reproduces it.

The models are a small convolutional network and a layer of a transformer, with fixed and with symbolic dims,
on machines of several kinds.
"""

from __future__ import annotations

from dataclasses import replace
from types import MappingProxyType

import numpy as np
import pytest

from dlc_core import driver
from dlc_core.graph.node import Function, Node, constant, param, post_order
from dlc_core.ir.expr import Var
from dlc_core.ir.module import IRModule
from dlc_core.ir.structural import first_difference
from dlc_core.ir.types import tensor_type
from dlc_core.op import std
from dlc_core.passes import PassContext
from dlc_core.passes.default_pipelines import default_pipeline
from dlc_core.passes.tir.schedule_kernels import TRACES, ScheduleKernels
from dlc_core.plugin.registry import registry
from dlc_core.schedule.rules.base import ScheduleRule
from dlc_core.target import Description
from dlc_core.testing.schedules import check_schedule, kernel_of, replayed, target_of
from dlc_core.tir.stmt import PrimFunc

MACHINES = {
    "scalar": Description(vector_bits=0, vector_registers=16, cores=2),
    "usual": Description(vector_bits=256, vector_registers=16, cores=2),
    "wide": Description(vector_bits=512, vector_registers=32, cores=8),
}
RNG = np.random.default_rng(0)


def weight(*shape: int) -> Node:
    return constant(RNG.standard_normal(shape, np.float32))


def network(batch: object) -> Node:
    """Convolutions (padded, strided, depthwise, grouped), normalisation, residual, pooling, classifier."""
    x = param("x", tensor_type((batch, 3, 20, 20)))
    y = std.relu(std.conv(x, weight(8, 3, 3, 3), weight(8), padding=(1, 1, 1, 1), strides=(2, 2)))
    y = std.max_pool(y, kernel=(3, 3), strides=(2, 2), padding=(1, 1, 1, 1))
    z = std.conv(y, weight(8, 1, 3, 3), padding=(1, 1, 1, 1), groups=8)
    statistics = (weight(8), weight(8), weight(8), constant(np.ones(8, np.float32)))
    z = std.relu(std.batch_norm(z, *statistics))
    z = std.add(std.conv(z, weight(8, 4, 1, 1), groups=2), y)
    z = std.reshape(std.global_avg_pool(z), shape=(x.shape[0], 8))
    return std.softmax(std.add(std.matmul(z, weight(8, 10)), weight(10)))


def transformer(tokens: object) -> Node:
    """Self-attention of two heads and a feed-forward part, each normalised and added."""
    x = param("x", tensor_type((1, tokens, 32)))

    def heads(value: Node) -> Node:
        split = std.reshape(value, shape=(1, tokens, 2, 16))
        return std.transpose(split, axes=(0, 2, 1, 3))

    normed = std.layer_norm(x, weight(32), weight(32))
    q, k, v = (heads(std.add(std.matmul(normed, weight(32, 32)), weight(32))) for _ in range(3))
    scores = std.softmax(std.mul(std.matmul(q, k, transpose_b=True), constant(np.float32(0.25))))
    mixed = std.transpose(std.matmul(scores, v), axes=(0, 2, 1, 3))
    x = std.add(x, std.matmul(std.reshape(mixed, shape=(1, tokens, 32)), weight(32, 32)))
    hidden = std.gelu(std.add(std.matmul(std.rms_norm(x, weight(32)), weight(32, 64)), weight(64)))
    return std.add(x, std.matmul(hidden, weight(64, 32)))


def lowered(body: Node, machine: Description) -> tuple[IRModule, PassContext]:
    """The kernels before they are scheduled."""
    context = driver.context_for(target_of(machine), config={TRACES: True})
    inputs = tuple(n for n in post_order(body) if n.op.name == "param")
    module = IRModule({"main": Function("main", inputs, body)})
    for stage in ("graph", "lower"):
        module = default_pipeline(stage, list(registry().passes.values())).run(module, context)
    return module, context


def plain(func: PrimFunc) -> PrimFunc:
    """The kernel without the attributes that describe its schedule."""
    notes = ("rule", "why_not", "trace")
    return replace(func, attrs=MappingProxyType({k: v for k, v in func.attrs.items() if k not in notes}))


def wide_network() -> Node:
    """Convolutions of many channels, for which algorithms other than their definition are faster."""
    x = param("x", tensor_type((1, 64, 28, 28)))
    y = std.relu(std.conv(x, weight(64, 64, 3, 3), weight(64), padding=(1, 1, 1, 1)))
    return std.add(std.conv(y, weight(64, 64, 3, 3), padding=(1, 1, 1, 1)), x)


MODELS = {
    "wide network": wide_network,
    "network": lambda: network(2),
    "network of any batch": lambda: network(Var("batch")),
    "transformer": lambda: transformer(24),
    "transformer of any length": lambda: transformer(Var("tokens")),
}


@pytest.mark.parametrize("machine", MACHINES.values(), ids=MACHINES)
@pytest.mark.parametrize("make", MODELS.values(), ids=MODELS)
def test_printed_traces_reproduce_kernels(make, machine):
    module, context = lowered(make(), machine)
    kernels = module.of_kind(PrimFunc)
    assert len(kernels) >= 2
    for name, func in kernels.items():
        scheduled = ScheduleKernels().run_function(func, context)
        assert scheduled.attrs["rule"] != "none", name
        difference = first_difference(replayed(func, scheduled), scheduled)
        assert difference is None, f"{name}: {difference}"


def test_traces_are_stored_only_on_request():
    module, context = lowered(network(1), MACHINES["usual"])
    for func in module.of_kind(PrimFunc).values():
        bare = ScheduleKernels().run_function(func, context.with_(config={TRACES: False}))
        assert "trace" not in bare.attrs
        noted = ScheduleKernels().run_function(func, context)
        assert first_difference(plain(noted), plain(bare)) is None
        assert "get_output_blocks" not in noted.attrs["trace"]


def test_traces_are_tidied(sch):
    sch.get_consumers(sch.get_block("matmul"))
    (bias,) = sch.get_producers(sch.get_block("relu"))
    i, _ = sch.get_loops(bias)
    sch.get_loops(sch.get_block("relu"))
    sch.parallel(i)
    assert sch.trace.tidied().as_python().splitlines() == [
        "from dlc_core.schedule import flat",
        "b0 = sch.get_block('bias')",
        "l0, l1 = flat(sch.get_loops(b0))",
        "sch.parallel(l0)",
    ]


class Private(ScheduleRule):
    """A rule that changes its kernel without primitives."""

    name = "private"
    priority = 1000

    def matches(self, func, machine):
        return True

    def apply(self, schedule, machine):
        func = schedule.func
        schedule._program.set_func(replace(func, attrs=MappingProxyType({**func.attrs, "secret": 1})))


def test_rules_that_bypass_primitives_are_found():
    func = kernel_of(std.relu(param("x", tensor_type((4,)))))
    with pytest.raises(AssertionError, match="the trace of private gives another kernel"):
        check_schedule(func, MACHINES["usual"], rules=[Private()], trace=True)
