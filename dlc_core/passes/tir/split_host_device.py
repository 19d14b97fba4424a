"""Move each launch into a separate kernel function, and launch it from the host program.

    def main(A, B, n):                                 def main(A, B, n):
        for g in thread_binding(n // 64, …):               launch_kernel("main_kernel", A, B, n, n // 64, 64)
            for t in thread_binding(64, …):
                B[…] = A[…]                            def main_kernel(A, B, n):
                                                           for g in thread_binding(n // 64, …): …

A kernel has two attributes. "launch" has the names of its axes, in the order in which a launch passes their
extents after the arguments. "shared_bytes" is the size of the shared memory of a group; None if it depends on
the arguments. Functions without thread axes do not change.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from types import MappingProxyType
from typing import Any, ClassVar

from dlc_core.diag import PassError
from dlc_core.ir.buffer import Buffer
from dlc_core.ir.expr import Var, const_value, free_vars
from dlc_core.ir.module import IRModule
from dlc_core.passes.base import Pass, PassContext
from dlc_core.passes.tir.flatten import extent_in_elements
from dlc_core.passes.tir.thread_base import has_threads
from dlc_core.passes.tir.unify_threads import is_unified
from dlc_core.schedule.tree import Program
from dlc_core.support.record import record
from dlc_core.target import Description
from dlc_core.tir.functor import (
    allocations,
    buffer_exprs,
    copy_func,
    free_buffers,
    free_vars_stmt,
    substitute_stmt,
)
from dlc_core.tir.intrinsics import launch_kernel
from dlc_core.tir.stmt import Eval, For, PrimFunc, Stmt
from dlc_core.tir.threads import THREAD, has_axes, is_shared, launch_axes, launches, level_of


def split_host_device(func: PrimFunc, taken: Iterable[str] = ()) -> tuple[PrimFunc, dict[str, PrimFunc]]:
    """Return the host function that launches, and its kernels by name. Names in `taken` are avoided.

    Raises PassError for a launch that is not in the final form that `unify_thread_binding` makes.
    """
    roots = list(launches(func.body))
    if not roots:
        return func, {}
    used = set(taken)
    kernels: dict[str, PrimFunc] = {}
    new: dict[Stmt, Stmt] = {}
    for root in roots:
        if not is_unified(root):
            raise PassError(
                f"{func.name}: the launch over {root.var.name} has several loops of one axis",
                hint="run unify_thread_binding first",
                spans=func.spans,
            )
        name = _fresh(f"{func.name}_kernel", used)
        used.add(name)
        kernels[name], new[root] = _kernel(func, root, name)
    program = Program(func)
    program.replace(new)
    return program.func, kernels


def _fresh(base: str, used: set[str]) -> str:
    name, count = base, 0
    while name in used:
        count += 1
        name = f"{base}_{count}"
    return name


def _kernel(func: PrimFunc, root: For, name: str) -> tuple[PrimFunc, Stmt]:
    """Make a kernel of a launch, and the call that launches it."""
    order: dict[Buffer | Var, int] = {p: i for i, p in enumerate(func.params)}
    buffers = sorted(free_buffers(root), key=lambda b: order.get(b, len(order)))
    bound = {*buffers}
    described = free_vars(*(e for b in buffers for e in buffer_exprs(b)))
    scalars = sorted(
        dict.fromkeys((*free_vars_stmt(root), *described)), key=lambda v: order.get(v, len(order))
    )
    # A handle is the address of element zero, so that the kernel's buffer has offset 0.
    rebased = {b: _without_offset(b) for b in bound if const_value(b.offset) != 0}
    params: tuple[Buffer | Var, ...] = (*(rebased.get(b, b) for b in buffers), *scalars)
    body = substitute_stmt(root, {}, rebased) if rebased else root
    kernel = PrimFunc(name, params, body, spans=func.spans)
    axes = launch_axes(kernel)
    attrs: dict[str, Any] = {"launch": tuple(axes), "shared_bytes": _shared_bytes(root)}
    call = launch_kernel(name, (*buffers, *scalars), list(axes.values()))
    return copy_func(replace(kernel, attrs=MappingProxyType(attrs))), Eval(call)


def _without_offset(buffer: Buffer) -> Buffer:
    return Buffer(
        buffer.name,
        buffer.shape,
        buffer.dtype,
        strides=buffer.strides,
        scope=buffer.scope,
        align=buffer.align,
    )


def _shared_bytes(root: For) -> int | None:
    total = 0
    for buffer in allocations(root):
        if is_shared(buffer):
            known = const_value(extent_in_elements(buffer))
            if known is None:
                return None
            total += known * buffer.dtype.itemsize
    return total


def launch_problems(kernel: PrimFunc, machine: Description) -> list[str]:
    """Return the resources that a machine lacks for a kernel: axes, threads, kinds and sizes of memory.

    Symbolic sizes are not checked.
    """
    found: list[str] = []
    threads = 1
    for axis, extent in launch_axes(kernel).items():
        most, size = machine.thread_axes.get(axis), const_value(extent)
        if most is None:
            found.append(f"there is no axis {axis}: there are {', '.join(machine.thread_axes) or 'none'}")
        elif size is not None and size > most:
            found.append(f"{axis} has {size} iterations, {most} at most are possible")
        if level_of(axis) == THREAD:
            threads *= size or 1
    if machine.group_threads and threads > machine.group_threads:
        found.append(f"a group has {threads} threads, {machine.group_threads} at most are possible")
    known = machine.scope_names
    scopes = dict.fromkeys(b.scope for b in allocations(kernel.body))
    found += [f"there is no memory {s!r}: there is {', '.join(known)}" for s in scopes if s not in known]
    shared = kernel.attrs.get("shared_bytes")
    if machine.shared_bytes and shared is not None and shared > machine.shared_bytes:
        found.append(f"a group shares {shared} bytes, {machine.shared_bytes} at most are possible")
    return found


@record(frozen=True)
class SplitHostDevice(Pass):
    """Move each launch into a kernel function, which the host function launches. Raises PassError if the
    target cannot run a kernel.
    """

    name: ClassVar[str] = "split_host_device"
    stage: ClassVar[str] = "tir"
    separate: ClassVar[bool] = True

    def run(self, module: IRModule, context: PassContext) -> IRModule:
        new: dict[str, PrimFunc] = {}
        for name, func in module.of_kind(PrimFunc).items():
            if "launch" in func.attrs or not has_axes(func.body) or not has_threads(context):
                continue
            host, kernels = split_host_device(func, (*module.functions, *new))
            new.update({name: host, **kernels})
            for kernel in kernels.values() if context.target is not None else ():
                problems = launch_problems(kernel, context.target.describe())
                if problems:
                    what = f"{func.name} cannot be launched on {context.target}"
                    raise PassError(what, details=problems, spans=func.spans)
        return module.with_functions(new) if new else module


__all__ = ["SplitHostDevice", "launch_problems", "split_host_device"]
