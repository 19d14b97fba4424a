"""Kernels over thread axes as LLVM IR for GPUs: shared memory, barriers, exchanges between threads.

Pointers are generic: LLVM infers the address space of each from its origin [1].

[1] LLVM, User Guide for NVPTX Back-end.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

from dlc_backend_llvm.cpu import HostCpu
from dlc_backend_llvm.emit.dots import GROUP
from dlc_backend_llvm.emit.function import FunctionEmitter
from dlc_backend_llvm.emit.types import memory_type, register_type
from dlc_backend_llvm.emit.unit import Unit
from dlc_core.arith import Analyzer
from dlc_core.backend.kernels import Shared, group_extents
from dlc_core.diag import CodegenError
from dlc_core.ir.buffer import Buffer
from dlc_core.ir.dtype import dtype
from dlc_core.ir.expr import Call, Expr, call, const_value
from dlc_core.tir.functor import allocations
from dlc_core.tir.intrinsics import BARRIERS
from dlc_core.tir.stmt import Alloc, Eval, For, PrimFunc
from dlc_core.tir.threads import is_shared

_AXES = {
    f"{level}.{axis}": f"llvm.nvvm.read.ptx.sreg.{word}.{axis}"
    for level, word in (("block", "ctaid"), ("thread", "tid"))
    for axis in "xyz"
}
_BARRIER = "llvm.nvvm.barrier0"
_SHUFFLES = {"subgroup_shuffle": "idx", "subgroup_shuffle_down": "down", "subgroup_shuffle_xor": "bfly"}
_INT32 = dtype("int32")
_WARP = 32
_ALIGNED = 16
"""The minimum alignment in bytes of shared memory and of the caller's buffers."""


