"""The emission of a native entry or body: calls of kernels and control flow on the memory of a plan.

main(inputs…, outputs…, weights, arena, [record,] dims…)
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace

from dlc_core.arith import Analyzer
from dlc_core.cancel import checkpoint
from dlc_core.diag import UnsupportedError, UsageError
from dlc_core.graph.data_dims import data_dims
from dlc_core.graph.dims import CONDITIONS
from dlc_core.graph.node import CONST, Array, Function, Node
from dlc_core.graph.updates import updates_of
from dlc_core.ir.buffer import Buffer
from dlc_core.ir.conditions import conditions_of
from dlc_core.ir.expr import Expr, Var, const, free_vars
from dlc_core.ir.module import IRModule
from dlc_core.ir.types import TensorType
from dlc_core.passes.lower.arena import ALIGN
from dlc_core.passes.lower.control import Control, Memory
from dlc_core.passes.lower.describe import with_conditions
from dlc_core.passes.lower.disjoint import prove_disjoint
from dlc_core.passes.lower.guard_layout import PAGE, slot
from dlc_core.passes.lower.joins import TensorRef, donations_of
from dlc_core.passes.lower.memory_plan import (
    Allocation,
    MemoryPlan,
    bytes_of,
    name_of,
    size_of,
    tensors_of,
    type_of,
)
from dlc_core.passes.lower.records import Record
from dlc_core.passes.lower.results import results_of
from dlc_core.passes.lower.versions import check_versions
from dlc_core.passes.lower.views import origin, result_types
from dlc_core.passes.lower.weights import Constant, Repacked, Weights
from dlc_core.passes.tir.bounds import prove
from dlc_core.passes.tir.prove_bounds import BOUNDS
from dlc_core.runtime.guard.mode import Slot
from dlc_core.runtime.interface.signature import Signature, Value
from dlc_core.schedule.index_map import IndexMap
from dlc_core.schedule.layout import REPACK
from dlc_core.support.record import record
from dlc_core.tir.functor import substitute_stmt
from dlc_core.tir.intrinsics import call_kernel
from dlc_core.tir.sizes import unproved_sizes
from dlc_core.tir.stmt import Eval, PrimFunc, Stmt, View, seq


@record(frozen=True)
class Entry:
    """A native function with its plan."""

    func: PrimFunc
    signature: Signature
    plan: MemoryPlan
    checked: bool
    """Whether it writes the record of failed checks."""
    slots: tuple[Slot, ...]
    """In guard mode: the values in the arena."""


class Emitter:
    """Writes one function by its plan; `controls` are its steps of control flow, with their bodies built."""

    def __init__(
        self,
        module: IRModule,
        function: Function,
        name: str,
        constants: Weights,
        controls: Mapping[Node, Control],
        plan: MemoryPlan,
        record: Record,
    ) -> None:
        self.module, self.function, self.name = module, function, name
        self.constants, self.guard = constants, constants.guard_layout
        self.controls = controls
        self.record = record
        self.inputs = self._inputs()
        self.outputs = [_buffer_of((v, 0), f"out{i}") for i, v in enumerate(results_of(function))]
        self.symbols = self._symbols(plan)
        # With symbolic sizes, the function itself may detect that its memory is too small.
        bodies = any(control.checked for control in controls.values())
        self.checked = bool(self.symbols) or record.is_written(plan.order, bodies)
        if self.guard is not None:
            self.checked |= self.guard.numbers_calls
        reserve = self.checked or self.guard is not None
        begin = record.reserved(plan.align if self.guard is None else PAGE) if reserve else None
        self.plan = plan if begin is None else plan.shifted(begin)
        self.buffers: dict[TensorRef, Buffer] = {}
        self.workspaces: dict[Buffer, Buffer] = {}
        """The window on the arena of each workspace."""
        self.views: list[tuple[Buffer, Buffer]] = []
        """The windows on memory, each with its base, in the order of their definitions."""
        self.written: set[Buffer] = set()
        """The buffers that kernels and bodies write."""
        self.constant_names: dict[Node, str] = {}
        """Names of constants, after the first kernel that takes them and its parameter."""
        self.constant_windows: dict[tuple[Array, str], Buffer] = {}
        self.weights = Buffer("weights", (Var("weights_size"),), "uint8", align=ALIGN)

    def entry(self) -> Entry:
        """Emit the function, and prove that its windows fit and are disjoint."""
        plan = self.plan
        arena = Buffer("arena", (plan.size,), "uint8", align=ALIGN)
        self._define_buffers(arena)
        slots = [] if self.guard is None else [self._slots(one) for one in plan.allocations]
        refills: dict[int, list[Stmt]] = {}
        if self.guard is not None:
            for one, found in zip(plan.allocations, slots, strict=True):
                refills.setdefault(one.request.last, []).extend(self.guard.refills(arena, found))
        calls = seq(*(s for i, n in enumerate(plan.order) for s in (self._call(n), *refills.get(i, ()))))
        weights = Buffer("weights", (self.constants.size,), "uint8", align=ALIGN)
        if self.controls:
            calls = substitute_stmt(calls, {}, {self.weights: weights})

        def viewed(body: Stmt) -> Stmt:
            for buffer, base in reversed(self.views):
                body = View(buffer, weights if base is self.weights else base, body)
            return body

        record = [self.record.buffer] if self.checked and self.record.nested else []
        params: tuple[Buffer | Var, ...] = (
            *self.inputs,
            *self.outputs,
            weights,
            arena,
            *record,
            *self.symbols,
        )
        func = PrimFunc(self.name, params, viewed(calls), {"entry": True}, self.function.body.spans)
        doubtful = unproved_sizes(d for b in self.buffers.values() for d in b.shape)
        func = func.with_attrs(sizes=doubtful) if doubtful else func
        func = self.with_proofs(func, arena, calls, viewed)
        flat = tuple(one for found in slots for one in found)
        return Entry(func, self._signature(), plan, self.checked, flat)

    def with_proofs(
        self, func: PrimFunc, arena: Buffer, calls: Stmt, viewed: Callable[[Stmt], Stmt]
    ) -> PrimFunc:
        """Prove that windows are inside their memory, and that windows in use at once are disjoint.

        Conditions on sizes that are not proved become run-time tests. Raises PassError if they never hold.
        """
        functions = self.module.functions
        conditions = conditions_of(self.function.attrs.get(CONDITIONS, ()))
        sizes = set(func.scalars)
        inside = prove(
            func, functions, [c.expr() for c in conditions if sizes.issuperset(c.dims)], wraps=False
        )
        always_live = [self.record.buffer] if self.checked else []
        versions = [self.buffers[tensor] for tensor in self.plan.steps.taken if tensor in self.buffers]
        check_versions(func, versions, functions)
        disjoint = prove_disjoint(
            func,
            arena,
            functions,
            always_live=always_live,
            written=self.written,
            conditions=conditions,
            versions=versions,
        )
        unproved = [*inside.open, *disjoint.open]
        func = func.with_attrs(**{BOUNDS: (inside.proved + disjoint.proved, len(unproved))})
        return replace(func, body=viewed(self.record.guarded(func, calls, unproved))) if unproved else func

    def _signature(self) -> Signature:
        names, params = self.function.attrs, self.function.params
        in_names = names.get("inputs") or tuple(p.attrs["name"] for p in params)
        out_names = names.get("outputs") or tuple(f"output{i}" for i in range(len(self.outputs)))
        results = [t for r in self.function.results for t in result_types(r)]
        signature = Signature(
            tuple(Value(n, p.tensor_type) for n, p in zip(in_names, params, strict=True)),
            tuple(Value(n, t) for n, t in zip(out_names, results, strict=True)),
            tuple(self.symbols),
            self.plan.size,
            self.constants.size,
            donations_of(self.function),
            updates=updates_of(self.function),
        )
        return with_conditions(signature, self.function)

    # Memory

    def _inputs(self) -> list[Buffer]:
        donated = {d.input: d for d in donations_of(self.function)}
        found = []
        for index, p in enumerate(self.function.params):
            shape = list(p.tensor_type.dim_exprs())
            if index in donated:
                shape[donated[index].axis] = const(donated[index].capacity)
            found.append(Buffer(p.attrs["name"], shape, p.dtype, align=ALIGN))
        return found

    def _define_buffers(self, arena: Buffer) -> None:
        """Define the buffers of all values but constants."""
        plan = self.plan
        self.buffers |= {(p, 0): b for p, b in zip(self.function.params, self.inputs, strict=True)}
        for tensor, buffer in zip(plan.steps.results, self.outputs, strict=True):
            if tensor not in plan.steps.windows and tensor not in plan.steps.taken:
                self.buffers[tensor] = buffer
        if self.checked and not self.record.nested:
            self.views.append((self.record.buffer, arena))
        for one in plan.allocations:
            if isinstance(one.owner, Buffer):
                self.workspaces[one.owner] = self._window(one.owner, one.offset, arena)
            else:
                self.buffers[one.owner] = self._window(_buffer_of(one.owner), one.offset, arena)
        for tensor, first in plan.reuses.items():
            offset = self.buffers[first].offset * type_of(tensor).dtype.itemsize
            self.buffers[tensor] = self._window(_buffer_of(tensor), offset, arena)
        for tensor, window in plan.steps.windows.items():
            root, type_ = self.buffers[window.base], type_of(tensor)
            offset = root.offset + window.offset
            part = Buffer("part", type_.dim_exprs(), type_.dtype, strides=window.strides, offset=offset)
            self.buffers[tensor] = part
            self.views.append((part, root))

    def _window(self, buffer: Buffer, offset: Expr, base: Buffer) -> Buffer:
        """Define a window at a byte offset of memory."""
        align = self.plan.align if self.guard is None else self.guard.align_of(buffer.dtype)
        elements = Analyzer().simplify(offset // buffer.dtype.itemsize)
        found = Buffer(buffer.name, buffer.shape, buffer.dtype, offset=elements, align=align)
        self.views.append((found, base))
        return found

    def _slots(self, one: Allocation) -> list[Slot]:
        """Return the slots of an allocation; bodies and loop-carried values have several."""
        if not isinstance(one.owner, Buffer):
            type_ = type_of(one.owner)
            return [slot(f"the result of {one.name}", one.offset, size_of(type_), type_.dtype)]
        for control in self.controls.values():
            inner = control.slots.get(one.owner)
            if inner is not None:
                return [replace(each, offset=each.offset + one.offset) for each in inner]
        return [slot(f"workspace {one.name!r}", one.offset, bytes_of(one.owner), one.owner.dtype)]

    def _constant(self, value: Node) -> Buffer:
        """Return a window on a constant in the weights. Equal constants are stored once."""
        array: Array = value.attrs["value"]
        return self._constant_window((array, ""), lambda: array.data, self.constant_names.get(value, "const"))

    def _repacked(self, value: Node, layout: IndexMap) -> Buffer:
        """Return a window on a constant that is repacked to the layout of its kernel's schedule."""
        array: Array = value.attrs["value"]
        name = self.constant_names.get(value, "const")
        return self._constant_window((array, str(layout)), lambda: Repacked(array.data, layout), name)

    def _constant_window(self, key: tuple[Array, str], make: Callable[[], Constant], name: str) -> Buffer:
        found = self.constant_windows.get(key)
        if found is None:
            offset, type_ = self.constants.allocate(key, make, name)
            found = self._window(Buffer(name, type_.dim_exprs(), type_.dtype), const(offset), self.weights)
            self.constant_windows[key] = found
        return found

    def buffer(self, tensor: TensorRef) -> Buffer:
        found = self.buffers.get(tensor)
        if found is None:
            steps = self.plan.steps
            root, offset = steps.root(tensor) if tensor in steps.taken else steps.whole(tensor)
            if root != tensor:
                base, type_ = self.buffer(root), type_of(tensor)
                found = Buffer(
                    base.name, type_.dim_exprs(), type_.dtype, offset=base.offset + offset, align=base.align
                )
                self.buffers[tensor] = found
                self.views.append((found, base))
                return found
            if tensor[0].op is not CONST:
                raise UsageError(f"{tensor[0]!r} has no memory", spans=tensor[0].spans)
            found = self.buffers[tensor] = self._constant(tensor[0])
        return found

    # Statements

    def _call(self, n: Node) -> Stmt:
        if n in self.controls:
            return self._control(n)
        func: PrimFunc = self.module[n.attrs["symbol"]]
        checkpoint()
        repack: Mapping[int, IndexMap] = func.attrs.get(REPACK, {})
        tensors = [tensor for arg in n.args for tensor in tensors_of(arg)]
        for (value, _), param in zip(tensors, func.buffers, strict=False):
            if value.op is CONST:
                self.constant_names.setdefault(value, f"{name_of(n)}_{param.name}")
        args = [
            self._repacked(tensor[0], repack[i]) if i in repack else self.buffer(tensor)
            for i, tensor in enumerate(tensors)
        ]
        outs = [self.buffer((n, i)) for i in range(len(result_types(n)))]
        self.written.update(outs)
        workspaces = [self.workspaces[b] for b in self.plan.steps.workspaces[n]]
        record, site = self.record.arguments(n, func)
        call = Eval(
            call_kernel(n.attrs["symbol"], *args, *outs, *workspaces, *record, *n.attrs["dims"], *site)
        )
        return (
            call
            if self.guard is None
            else seq(*self.record.note_call(n, func, self.guard.numbers_calls), call)
        )

    def _control(self, n: Node) -> Stmt:
        tensors = [(n, i) for i in range(len(result_types(n)))]
        memory = Memory(
            [self._reshaped(origin(arg), arg.tensor_type) for arg in n.args],
            [self._reshaped(tensor, type_) for tensor, type_ in zip(tensors, result_types(n), strict=True)],
            [tensor in self.plan.last for tensor in tensors],
            self.weights,
            self.workspaces,
            self.record.buffer,
        )
        self.written.update(memory.outs)
        return self.controls[n].statements(memory)

    def _reshaped(self, tensor: TensorRef, type_: TensorType) -> Buffer:
        """Return a view of a tensor's memory in the shape of a type."""
        base = self.buffer(tensor)
        own = Buffer(base.name, type_.dim_exprs(), base.dtype, offset=base.offset, align=base.align)
        self.views.append((own, base))
        return own

    def _symbols(self, plan: MemoryPlan) -> list[Var]:
        dims = [d for b in (*self.inputs, *self.outputs) for d in b.shape] + [plan.size]
        seen = dict.fromkeys(free_vars(*dims))
        for n in plan.order:
            own = self.controls[n].symbols() if n in self.controls else free_vars(*n.attrs["dims"])
            seen.update(dict.fromkeys(own))
        bound = {v for p in self.function.params for v in p.tensor_type.symbols()}
        bound.update(data_dims(self.function))
        unbound = [v.name for v in seen if v not in bound]
        if unbound:
            raise UnsupportedError(
                f"dims {', '.join(unbound)} are known only while the model runs",
                hint="give such dims by shapes={...}, or use the `reference` target",
            )
        return list(seen)


def _buffer_of(tensor: TensorRef, name: str = "") -> Buffer:
    type_ = type_of(tensor)
    return Buffer(name or name_of(tensor[0]), type_.dim_exprs(), type_.dtype, align=ALIGN)
