"""From the graph of kernel calls to `main`: one PrimFunc that calls every kernel on one planned arena.

    main(inputs…, outputs…, weights, arena, dims…)

`weights` holds all constants, each at a multiple of ALIGN bytes. `arena` holds all intermediate values and
the kernels' workspaces. The module's attributes describe the call; see `Signature`.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import ClassVar

from dlc_core.graph.node import Function, Node, post_order
from dlc_core.ir.buffer import Buffer
from dlc_core.ir.expr import const_value, substitute
from dlc_core.ir.module import IRModule
from dlc_core.limits import check_bytes
from dlc_core.passes.base import Pass, PassContext
from dlc_core.passes.lower.arena import ALIGN
from dlc_core.passes.lower.control import Control, NativeBody, is_control, is_step
from dlc_core.passes.lower.describe import arrays_of, interface_of
from dlc_core.passes.lower.entry import Emitter, Entry
from dlc_core.passes.lower.guard_layout import GuardLayout
from dlc_core.passes.lower.host import is_host, native_entries
from dlc_core.passes.lower.memory_plan import plan_memory, steps_of
from dlc_core.passes.lower.names import unique_name
from dlc_core.passes.lower.records import Record, access_counts, dims_of, pass_records, workspaces_of
from dlc_core.passes.lower.weights import Weights
from dlc_core.passes.tir.legalize import legalize_declared
from dlc_core.runtime.guard.mode import Guard
from dlc_core.runtime.interface.signature import Signature
from dlc_core.schedule.layout import REPACK
from dlc_core.support.record import record
from dlc_core.tir.in_place import OVERWRITES
from dlc_core.tir.stmt import PrimFunc
from dlc_core.tir.updates import IN_PLACE


@record(frozen=True)
class BuildMain(Pass):
    """Plan memory and emit the native entries: `main`, or each segment of a host program.

    The module gets these attributes: `signature` (of its entry), `segments` (their signatures), `constants`,
    `live_peak` (the peak bytes of the entry's live values), and `accesses` (the numbers of accesses that are
    proved to be in bounds and that are checked at run time).
    """

    name: ClassVar[str] = "build_main"
    stage: ClassVar[str] = "main"
    reads_kernels: ClassVar[bool] = False

    def run(self, module: IRModule, context: PassContext) -> IRModule:
        module = pass_records(module)
        machine = None if context.target is None else context.target.describe()
        computed = () if machine is None else machine.dtypes
        align = ALIGN if machine is None else machine.value_align
        overwrites = machine is not None and machine.control
        guard_layout = GuardLayout.of(context, machine)
        weights = Weights(align, guard_layout)
        builder = _Builder(module, weights, align, overwrites)
        funcs = builder.funcs
        signatures: dict[str, Signature] = {}
        peaks: dict[str, int | None] = {}
        guards: dict[str, Guard] = {}
        for name, function in native_entries(module).items():
            record = Record(module.functions)
            made = builder.entry(function, name, record)
            funcs[name] = made.func
            signatures[name] = replace(made.signature, sites=tuple(record.sites))
            peaks[name] = made.plan.live_peak
            if guard_layout is not None:
                guards[name] = guard_layout.description(made.slots, record.calls)
        # Kernels were legalized before; code generators get no declared dtype that they do not know.
        funcs = {name: legalize_declared(func, computed) for name, func in funcs.items()}
        entry = module[module.entry]
        if module.entry not in funcs:
            programs = {n: f for n, f in module.of_kind(Function).items() if is_host(f)}
            for array in arrays_of(IRModule(programs)):
                weights.allocate((array, ""), lambda array=array: array.data)  # type: ignore[misc]
            signatures[module.entry] = interface_of(entry, weights.size)
        check_bytes(weights.size, "the memory of constants")
        finished = {n: replace(s, weights_size=weights.size) for n, s in signatures.items()}
        for name, guard in guards.items():
            finished[name] = replace(finished[name], guard=replace(guard, weights=tuple(weights.slots)))
        return (
            _without_repack_requests(module)
            .with_functions(funcs)
            .with_attrs(
                signature=finished.pop(module.entry),
                segments=finished,
                constants=tuple(weights.constants),
                live_peak=peaks.get(module.entry),
                accesses=access_counts([*module.of_kind(PrimFunc).values(), *funcs.values()]),
            )
        )


def _without_repack_requests(module: IRModule) -> IRModule:
    """Remove the requests for repacked constants from kernels. They are fulfilled by now."""
    kernels = {
        name: replace(func, attrs={key: value for key, value in func.attrs.items() if key != REPACK})
        for name, func in module.of_kind(PrimFunc).items()
        if REPACK in func.attrs
    }
    return module.with_functions(kernels)


@dataclass(frozen=True)
class _Builder:
    """Builds the functions of one module's entries. Their constants are in `weights`.

    Values in the arena begin at multiples of `align` bytes. `overwrites` allows outputs to reuse the memory
    of inputs that are no longer read.
    """

    module: IRModule
    weights: Weights
    align: int
    overwrites: bool
    funcs: dict[str, PrimFunc] = field(default_factory=dict)
    """The functions so far, by name."""

    def entry(self, function: Function, name: str, record: Record) -> Entry:
        """Plan a function's memory and emit the function. `record` is the record of failed checks."""
        guard_layout = self.weights.guard_layout

        def nested(body: Function, part: str) -> NativeBody:
            return self._body(body, f"{name}_{part}", record)

        nodes = [n for n in post_order(function.body) if is_step(n)]
        controls = {n: Control(n, nested, guard_layout) for n in nodes if is_control(n)}
        kernels = {n: self._kernel(n) for n in nodes if n not in controls}
        workspaces = {
            n: controls[n].workspaces if n in controls else _workspaces(n, kernels[n]) for n in nodes
        }
        pairs = {n: func.attrs.get(OVERWRITES, ()) for n, func in kernels.items()} if self.overwrites else {}
        in_place = {n: func.attrs[IN_PLACE] for n, func in kernels.items() if IN_PLACE in func.attrs}
        fixed = bool(controls) or guard_layout is not None
        steps = steps_of(function, workspaces, pairs, in_place=in_place, keeps_order=fixed)
        plan = plan_memory(steps, self.align, None if guard_layout is None else guard_layout.allocate)
        check_bytes(const_value(plan.size) or 0, f"the scratch memory of {name}")
        return Emitter(self.module, function, name, self.weights, controls, plan, record).entry()

    def _body(self, body: Function, base_name: str, outer: Record) -> NativeBody:
        """Build the body of a control flow."""
        name = unique_name(base_name, {**self.module.functions, **self.funcs})
        made = self.entry(body, name, outer.of_body())
        self.funcs[name] = replace(made.func, attrs={})
        return NativeBody(name, made.signature.symbols, made.plan.size, made.checked, made.slots)

    def _kernel(self, call: Node) -> PrimFunc:
        func = self.module[call.attrs["symbol"]]
        assert isinstance(func, PrimFunc)
        return func


def _workspaces(n: Node, func: PrimFunc) -> list[Buffer]:
    """Return the workspaces of a kernel call, with the call's values for the kernel's symbols."""
    dims = dict(zip(dims_of(func), n.attrs["dims"], strict=True))
    return [
        Buffer(b.name, [substitute(d, dims) for d in b.shape], b.dtype, align=ALIGN)
        for b in workspaces_of(func)
    ]
