"""Host code as data: for each entry point of a module, the ordered list of its launches with their buffers.

A device that runs no host code finds these lists in the artefact's metadata. `launches` reads and evaluates
them. Entry points, and the functions that they call, only compute sizes. Therefore the integers of a launch
are expressions over the scalars of the entry point.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from dlc_core.backend.kernels import EmittedKernels
from dlc_core.diag import CodegenError
from dlc_core.ir.buffer import Buffer
from dlc_core.ir.dtype import INDEX
from dlc_core.ir.expr import Call, Expr, Load, Var, const, const_value, post_order, substitute
from dlc_core.ir.module import IRModule
from dlc_core.runtime.interface.encode import Table
from dlc_core.runtime.measure.profile import PROFILE_SUFFIX
from dlc_core.target import Description
from dlc_core.tir.functor import buffers_written, exprs_of, stmts, stmts_of
from dlc_core.tir.intrinsics import CONVERGENT, kernel_symbol, launch_symbol
from dlc_core.tir.stmt import Alloc, Eval, For, If, Let, PrimFunc, Seq, Stmt, View
from dlc_core.tir.tensor_copy import TensorCopy
from dlc_core.tir.threads import GROUP, SWIZZLED, level_of

DIMS = 3
"""The number of dims of a grid of groups, and of a group of threads."""

Location = tuple[int, Expr]
"""A location in memory: the index of a buffer of the entry point, and a byte offset."""


def launch_lists(module: IRModule, emitted: EmittedKernels, machine: Description) -> dict[str, Any]:
    """The lists of all entry points as JSON data. Raises CodegenError for other host code."""
    return _Lists(module, emitted, machine).data()


def entries_of(module: IRModule) -> list[PrimFunc]:
    """The entry points for devices without host code. Instrumented ones are left out, because clocks need the
    host.
    """
    funcs = module.of_kind(PrimFunc).values()
    return [f for f in funcs if f.attrs.get("entry") and not f.name.endswith(PROFILE_SUFFIX)]


@dataclass
class _Scope:
    """The values of names in a function: locations of handles, and expressions of integers."""

    buffers: dict[Buffer, Location]
    values: dict[Var, Expr]

    def value(self, expr: Expr) -> Expr:
        return substitute(expr, self.values)


class _Lists:
    def __init__(self, module: IRModule, emitted: EmittedKernels, machine: Description) -> None:
        self.funcs: Mapping[str, PrimFunc] = module.of_kind(PrimFunc)
        self.entries = entries_of(module)
        self.table = Table()
        self.sites = 0
        self.numbers = {name: i for i, name in enumerate(emitted.symbols)}
        self.kernels = [self._kernel(self.funcs[name], emitted) for name in emitted.symbols]
        self.dims: dict[str, int] = {}
        for group in (True, False):
            axes = [axis for axis in machine.thread_axes if (level_of(axis) == GROUP) is group]
            self.dims.update({axis: i for i, axis in enumerate(axes)})

    def data(self) -> dict[str, Any]:
        entries = {func.name: self._entry(func) for func in self.entries}
        return {"kernels": self.kernels, "entries": entries, "exprs": self.table.rows}

    def _kernel(self, func: PrimFunc, emitted: EmittedKernels) -> dict[str, Any]:
        written = set(buffers_written(func.body))
        calls = {e.name for s in stmts(func.body) for e in post_order(*exprs_of(s)) if isinstance(e, Call)}
        tensors = [self._tensor(func, one) for one in emitted.tensors.get(func.name, ())]
        more = {"tensors": tensors, "variables": [self.table.add(v) for v in func.scalars]} if tensors else {}
        return {
            **more,
            "symbol": emitted.symbols[func.name],
            "buffers": [[b.name, b.dtype.itemsize, b in written] for b in func.buffers],
            "scalars": [v.dtype.name for v in func.scalars],
            "order": "".join("b" if isinstance(p, Buffer) else "s" for p in func.params),
            "shared": [[one.name, one.bytes] for one in emitted.shared[func.name]],
            "meets": not calls.isdisjoint(CONVERGENT),
        }

    def _tensor(self, func: PrimFunc, one: TensorCopy) -> dict[str, Any]:
        return {
            "buffer": func.buffers.index(one.source),
            "itemsize": one.source.dtype.itemsize,
            "swizzled": one.to.scope == SWIZZLED,
            "dims": [self._int(n) for n in one.dims],
            "strides": [self._int(n) for n in one.strides],
            "box": list(one.box),
        }

    def _entry(self, func: PrimFunc) -> dict[str, Any]:
        self.sites = 0
        scope = _Scope({b: (i, const(0)) for i, b in enumerate(func.buffers)}, {})
        return {
            "buffers": len(func.buffers),
            "scalars": [self.table.add(v) for v in func.scalars],
            "steps": self._steps(func.body, scope, func),
        }

    def _steps(self, stmt: Stmt, scope: _Scope, func: PrimFunc) -> list[dict[str, Any]]:
        match stmt:
            case Seq():
                return [step for child in stmt.stmts for step in self._steps(child, scope, func)]
            case View():
                # A view has the pointer of its base; accesses add the offset of the view.
                scope.buffers[stmt.buffer] = scope.buffers[stmt.base]
                return self._steps(stmt.body, scope, func)
            case Alloc() if not any(stmts_of(stmt, Eval)):
                return []  # left by kernels without results
            case Let():
                scope.values[stmt.var] = scope.value(stmt.value)
                return self._steps(stmt.body, scope, func)
            case For() if stmt.kind != "thread":
                fresh = Var(stmt.var.name, stmt.var.dtype)
                begin, extent = self._int(scope.value(stmt.begin)), self._int(scope.value(stmt.extent))
                inner = _Scope(dict(scope.buffers), {**scope.values, stmt.var: fresh})
                steps = self._steps(stmt.body, inner, func)
                head = {"for": self.table.add(fresh), "begin": begin, "extent": extent}
                return [{**head, "steps": steps}] if steps else []
            case If():
                sides = [
                    self._steps(side, _Scope(dict(scope.buffers), dict(scope.values)), func) if side else []
                    for side in (stmt.then, stmt.orelse)
                ]
                return [{"if": self.table.add(scope.value(stmt.cond)), "then": sides[0], "else": sides[1]}]
            case Eval() if isinstance(stmt.value, Call):
                return self._call(stmt.value, scope, func)
        raise CodegenError(
            f"{func.name}: the host would have to execute a {type(stmt).__name__.lower()} statement",
            why="on this target the host only launches kernels and computes sizes",
            spans=func.spans,
        )

    def _call(self, call: Call, scope: _Scope, func: PrimFunc) -> list[dict[str, Any]]:
        launched, called = launch_symbol(call), kernel_symbol(call)
        callee = self.funcs.get(launched or called or "")
        if callee is None:
            raise CodegenError(f"{func.name}: the host would have to call {call.name}", spans=func.spans)
        locations: dict[Buffer, Location] = {}
        values: dict[Var, Expr] = {}
        for param, arg in zip(callee.params, call.args):
            if isinstance(param, Buffer):
                locations[param] = _location(arg, scope)
            else:
                values[param] = scope.value(arg)
        inner = _Scope(locations, values)
        if launched is None:
            steps = self._steps(callee.body, inner, callee)
            if func.attrs.get("entry"):
                # Count the calls in the same way as `instrument`.
                _at_site(steps, self.sites)
                self.sites += 1
            return steps
        extents = dict(zip(callee.attrs["launch"], call.args[len(callee.params) :], strict=True))
        sides: dict[bool, list[Any]] = {True: [1] * DIMS, False: [1] * DIMS}
        for axis, extent in extents.items():
            sides[level_of(axis) == GROUP][self.dims[axis]] = self._int(scope.value(extent))
        return [
            {
                "kernel": self.numbers[callee.name],
                "grid": sides[True],
                "group": sides[False],
                "buffers": [
                    [locations[b][0], self._int(locations[b][1]), self._int(inner.value(_size(b)))]
                    for b in callee.buffers
                ],
                "scalars": [self._int(values[v]) for v in callee.scalars],
            }
        ]

    def _int(self, expr: Expr) -> Any:
        """An integer of the list: a number, or the encoded expression."""
        known = const_value(expr)
        if known is not None:
            return int(known)
        if any(isinstance(e, Load | Call) for e in post_order(expr)):
            raise CodegenError(
                f"a launch depends on {expr}, which is only known on the device",
                hint="read it in the kernel, or pass it as an array's dim",
            )
        return {"expr": self.table.add(expr.astype(INDEX))}


def _at_site(steps: Sequence[dict[str, Any]], site: int) -> None:
    """Record in each launch the index of the call of the entry point that it belongs to."""
    for step in steps:
        if "kernel" in step:
            step["site"] = site
        for key in ("steps", "then", "else"):
            _at_site(step.get(key, ()), site)


def _location(handle: Expr, scope: _Scope) -> Location:
    """The location that a handle refers to."""
    target = handle.args[0] if isinstance(handle, Call) and handle.name == "address_of" else None
    if not isinstance(target, Load):
        raise CodegenError(f"{handle} refers to memory that is not known before the program runs")
    buffer, start = scope.buffers[target.buffer]
    offset = scope.value(target.buffer.linear_index(target.indices)) * target.buffer.dtype.itemsize
    return buffer, start + offset


def _size(buffer: Buffer) -> Expr:
    """The bytes from the first element of a buffer to the end of the last one."""
    if buffer.strides is None:
        return buffer.num_elements() * buffer.dtype.itemsize
    last: Expr = const(1)
    for dim, stride in zip(buffer.shape, buffer.strides, strict=True):
        last = last + (dim - 1) * stride
    return last * buffer.dtype.itemsize


__all__ = ["DIMS", "entries_of", "launch_lists"]
