"""Emission of a PrimFunc as an LLVM function."""

from __future__ import annotations

from collections.abc import Container

from dlc_backend_llvm.dots import rounds_bfloat16
from dlc_backend_llvm.emit.amx import TileEmitter, request_tiles
from dlc_backend_llvm.emit.function import FunctionEmitter
from dlc_backend_llvm.emit.stops import can_stop, with_stops
from dlc_backend_llvm.emit.unit import Unit
from dlc_backend_llvm.pool_text import STOP_ENTER
from dlc_core.tir.calls import called_kernels
from dlc_core.tir.matrix import products
from dlc_core.tir.stmt import PrimFunc

MANY_CALLS = 32
"""The number of kernels from which an entry point may take long, even if each of its kernels is short."""


def emit_function(
    unit: Unit, func: PrimFunc, linkage: str = "internal", *, short: Container[str] = ()
) -> None:
    """Add a PrimFunc to the unit: `void @name(ptr …, scalars …, i32 %threads)`.

    `short` are the kernels that have no stop points. An entry point that calls others may take long.
    """
    emitter = FunctionEmitter(unit, func.name)
    if products(func.body):
        emitter = TileEmitter(unit, func.name)
        emitter.find_accumulators(func.body)
    emitter.flushes = func.attrs.get("denormals") == "flush" and rounds_bfloat16(unit.cpu)
    params = ", ".join([*emitter.take_params(func), "i32 %threads"])
    body = with_stops(func.body) if unit.stops else func.body
    if func.attrs.get("entry"):
        called = called_kernels(body)
        if can_stop(body) or len(called) >= MANY_CALLS or any(name not in short for name in called):
            emitter.stop_word = STOP_ENTER
    signature = f"define {linkage} void @{func.name}({params})"
    unit.functions.append(emitter.function_text(signature, body, request_tiles(body)))


__all__ = ["emit_function"]
