"""From the graph of kernel calls to `main`: one PrimFunc that calls every kernel on one planned arena.

    main(inputs…, outputs…, weights, arena, dims…)

`weights` holds all constants, each at a multiple of ALIGN bytes; `arena` all intermediate values and the
kernels' workspaces.  The module's attributes say how to call it: see `Signature`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import ClassVar

from dlc_core.arith import Analyzer
from dlc_core.decisions import Decision
from dlc_core.diag import UnsupportedError, UsageError
from dlc_core.graph.data_dims import data_dims
from dlc_core.graph.dims import NEEDS
from dlc_core.graph.node import (
    CALL_PRIM,
    CONST,
    Array,
    Function,
    Node,
    post_order,
)
from dlc_core.ir.buffer import Buffer
from dlc_core.ir.conditions import conditions_of
from dlc_core.ir.expr import Expr, Var, as_expr, const, const_value, free_vars, substitute
from dlc_core.ir.module import IRModule
from dlc_core.ir.types import TensorType
from dlc_core.op.std.bands import BAND, JOIN_BANDS, band_offset, join_offsets
from dlc_core.passes.base import Pass, PassContext
from dlc_core.passes.lower.apart import PAGE, Apart, slot
from dlc_core.passes.lower.control import Called, Control, Memory, is_control, is_step
from dlc_core.passes.lower.describe import arrays_of, interface_of, with_conditions
from dlc_core.passes.lower.disjoint import prove_disjoint
from dlc_core.passes.lower.host import native_entries
from dlc_core.passes.lower.joins import Place, donations_of, joins_of, windows_of
from dlc_core.passes.lower.memory_plan import ALIGN, Request, live_peak, plan, room
from dlc_core.passes.lower.names import unique_name
from dlc_core.passes.lower.order import depth_first, reordered
from dlc_core.passes.lower.records import Record, counted, dims_of, pass_records, workspaces_of
from dlc_core.passes.lower.results import is_written, results_of
from dlc_core.passes.lower.views import origin, result_types
from dlc_core.passes.lower.weights import Constant, Repacked, Weights
from dlc_core.passes.tir.bounds import prove
from dlc_core.passes.tir.prove_bounds import BOUNDS
from dlc_core.runtime.guard import Guard, Slot
from dlc_core.runtime.signature import Signature, Value
from dlc_core.schedule.index_map import IndexMap
from dlc_core.schedule.layout import REPACK
from dlc_core.tir.functor import substitute_stmt
from dlc_core.tir.in_place import OVERWRITES
from dlc_core.tir.intrinsics import call_kernel
from dlc_core.tir.sizes import doubtful_sizes
from dlc_core.tir.stmt import Eval, PrimFunc, Stmt, View, seq

_Planned = tuple[list[Request], list[Place | Buffer], tuple[list[Expr], Expr]]
"""The requests for memory, their owners, the offset of each, and the total size."""
ORDER = Decision(
    "steps.order",
    "In which order the kernels of a function run, of those in which each follows what it reads.",
    ("given", "least_memory", "depth_first"),
)
RESULT = Decision(
    "results.memory",
    "Whether a kernel's result lies where an input does that nothing reads any more, or has its own memory.",
    ("over_input", "own"),
)


@dataclass(frozen=True)
class BuildMain(Pass):
    """Plan memory and write the native entries: `main`, or each segment of a host program.

    The module gets the attributes `signature` (of its entry), `segments` (the signatures of those),
    `constants`, `live_peak`, the bytes of the entry's values that live at once at the worst moment, and
    `accesses`, how many of them were proved to lie in their buffers and how many are checked.
    """

    name: ClassVar[str] = "build_main"
    stage: ClassVar[str] = "main"
    reads_kernels: ClassVar[bool] = False

    def run(self, module: IRModule, context: PassContext) -> IRModule:
        module = pass_records(module)
        machine = None if context.target is None else context.target.describe()
        align = ALIGN if machine is None else machine.value_align
        over = machine is not None and machine.control
        apart = Apart.of(context, machine)
        weights = Weights(align, apart)
        funcs: dict[str, PrimFunc] = {}
        signatures: dict[str, Signature] = {}
        peaks: dict[str, int | None] = {}

        def nested(body: Function, wanted: str, outer: Record) -> Called:
            name = unique_name(wanted, {**module.functions, **funcs})
            record = outer.of_body()
            inner = partial(nested, outer=record)
            builder = _Builder(module, body, name, weights, inner, align, over, record)
            funcs[name] = replace(builder.build(), attrs={})
            made = builder.signature
            return Called(name, made.symbols, made.arena_size, builder.checked, tuple(builder.slots))

        guards: dict[str, Guard] = {}
        for name, function in native_entries(module).items():
            record = Record(module.functions)
            inner = partial(nested, outer=record)
            builder = _Builder(module, function, name, weights, inner, align, over, record)
            funcs[name] = builder.build()
            signatures[name] = replace(builder.signature, sites=tuple(record.sites))
            peaks[name] = builder.live_peak
            if apart is not None:
                guards[name] = apart.guard(builder.slots, record.calls)
        entry = module[module.entry]
        if module.entry not in funcs:
            for array in arrays_of(IRModule({module.entry: entry})):
                weights.place((array, ""), lambda array=array: array.data)  # type: ignore[misc]
            signatures[module.entry] = interface_of(entry, weights.size)
        whole = {n: replace(s, weights_size=weights.size) for n, s in signatures.items()}
        for name, guard in guards.items():
            whole[name] = replace(whole[name], guard=replace(guard, weights=tuple(weights.slots)))
        return (
            _settled(module)
            .with_functions(funcs)
            .with_attrs(
                signature=whole.pop(module.entry),
                segments=whole,
                constants=tuple(weights.constants),
                live_peak=peaks.get(module.entry),
                accesses=counted([*module.of_kind(PrimFunc).values(), *funcs.values()]),
            )
        )


def _settled(module: IRModule) -> IRModule:
    """The kernels without their wishes for repacked constants, which are granted by now."""
    kernels = {
        name: replace(func, attrs={key: value for key, value in func.attrs.items() if key != REPACK})
        for name, func in module.of_kind(PrimFunc).items()
        if REPACK in func.attrs
    }
    return module.with_functions(kernels)


class _Builder:
    def __init__(
        self,
        module: IRModule,
        function: Function,
        name: str,
        held: Weights,
        nested: Callable[[Function, str], Called],
        align: int,
        overwrites: bool,
        record: Record,
    ) -> None:
        """`nested` builds the body of a control flow.

        Values in the arena begin at multiples of `align` bytes; `overwrites` says that outputs may lie where
        inputs do that nothing reads any more; `record` is that of failed checks.
        """
        self.record = record
        self.module = module
        self.apart = held.apart
        self.slots: list[Slot] = []
        """In guard mode: where values lie in the arena."""
        self.align = align
        self.nested = nested
        self.overwrites = overwrites
        self.over: dict[Place, Place] = {}
        """Outputs that are written over what was there, and the first value that was there."""
        self.written: set[Buffer] = set()
        """The buffers that kernels and bodies write."""
        self.controls: dict[Node, Control] = {}
        self.last: dict[Place, int] = {}
        """The last step that reads a tensor."""
        self.function = function
        self.name = name
        self.held = held
        nodes = list(post_order(function.body))
        self.order = [n for n in nodes if is_step(n)]
        self.inside: dict[Place, tuple[Place, int]] = {}
        """Tensors that are computed inside of another, and at which of its elements they begin."""
        for n in nodes:
            if n.op is JOIN_BANDS:
                for arg, offset in zip(n.args, join_offsets(n) or (), strict=True):
                    self.inside[arg, 0] = (n, 0), offset
        self.buffers: dict[Place, Buffer] = {}
        self.windows = windows_of(function)
        self.views: list[tuple[Buffer, Buffer]] = []
        self.constant_at: dict[tuple[Array, str], Buffer] = {}
        self.constant_names: dict[Node, str] = {}
        """Names of constants, after the first kernel that takes them and its parameter."""
        self.weights = Buffer("weights", (Var("weights_size"),), "uint8", align=ALIGN)

    def build(self) -> PrimFunc:
        inputs = self._inputs()
        outputs = self._outputs()
        requests, owners, (offsets, size) = self._planned(set(outputs))
        self.live_peak = live_peak(requests, self.align)
        bodies = any(control.checked for control in self.controls.values())
        symbols = self._symbols([*inputs, *self.out_buffers], size)
        # Where sizes are symbolic, the function itself may find that its memory does not do.
        self.checked = bool(symbols) or self.record.is_written(self.order, bodies)
        if self.apart is not None:
            self.checked |= self.apart.notes
        if self.checked or self.apart is not None:
            begin = self.record.reserved(self.align if self.apart is None else PAGE)
            offsets, size = [offset + begin for offset in offsets], size + begin
        arena = Buffer("arena", (size,), "uint8", align=ALIGN)
        refills: dict[int, list[Stmt]] = {}
        if self.apart is not None:
            for request, slots in zip(requests, self._slots(owners, offsets), strict=True):
                self.slots += slots
                refills.setdefault(request.last, []).extend(self.apart.refilled(arena, slots))
        if self.checked and not self.record.nested:
            self.views.append((self.record.buffer, arena))
        for place, offset in zip(owners, offsets, strict=True):
            if isinstance(place, Buffer):
                self.views.append((self._at(place, offset), arena))
                self.workspaces[place] = self.views[-1][0]
            else:
                buffer = self._at(_buffer_of(place), offset)
                self.buffers[place] = buffer
                self.views.append((buffer, arena))
        for place, first in self.over.items():
            offset = self.buffers[first].offset * _type_of(place).dtype.itemsize
            self.buffers[place] = self._at(_buffer_of(place), offset)
            self.views.append((self.buffers[place], arena))
        self._place_windows()
        calls = seq(*(s for i, n in enumerate(self.order) for s in (self._call(n), *refills.get(i, ()))))
        weights = Buffer("weights", (self.held.size,), "uint8", align=ALIGN)
        if self.controls:
            calls = substitute_stmt(calls, {}, {self.weights: weights})

        def viewed(body: Stmt) -> Stmt:
            for buffer, base in reversed(self.views):
                body = View(buffer, weights if base is self.weights else base, body)
            return body

        out_buffers = self.out_buffers
        record = [self.record.buffer] if self.checked and self.record.nested else []
        func = PrimFunc(
            self.name, (*inputs, *out_buffers, weights, arena, *record, *symbols), viewed(calls),
            {"entry": True}, self.function.body.spans,
        )  # fmt: skip
        doubtful = doubtful_sizes(d for b in self.buffers.values() for d in b.shape)
        func = func.with_attrs(sizes=doubtful) if doubtful else func
        func = self.proved(func, arena, calls, viewed)
        names = self.function.attrs
        in_names = names.get("inputs") or tuple(p.attrs["name"] for p in self.function.params)
        out_names = names.get("outputs") or tuple(f"output{i}" for i in range(len(out_buffers)))
        results = [t for r in self.function.results for t in result_types(r)]
        signature = Signature(
            tuple(Value(n, p.tensor_type) for n, p in zip(in_names, self.function.params, strict=True)),
            tuple(Value(n, t) for n, t in zip(out_names, results, strict=True)),
            tuple(symbols),
            size,
            self.held.size,
            donations_of(self.function),
        )
        self.signature = with_conditions(signature, self.function)
        return func

    def proved(self, func: PrimFunc, arena: Buffer, calls: Stmt, viewed: Callable[[Stmt], Stmt]) -> PrimFunc:
        """The function, whose windows on memory are proved to fit and those in use at once to lie apart; by
        sizes that are tested where they are not.

        Raises PassError where they do not.
        """
        functions = self.module.functions
        inside = prove(func, functions)
        lasting = [self.record.buffer] if self.checked else []
        needs = conditions_of(self.function.attrs.get(NEEDS, ()))
        apart = prove_disjoint(func, arena, functions, lasting=lasting, written=self.written, needs=needs)
        left = [*inside.open, *apart.open]
        func = func.with_attrs(**{BOUNDS: (inside.proved + apart.proved, len(left))})
        return replace(func, body=viewed(self.record.guarded(func, calls, left))) if left else func

    # Where values live

    def _inputs(self) -> list[Buffer]:
        rooms = {d.input: d for d in donations_of(self.function)}
        for index, p in enumerate(self.function.params):
            shape = list(p.tensor_type.dim_exprs())
            if index in rooms:
                shape[rooms[index].axis] = const(rooms[index].capacity)
            self.buffers[p, 0] = Buffer(p.attrs["name"], shape, p.dtype, align=ALIGN)
        return [self.buffers[p, 0] for p in self.function.params]

    def _outputs(self) -> list[Place]:
        """Kernel outputs that are written straight to the caller's memory."""
        direct: list[Place] = []
        self.out_buffers: list[Buffer] = []
        for value in results_of(self.function):
            place = origin(value)
            if place in self.windows and place not in direct:
                # It lies in the memory of an input, which the caller gives again.
                direct.append(place)
                self.out_buffers.append(_buffer_of((value, 0), f"out{len(self.out_buffers)}"))
                continue
            if not is_written(place[0]) or place in direct:
                raise UsageError(
                    "a result is not what a kernel of its own writes", hint="run the pass copy_results first"
                )
            direct.append(place)
            self.buffers[place] = _buffer_of((value, 0), f"out{len(self.out_buffers)}")
            self.out_buffers.append(self.buffers[place])
        return direct

    def _planned(self, direct: set[Place]) -> _Planned:
        """A place in the arena for all that needs one, in the order of steps that takes less."""
        given = self.order
        planned = self._plan(direct)
        if self.controls or donations_of(self.function) or self.apart is not None:
            return planned
        other = reordered(given, self.function.body, partial(self._sizes, direct))
        preferred = "given"
        if other is not None:
            self.order = other
            again = self._plan(direct)
            if (const_value(again[-1][1]) or 0) < (const_value(planned[-1][1]) or 0):
                preferred, planned = "least_memory", again
        orders = {"given": given, "least_memory": other}
        chosen = ORDER.choose(preferred, ORDER.alternatives if other else ("given", "depth_first"))
        wanted = orders.get(chosen) or depth_first(given, self.function.body)
        if wanted is not self.order:
            self.order = wanted
            planned = self._plan(direct)
        return planned

    def _plan(self, direct: set[Place]) -> _Planned:
        requests, owners = self._requests(direct)
        if self.apart is None:
            return requests, owners, plan(requests, self.align)
        return requests, owners, self.apart.plan([request.size for request in requests])

    def _slots(self, owners: Sequence[Place | Buffer], offsets: Sequence[Expr]) -> list[list[Slot]]:
        """Where the values of each owner lie: those of bodies and of loops in their turns are several."""
        found: list[list[Slot]] = []
        inner = {space: slots for control in self.controls.values() for space, slots in control.slots.items()}
        for owner, offset in zip(owners, offsets, strict=True):
            if not isinstance(owner, Buffer):
                type_ = _type_of(owner)
                name = f"the result of {_name_of(owner[0])}"
                found.append([slot(name, offset, _size(type_), type_.dtype)])
            elif owner in inner:
                found.append([replace(one, offset=one.offset + offset) for one in inner[owner]])
            else:
                found.append([slot(f"workspace {owner.name!r}", offset, _bytes(owner), owner.dtype)])
        return found

    def _at(self, buffer: Buffer, offset: Expr) -> Buffer:
        return _at(buffer, offset, self.align if self.apart is None else self.apart.align_of(buffer.dtype))

    def _sizes(self, direct: set[Place], n: Node) -> tuple[int, int] | None:
        """Bytes in the arena of a step's results and workspaces, where they are known."""
        results = [_size(_type_of((n, i))) for i in range(len(result_types(n))) if (n, i) not in direct]
        found = [const_value(size) for size in (*results, *map(_bytes, self.workspace_of.get(n, ())))]
        known = [size for size in found if size is not None]
        return None if len(known) < len(found) else (sum(known[: len(results)]), sum(known[len(results) :]))

    def _requests(self, direct: set[Place]) -> tuple[list[Request], list[Place | Buffer]]:
        """Return the requests for arena memory: outputs until their last use, workspaces in their call."""
        step = {n: i for i, n in enumerate(self.order)}
        last = self.last
        last.clear()
        self.over.clear()
        for n in self.order:
            for arg in n.args:
                for place in self._places(arg):
                    last[self._whole(place)[0]] = step[n]
        for result in self.function.results:
            for place in self._places(result):
                last[self._whole(place)[0]] = len(self.order)
        if self.overwrites:
            self._write_over(direct, step)
        for place, first in self.over.items():
            last[first] = max(last[first], last.get(place, step[place[0]]))
        requests: list[Request] = []
        owners: list[Place | Buffer] = []
        for join in joins_of(self.function):
            if (join, 0) not in self.windows and (join, 0) not in direct:
                held = [place for arg in join.args for place in self._places(arg)]
                begin = min(step[value] for value, _ in held)
                end = max(last.get(place, begin) for place in ((join, 0), *held))
                requests.append(Request(_size(join.tensor_type), begin, end))
                owners.append((join, 0))
        asked: set[Place] = set()
        self.workspaces: dict[Buffer, Buffer] = {}
        self.workspace_of: dict[Node, list[Buffer]] = {}
        for n in self.order:
            now = step[n]
            for index in range(len(result_types(n))):
                place, _ = self._whole((n, index))
                if not any(place in placed for placed in (direct, self.windows, self.over, asked)):
                    asked.add(place)
                    requests.append(Request(_size(_type_of(place)), now, last.get(place, now)))
                    owners.append(place)
            for workspace in self._workspaces(n):
                requests.append(Request(room(_bytes(workspace)), now, now))
                owners.append(workspace)
        return requests, owners

    def _write_over(self, direct: set[Place], step: Mapping[Node, int]) -> None:
        """Let outputs lie where inputs do that nothing reads any more, where their kernels allow it."""
        apart = {*direct, *self.windows, *self.inside}
        for n in self.order:
            pairs = () if n.op is not CALL_PRIM else self.module[n.attrs["symbol"]].attrs.get(OVERWRITES, ())
            if not pairs:
                continue
            given = [place for arg in n.args for place in self._places(arg)]
            wholes = [self._whole(place)[0] for place in given]
            for source, output in pairs:
                place, result = given[source], (n, output - len(given))
                dies = place[0] in step and self.last[place] == step[n] and wholes.count(place) == 1
                if not dies or result in self.over or {place, result} & apart:
                    continue
                if RESULT.choose("over_input", where=f"{step[n]} {source} {output}") == "over_input":
                    self.over[result] = self.over.get(place, place)
                    apart.add(place)

    def _place_windows(self) -> None:
        """Tensors that lie in others, where these lie."""
        for place, window in self.windows.items():
            whole, type_ = self.buffers[window.whole], _type_of(place)
            self.buffers[place] = Buffer(
                "part",
                type_.dim_exprs(),
                type_.dtype,
                strides=window.strides,
                offset=whole.offset + window.offset,
            )
            self.views.append((self.buffers[place], whole))

    def _whole(self, place: Place) -> tuple[Place, int]:
        """The tensor whose memory a place is in, and at which of its elements it begins."""
        offset = 0
        while True:
            if place in self.inside:
                place, more = self.inside[place]
            elif place[0].op is BAND:
                more, place = band_offset(place[0]) or 0, origin(place[0].args[0])
            else:
                return place, offset
            offset += more

    def _places(self, value: Node) -> list[Place]:
        return [origin(value, i) for i in range(len(result_types(value)))]

    def _dims(self, n: Node) -> Mapping[Var, Expr]:
        """The kernel's symbols in terms of this call's."""
        return dict(zip(dims_of(self.module[n.attrs["symbol"]]), n.attrs["dims"], strict=True))

    def _workspaces(self, n: Node) -> list[Buffer]:
        if is_control(n):
            made = self.controls[n] = Control(
                n, lambda body, name: self.nested(body, f"{self.name}_{name}"), self.apart
            )
            return made.spaces
        dims = self._dims(n)
        fresh = [
            Buffer(b.name, [substitute(d, dims) for d in b.shape], b.dtype, align=ALIGN)
            for b in workspaces_of(self.module[n.attrs["symbol"]])
        ]
        self.workspace_of[n] = fresh
        return fresh

    def _constant(self, value: Node) -> Buffer:
        """A constant where the weights hold it; equal constants are held once."""
        array: Array = value.attrs["value"]
        return self._held((array, ""), lambda: array.data, self.constant_names.get(value, "const"))

    def _repacked(self, value: Node, layout: IndexMap) -> Buffer:
        """A constant in the layout that its kernel's schedule asks for, rearranged now."""
        array: Array = value.attrs["value"]
        name = self.constant_names.get(value, "const")
        return self._held((array, str(layout)), lambda: Repacked(array.data, layout), name)

    def _held(self, key: tuple[Array, str], make: Callable[[], Constant], name: str) -> Buffer:
        found = self.constant_at.get(key)
        if found is None:
            offset, type_ = self.held.place(key, make, name)
            found = self._at(Buffer(name, type_.dim_exprs(), type_.dtype), const(offset))
            self.constant_at[key] = found
            self.views.append((found, self.weights))
        return found

    def buffer(self, place: Place) -> Buffer:
        found = self.buffers.get(place)
        if found is None:
            whole, offset = self._whole(place)
            if whole != place:
                base, type_ = self.buffer(whole), _type_of(place)
                found = Buffer(
                    base.name, type_.dim_exprs(), type_.dtype, offset=base.offset + offset, align=base.align
                )
                self.buffers[place] = found
                self.views.append((found, base))
                return found
            if place[0].op is not CONST:
                raise UsageError(f"{place[0]!r} has no memory", spans=place[0].spans)
            found = self.buffers[place] = self._constant(place[0])
        return found

    # Statements

    def _call(self, n: Node) -> Stmt:
        if n in self.controls:
            return self._control(n)
        func: PrimFunc = self.module[n.attrs["symbol"]]
        repack: Mapping[int, IndexMap] = func.attrs.get(REPACK, {})
        places = [place for arg in n.args for place in self._places(arg)]
        for (value, _), param in zip(places, func.buffers, strict=False):
            if value.op is CONST:
                self.constant_names.setdefault(value, f"{_name_of(n)}_{param.name}")
        args = [
            self._repacked(place[0], repack[i]) if i in repack else self.buffer(place)
            for i, place in enumerate(places)
        ]
        outs = [self.buffer((n, i)) for i in range(len(result_types(n)))]
        self.written.update(outs)
        spaces = [self.workspaces[b] for b in self.workspace_of[n]]
        record, site = self.record.arguments(n, func)
        call = Eval(call_kernel(n.attrs["symbol"], *args, *outs, *spaces, *record, *n.attrs["dims"], *site))
        return call if self.apart is None else seq(*self.record.note(n, func, self.apart.notes), call)

    def _control(self, n: Node) -> Stmt:
        places = [(n, i) for i in range(len(result_types(n)))]
        memory = Memory(
            [self._shaped(origin(arg), arg.tensor_type) for arg in n.args],
            [self._shaped(place, type_) for place, type_ in zip(places, result_types(n), strict=True)],
            [place in self.last for place in places],
            self.weights,
            self.workspaces,
            self.record.buffer,
        )
        self.written.update(memory.outs)
        return self.controls[n].statements(memory)

    def _shaped(self, place: Place, type_: TensorType) -> Buffer:
        """Memory that may be known by a view of it, in the shape that is meant."""
        held = self.buffer(place)
        own = Buffer(held.name, type_.dim_exprs(), held.dtype, offset=held.offset, align=held.align)
        self.views.append((own, held))
        return own

    def _symbols(self, buffers: list[Buffer], size: Expr) -> list[Var]:
        dims = [d for b in buffers for d in b.shape] + [size]
        seen = dict.fromkeys(free_vars(*dims))
        for n in self.order:
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


def _type_of(place: Place) -> TensorType:
    return result_types(place[0])[place[1]]


def _name_of(n: Node) -> str:
    """The name of a step's result: that of its kernel, which is named after its operations."""
    name: str = n.attrs["symbol"] if n.op is CALL_PRIM else n.op.name
    return name.removeprefix("fused_")


def _buffer_of(place: Place, name: str = "") -> Buffer:
    type_ = _type_of(place)
    return Buffer(name or _name_of(place[0]), type_.dim_exprs(), type_.dtype, align=ALIGN)


def _bytes(buffer: Buffer) -> Expr:
    return buffer.num_elements() * buffer.dtype.itemsize


def _size(type_: TensorType) -> Expr:
    total: Expr = const(type_.dtype.itemsize)
    for dim in type_.shape:
        total = as_expr(dim) * total
    return total


def _at(buffer: Buffer, offset: Expr, align: int = ALIGN) -> Buffer:
    """The buffer as a window at a byte offset, which is a multiple of `align`."""
    elements = Analyzer().simplify(offset // buffer.dtype.itemsize)
    return Buffer(buffer.name, buffer.shape, buffer.dtype, offset=elements, align=align)