class KernelEmitter(FunctionEmitter):
    """Emits the body of one kernel."""

    def __init__(self, unit: Unit, name: str) -> None:
        super().__init__(unit, name)
        self.arrays: list[str] = []
        """The definitions of shared buffers, as module-level text."""
        self.shared: list[Shared] = []

    def declare_shared(self, buffer: Buffer) -> None:
        """Define a shared buffer as a global variable of the module."""
        shape = buffer.static_shape()
        if shape is None:
            raise CodegenError(f"buffer {buffer!r} has no fixed size")
        count = max(1, prod(shape))
        name = f"{self.name}.{len(self.arrays)}"
        kind = f"[{count} x {memory_type(buffer.dtype)}]"
        self.arrays.append(f"@{name} = internal addrspace(3) global {kind} undef, align {_ALIGNED}")
        self.shared.append(Shared(buffer.name, count * buffer.dtype.itemsize))
        self.pointers[buffer] = (f"addrspacecast (ptr addrspace(3) @{name} to ptr)", 0)

    def alignment(self, buffer: Buffer, start: Expr, lanes: int) -> int:
        size = buffer.dtype.itemsize
        factor, rest = Analyzer().modular(start)
        whole = lanes & (lanes - 1) == 0 and factor % lanes == 0 and rest % lanes == 0
        return min(_ALIGNED, size * lanes) if whole else size

    def visit_for(self, loop: For) -> None:
        if loop.kind != "thread":
            super().visit_for(loop)
            return
        register = _AXES.get(loop.thread)
        if register is None:
            raise CodegenError(f"GPUs have no axis {loop.thread}", hint=f"axes: {', '.join(_AXES)}")
        self.unit.declare(register, f"i32 @{register}()")
        number = self.emit(f"zext i32 {self.emit(f'call i32 @{register}()')} to i64")
        if const_value(loop.begin) != 0:
            number = self.emit(f"add i64 {self.value(loop.begin)}, {number}")
        kind = register_type(loop.var.dtype)
        if kind != "i64":
            number = self.emit(f"trunc i64 {number} to {kind}")
        if self.nonnegative(loop.begin):
            self._nonnegative.add(loop.var)
        with self.scope():
            self.vars[loop.var] = (number, self.depth)
            self.stmt(loop.body)

    def visit_alloc(self, stmt: Alloc) -> None:
        if is_shared(stmt.buffer):
            self.stmt(stmt.body)
        else:
            super().visit_alloc(stmt)

    def visit_eval(self, stmt: Eval) -> None:
        name = stmt.value.name if isinstance(stmt.value, Call) else ""
        if name in ("copies_begin", "copies_end"):
            return  # copies are synchronous here
        if name not in BARRIERS:
            super().visit_eval(stmt)
            return
        self.unit.declare(_BARRIER, f"void @{_BARRIER}()")
        self.lines.append(f"  call void @{_BARRIER}()")
        for scope in self.scopes:
            scope.volatile.clear()

    def _prefetch(self, handle: Expr) -> None:
        """Emits nothing: prefetches are hints, and GPUs hide latency by other means."""

    def _call(self, expr: Call) -> str:
        return self._dots(expr) if _is_of_bytes(expr) else super()._call(expr)

    def _dots(self, expr: Call) -> str:
        """A dot product of four bytes for each lane, by one instruction per lane."""
        sums, *operands = expr.args
        lanes, kind = sums.dtype.lanes, register_type(sums.dtype)
        signs = ".".join("u" if each.dtype.kind == "uint" else "s" for each in operands)
        name = f"llvm.nvvm.idp4a.{signs}"
        self.unit.declare(name, f"i32 @{name}(i32, i32, i32)")
        words = [self.value(call(GROUP, (each,), _INT32.with_lanes(lanes))) for each in operands]
        made, values = "poison", (*words, self.value(sums))
        for lane in range(lanes):
            given = values
            if lanes > 1:
                given = tuple(self.emit(f"extractelement {kind} {value}, i32 {lane}") for value in values)
            one = self.emit(f"call i32 @{name}(i32 {given[0]}, i32 {given[1]}, i32 {given[2]})")
            made = one if lanes == 1 else self.emit(f"insertelement {kind} {made}, i32 {one}, i32 {lane}")
        return made

    def _intrinsic(self, expr: Call, args: list[str]) -> str:
        how = _SHUFFLES.get(expr.name)
        return super()._intrinsic(expr, args) if how is None else self._shuffled_value(how, expr, args)

    def _shuffled_value(self, how: str, expr: Call, args: list[str]) -> str:
        """A value of another thread of the subgroup, exchanged in words of 32 bits."""
        kind, bits = register_type(expr.dtype), expr.dtype.bits
        width = const_value(expr.args[2])
        if not isinstance(width, int):
            raise CodegenError(f"{expr.name} over {expr.args[2]} threads: the number must be a constant")
        number = self.cast(args[1], expr.args[1].dtype, _INT32)
        # The low bits are the last lane that may be read; the bits above are a mask of the lane bits that are
        # constant within a part of `width` lanes (PTX `shfl`, operand c).
        bounds = (_WARP - width) << 8 | (_WARP - 1)
        name = f"llvm.nvvm.shfl.sync.{how}.i32"
        self.unit.declare(name, f"i32 @{name}(i32, i32, i32, i32)")

        def word(value: str) -> str:
            return self.emit(f"call i32 @{name}(i32 -1, i32 {value}, i32 {number}, i32 {bounds})")

        if expr.dtype.is_float and bits < 64:
            return self.emit(f"bitcast i32 {word(self.emit(f'bitcast float {args[0]} to i32'))} to float")
        if bits < 64:
            wide = args[0] if bits == 32 else self.emit(f"zext {kind} {args[0]} to i32")
            return word(wide) if bits == 32 else self.emit(f"trunc i32 {word(wide)} to {kind}")
        pair = self.emit(f"bitcast {kind} {args[0]} to <2 x i32>")
        made = "poison"
        for lane in range(2):
            one = word(self.emit(f"extractelement <2 x i32> {pair}, i32 {lane}"))
            made = self.emit(f"insertelement <2 x i32> {made}, i32 {one}, i32 {lane}")
        return self.emit(f"bitcast <2 x i32> {made} to {kind}")


def _is_of_bytes(expr: Call) -> bool:
    """Whether a call is a dot product of four bytes for each lane."""
    if expr.name != "vector_dot" or expr.dtype.scalar is not _INT32:
        return False
    sums, *operands = expr.args
    bytes_ = all(each.dtype.is_int and each.dtype.bits == 8 for each in operands)
    return bytes_ and operands[1].dtype.lanes == 4 * sums.dtype.lanes


def module_text(funcs: Sequence[PrimFunc], cpu: HostCpu) -> tuple[str, dict[str, tuple[Shared, ...]]]:
    """The LLVM IR of kernels, and the shared buffers of each kernel by its name."""
    unit = Unit(cpu)
    shared = {}
    for func in funcs:
        emitter = KernelEmitter(unit, func.name)
        for buffer in allocations(func.body):
            if is_shared(buffer):
                emitter.declare_shared(buffer)
        unit.functions += [*emitter.arrays, _kernel(emitter, func)]
        shared[func.name] = tuple(emitter.shared)
    return unit.text(), shared


def _kernel(emitter: KernelEmitter, func: PrimFunc) -> str:
    params = emitter.take_params(func, f"align {_ALIGNED} ")
    sizes = group_extents(func)
    most = "" if sizes is None else f' "nvvm.maxntid"="{prod(sizes.values())}"'
    return emitter.function_text(f"define ptx_kernel void @{func.name}({', '.join(params)}){most}", func.body)


__all__ = ["KernelEmitter", "module_text"]
