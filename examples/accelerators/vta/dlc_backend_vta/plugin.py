"""The declarations of the package: the target kind `vta`, its device, its partitioner, its intrinsic."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from dlc_backend_vta.config import OPTIONS, Config
from dlc_backend_vta.cycles import STARTUP
from dlc_backend_vta.device import VtaDevice
from dlc_backend_vta.intrinsics import intrinsics
from dlc_backend_vta.partition import partitioner
from dlc_core.hooks import Deferred, hookimpl
from dlc_core.target import Description, MemoryScope, TargetKind, Unit

DLC_API = "0.1"


def describe(options: Any) -> Description:
    """The record of a machine, whose options are checked on the way."""
    config = Config.of(options)
    sizes = {"inp": config.inp_kb, "wgt": config.wgt_kb, "acc": config.acc_kb}
    return Description(
        parallel=False,
        dtypes=("int8", "uint8", "int32"),
        memory_scopes=("global", *(MemoryScope(name, kb << 10) for name, kb in sizes.items())),
        units=(
            Unit("load", "load", rate=config.bus_bytes, latency=config.latency, queue=config.queue),
            Unit(
                "compute",
                ("product", "vector"),
                rate=config.alu_lanes,
                shape=(config.block_in, config.block_out),
                startup=STARTUP,
                queue=config.queue,
            ),
            Unit("store", "store", rate=config.bus_bytes, latency=config.latency, queue=config.queue),
        ),
        frequency=3e8,
        memory_bandwidth=3e8 * config.bus_bytes,
        extra={"config": config},
    )


KIND = TargetKind(
    "vta",
    "a simulated tensor processor: products of int8 blocks, vectors of int32, explicit memories",
    codegen="",
    device="vta",
    options=OPTIONS,
    describe=describe,
)


@hookimpl
def dlc_targets() -> Iterable[Any]:
    return [KIND]


@hookimpl
def dlc_devices() -> Iterable[Any]:
    return [VtaDevice()]


@hookimpl
def dlc_tensor_intrins() -> Iterable[Any]:
    return intrinsics(Config()).values()


@hookimpl
def dlc_partitioners() -> Iterable[Any]:
    return [partitioner()]


@hookimpl
def dlc_measures() -> Iterable[Any]:
    return [Deferred("vta", "dlc_backend_vta.measure:MEASURE")]


__all__ = ["KIND"]
