"""join_parts: concatenate without copies, by writing the parts directly into the result.

Law: the function computes the same values.

    y = call(f, x)
    z = call(g, x)                  y = call(f, x)
    c = call(concat, y, z)    =>    z = call(g, x)
    w = call(h, c, y)               c = concat(y, z)
                                    w = call(h, c, y)

A bare `concat` in a function with the attribute `joins` is not a kernel. It represents memory, and its parts
are windows of that memory (`windows_of`). Kernels that write or read a window get a strided buffer for it
(`with_windows`). A part must be written by one kernel and read by kernels only. Other parts, such as inputs
of the function, are copied. If there are only such parts, nothing changes. Parts of a result of the function
are written to the caller's memory.

A result that extends a donated input (the attribute `donated`: see `runtime.interface.signature.Donation`)
is in the memory of that input: only its new part is written.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import ClassVar

from dlc_core.decisions import Decision
from dlc_core.diag import PassError, UnsupportedError
from dlc_core.graph.donate import DONATED
from dlc_core.graph.node import (
    CALL,
    CALL_PRIM,
    GET,
    PARAM,
    Function,
    Node,
    call_function,
    functions_of,
    node,
    post_order,
    rewrite,
    users_of,
)
from dlc_core.ir.buffer import Buffer
from dlc_core.ir.expr import Expr, as_expr, const
from dlc_core.ir.module import IRModule
from dlc_core.ir.types import Dim
from dlc_core.op.kernels import WINDOWS
from dlc_core.op.std import BY_NAME as OPS
from dlc_core.passes.base import Pass, PassContext
from dlc_core.passes.lower.host import native_entries
from dlc_core.passes.lower.names import unique_name
from dlc_core.passes.lower.views import origin, result_types
from dlc_core.runtime.interface.signature import Donation
from dlc_core.support.record import record
from dlc_core.tir.functor import substitute_stmt
from dlc_core.tir.stmt import PrimFunc

CONCAT = OPS["concat"]
CONCAT_WRITE = Decision(
    "concat.write",
    "Whether kernels write the parts of a concatenation directly into its result, or a kernel copies them.",
    ("in_place", "copied"),
)
CONCAT_PART = Decision(
    "concat.part",
    "Whether the kernel of a part of a concatenation writes into the result, or the part is copied.",
    ("in_place", "copied"),
)
JOINS, PART = "joins", "part"
"""Attributes of functions. PART numbers the copies of one value for several windows."""
TensorRef = tuple[Node, int]
"""A tensor: a node and the index of one of its outputs."""
Strides = tuple[int, ...]


@record(frozen=True)
class Window:
    """A tensor in the memory of the tensor `base`: its offset and its strides, in elements."""

    base: TensorRef
    offset: Expr
    strides: Strides


Windows = Mapping[TensorRef, Window]


def is_join(value: Node) -> bool:
    """Whether a node of a lowered function is a buffer whose parts other nodes write in place."""
    return value.op is CONCAT


def joins_of(function: Function) -> list[Node]:
    """Return the joins of a function, in order."""
    return [n for n in post_order(function.body) if is_join(n)] if function.attrs.get(JOINS) else []


def donations_of(function: Function) -> tuple[Donation, ...]:
    return tuple(Donation(*fields) for fields in function.attrs.get(DONATED, ()))


@record(frozen=True)
class JoinParts(Pass):
    """Write parts of concatenations in place, and results that extend donated inputs."""

    name: ClassVar[str] = "join_parts"
    stage: ClassVar[str] = "lower"

    def run(self, module: IRModule, context: PassContext) -> IRModule:
        entries = native_entries(module)
        entry = module.functions.get(module.entry)
        supported = context.target is not None and context.target.describe().control
        donates = isinstance(entry, Function) and DONATED in entry.attrs
        if donates and not (supported and module.entry in entries):
            why = (
                "parts of the model run on the host"
                if supported
                else "the target's kernels take whole tensors"
            )
            raise UnsupportedError("inputs cannot be donated", why=why, hint="compile without `donate`")
        if not supported:
            return module
        joined = {name: _Joiner(function).run() for name, function in entries.items()}
        return module.with_functions({n: f for n, f in joined.items() if f is not entries[n]})


class _Joiner:
    def __init__(self, function: Function) -> None:
        self.function = function
        self.users = users_of(function.body)
        # A view shares its value's memory: if the view is a result, so is the value.
        results = function.results
        self.results = {function.body, *results, *(origin(result)[0] for result in results)}
        self.donated = {function.results[d.output]: d for d in donations_of(function)}
        self.joined: set[Node] = set()
        self.order = {n: i for i, n in enumerate(post_order(function.body))}
        self.copies = 0

    def run(self) -> Function:
        if any(n.op is CONCAT for n in post_order(self.function.body)):
            return self.function
        parts = {n: found for n in post_order(self.function.body) if (found := self._parts(n)) is not None}
        for value, donation in self.donated.items():
            if value not in parts:
                raise self._donation_error(donation, "its output is not a concatenation in one kernel")
        if not parts:
            return self.function

        def visit(old: Node, args: tuple[Node, ...]) -> Node | None:
            if old not in parts:
                return None
            body = old.attrs["function"].body
            made = [self._part(old, i, in_place, args) for i, in_place in enumerate(parts[old])]
            return node(CONCAT, made, body.attrs, old.type)

        return self.function.with_body(rewrite(self.function.body, visit)).with_attrs(**{JOINS: True})

    def _parts(self, value: Node) -> list[bool] | None:
        """Return which parts of a concatenation are written in place; None if the concatenation stays a
        kernel."""
        if value.op is not CALL or value.attrs["function"].body.op is not CONCAT:
            return None
        arguments = dict(zip(value.attrs["function"].params, value.args, strict=True))
        body = value.attrs["function"].body
        donation = self.donated.get(value)
        if donation is not None:
            own = self.function.params[donation.input]
            if arguments.get(body.args[0]) is not own:
                raise self._donation_error(donation, "its output does not begin with it")
            for read in (own, value):
                if read in self.results and (read is own or self.function.results.count(read) > 1):
                    raise self._donation_error(donation, "it is a result twice")
                others = [u for u in self.users[read] if u.op is not CALL and u is not self.function.body]
                if others:
                    why = f"{others[0].op.name} reads it as compact memory"
                    raise self._donation_error(donation, why)
            return [
                True,
                *(self._is_part(arguments.get(arg), f"donated {i}") for i, arg in enumerate(body.args[1:])),
            ]
        if strides_of(value.shape, None) is None or value.dtype.bits < 8:
            return None
        where = self.order[value]
        if CONCAT_WRITE.choose("in_place", where=where) == "copied":
            return None
        found = [self._is_part(arguments.get(arg), f"{where} {i}") for i, arg in enumerate(body.args)]
        return found if any(found) else None

    def _donation_error(self, donation: Donation, why: str) -> UnsupportedError:
        names = self.function.attrs.get("inputs") or [p.attrs["name"] for p in self.function.params]
        name = names[donation.input]
        return UnsupportedError(
            f"input {name!r} cannot be donated", why=why, hint=f"compile without {name!r} in `donate`"
        )

    def _is_part(self, value: Node | None, where: str) -> bool:
        """Whether a value becomes a window. One kernel must write it, and only kernels may read it."""
        if value is None or value in self.joined or value in self.results:
            return False
        source = value.args[0] if value.op is GET else value
        if source.op is not CALL or source in self.results:
            return False
        if source.attrs["function"].body.op is CONCAT or not all(u.op is CALL for u in self.users[value]):
            return False
        if CONCAT_PART.choose("in_place", where=where) == "copied":
            return False
        self.joined.add(value)
        return True

    def _part(self, old: Node, index: int, in_place: bool, args: Sequence[Node]) -> Node:
        group: Function = old.attrs["function"]
        arguments = dict(zip(group.params, args, strict=True))
        root = group.body.args[index]
        if in_place:
            return arguments[root]
        self.copies += 1
        params = tuple(n for n in post_order(root) if n.op is PARAM)
        label = f"{group.name}_part"
        part = Function(label, params, root).with_attrs(**group.attrs, **{PART: self.copies})
        made = call_function(part, [arguments[p] for p in params])
        made.add_spans(old.spans)
        return made


def strides_of(shape: Sequence[Dim], capacity: tuple[int, int] | None) -> Strides | None:
    """Return row-major strides; None if unknown.

    `capacity` (axis, elements) is the capacity of the memory along an axis, if it is larger than the shape.
    """
    sizes = list(shape)
    if capacity is not None:
        sizes[capacity[0]] = capacity[1]
    found, step = [], 1
    for axis in reversed(range(len(sizes))):
        found.append(step)
        size = sizes[axis]
        if axis and not isinstance(size, int):
            return None
        step *= size if isinstance(size, int) else 1
    return tuple(reversed(found))


def windows_of(function: Function) -> dict[TensorRef, Window]:
    """Return the tensors that are windows of other tensors, outer ones first."""
    found: dict[TensorRef, Window] = {}
    donated = {function.results[d.output]: d for d in donations_of(function)}
    for value in joins_of(function):
        axis = value.attrs["axis"] % len(value.shape)
        parts = [origin(arg) for arg in value.args]
        donation = donated.get(value)
        strides = strides_of(value.shape, None if donation is None else (axis, donation.capacity))
        if strides is None:
            raise PassError(f"the strides of the join {value!r} are not known", spans=value.spans)
        if donation is not None:
            base = function.params[donation.input], 0
            found[value, 0] = Window(base, const(0), strides)
            found[base] = Window(base, const(0), strides)
        offset: Expr = const(0)
        for tensor, arg in zip(parts, value.args, strict=True):
            if tensor not in found:
                found[tensor] = Window((value, 0), offset * strides[axis], strides)
            elif donation is None or tensor != found[value, 0].base:
                raise PassError(f"{tensor[0]!r} would have two offsets", spans=value.spans)
            offset = offset + as_expr(arg.shape[axis])
    return found


def with_windows(
    functions: Mapping[str, Function], kernels: Mapping[str, PrimFunc], taken: Mapping[str, object]
) -> dict[str, Function | PrimFunc]:
    """Return the functions and the kernels. Kernels with windows replace those that are no longer called."""
    made: dict[tuple[str, tuple[tuple[int, Strides], ...]], str] = {}
    found = dict(kernels)
    result: dict[str, Function] = {}
    for name, function in functions.items():
        windows = windows_of(function)

        def visit(old: Node, args: tuple[Node, ...], windows: Windows = windows) -> Node | None:
            strided = tuple(
                (index, windows[tensor].strides)
                for index, tensor in enumerate(_call_tensors(old))
                if tensor in windows and not _is_compact(windows[tensor].strides, tensor)
            )
            if not strided:
                return None
            key = old.attrs["symbol"], strided
            if key not in made:
                made[key] = unique_name(f"{key[0]}_in_place", {**taken, **found})
                found[made[key]] = _with_strides(found[key[0]], dict(strided), made[key])
            return node(CALL_PRIM, args, {**old.attrs, "symbol": made[key]}, old.type)

        result[name] = function.with_body(rewrite(function.body, visit)) if windows else function
    if made:
        called = {n.attrs["symbol"] for f in result.values() for n in _calls(f)}
        found = {name: func for name, func in found.items() if name in called}
    return {**result, **found}


def _calls(function: Function) -> Iterator[Node]:
    """Yield the calls of kernels, including those in control flow."""
    work = [function]
    while work:
        for n in post_order(work.pop().body):
            if n.op is CALL_PRIM:
                yield n
            work += functions_of(n)


def _call_tensors(call: Node) -> Iterator[TensorRef]:
    """Yield the tensors of a kernel call, inputs first; none for other nodes."""
    if call.op is not CALL_PRIM:
        return
    for arg in call.args:
        for index in range(len(result_types(arg))):
            yield origin(arg, index)
    for index in range(len(result_types(call))):
        yield call, index


def _is_compact(strides: Strides, tensor: TensorRef) -> bool:
    """Whether strides are those of a compact tensor, along the axes with more than one element."""
    shape = result_types(tensor[0])[tensor[1]].shape
    own = strides_of(shape, None)
    return own is not None and all(
        size == 1 or a == b for a, b, size in zip(own, strides, shape, strict=True)
    )


def _with_strides(func: PrimFunc, strided: Mapping[int, Strides], name: str) -> PrimFunc:
    fresh: dict[Buffer, Buffer] = {}
    for index, strides in strided.items():
        old = func.buffers[index]
        fresh[old] = Buffer(
            old.name, old.shape, old.dtype, strides=strides, scope=old.scope, align=old.dtype.itemsize
        )
    params = tuple(fresh.get(p, p) if isinstance(p, Buffer) else p for p in func.params)
    attrs = {**func.attrs, WINDOWS: dict(strided)}
    return replace(func, name=name, params=params, body=substitute_stmt(func.body, {}, fresh), attrs=attrs)
