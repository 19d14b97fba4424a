"""Emission of a PrimFunc as an LLVM function."""

from __future__ import annotations

from dlc_backend_llvm.dots import rounds_bfloat16
from dlc_backend_llvm.emit.amx import TileEmitter, request_tiles
from dlc_backend_llvm.emit.function import FunctionEmitter
from dlc_backend_llvm.emit.unit import Unit
from dlc_core.tir.matrix import products
from dlc_core.tir.stmt import PrimFunc


def emit_function(unit: Unit, func: PrimFunc, linkage: str = "internal") -> None:
    """Add a PrimFunc to the unit: `void @name(ptr …, scalars …, i32 %threads)`."""
    emitter = FunctionEmitter(unit, func.name)
    if products(func.body):
        emitter = TileEmitter(unit, func.name)
        emitter.find_accumulators(func.body)
    emitter.flushes = func.attrs.get("denormals") == "flush" and rounds_bfloat16(unit.cpu)
    params = ", ".join([*emitter.take_params(func), "i32 %threads"])
    signature = f"define {linkage} void @{func.name}({params})"
    unit.functions.append(emitter.function_text(signature, func.body, request_tiles(func.body)))


__all__ = ["emit_function"]
