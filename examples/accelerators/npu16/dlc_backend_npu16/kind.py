"""The machine: its memories and units, and its schedule rules."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from dlc_core.backend.scratchpad import ElementwiseRule, ScratchpadRule
from dlc_core.target import Description, MemoryScope, Option, TargetKind, Unit

OPTIONS = (
    Option("spad-kb", "int", 128, "KiB of the scratchpad"),
    Option("acc-kb", "int", 64, "KiB of accumulators"),
    Option("bus-bytes", "int", 32, "bytes that a DMA engine moves in a cycle"),
    Option("latency", "int", 64, "cycles before the first byte of a copy"),
)


def describe(options: Mapping[str, Any]) -> Description:
    """The record of a machine."""
    bus, latency = options["bus-bytes"], options["latency"]
    spad, acc = options["spad-kb"], options["acc-kb"]
    return Description(
        parallel=False,
        dtypes=("float32", "int32", "int8"),
        memory_scopes=(
            "global",
            MemoryScope("spad", bytes=spad << 10, banks=max(1, spad // 4), align=64),
            MemoryScope("acc", bytes=acc << 10, banks=max(1, acc // 4), align=64),
        ),
        units=(
            Unit("load", "load", rate=bus, latency=latency),
            Unit("array", "product", shape=(16, 16), startup=16),
            Unit("vector", "vector", rate=16, startup=8),
            Unit("store", "store", rate=bus, latency=latency),
        ),
        frequency=1e9,
        memory_bandwidth=1e9 * bus,
    )


KIND = TargetKind(
    "npu16",
    "a simulated accelerator: a 16x16 matrix array, a vector unit, a scratchpad with DMA",
    codegen="npu16",
    device="npu16",
    options=OPTIONS,
    describe=describe,
    keys=("npu16",),
    rules=("npu16.*",),
    # The array multiplies any layout, and the vector unit is too slow for transforms of tiles.
    disabled_passes=("convert_layout", "winograd", "strassen", "row_filter"),
)
RULES = (
    ScratchpadRule("npu16.contraction", operands="spad", sums="acc", keys=("npu16",)),
    ElementwiseRule("npu16.elementwise", scope="spad", keys=("npu16",)),
)

__all__ = ["KIND", "OPTIONS", "RULES", "describe"]
