"""Lowering: each fused group of a graph becomes one PrimFunc, through the ops' te definitions.

The graph function keeps its shape; its `call` nodes become `call_prim` nodes that name a PrimFunc of the
module.  Groups that compute the same (the names of buffers and dims apart) share one PrimFunc.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import ClassVar

from dlc_core import te
from dlc_core.diag import Span
from dlc_core.graph.extract import is_region
from dlc_core.graph.node import (
    CALL,
    CALL_PRIM,
    CONST,
    Function,
    Node,
    const_array,
    merged_spans,
    node,
    param,
    post_order,
    rewrite,
)
from dlc_core.ir.declared import declared_dtypes
from dlc_core.ir.expr import Var, const_value, free_vars
from dlc_core.ir.module import IRModule
from dlc_core.ir.plan import PLAN
from dlc_core.ir.structural import structural_hash, structural_roles
from dlc_core.ir.types import TupleType, Type
from dlc_core.op.declare import OpDecl, tensor_types
from dlc_core.op.lower import with_plan
from dlc_core.op.lower_dtype import check_arithmetic
from dlc_core.op.lower_graph import INLINE_CONSTANTS, lower_graph, own_tensors
from dlc_core.op.std.bands import BAND, JOIN_BANDS
from dlc_core.op.std.programs import CALL_TIR
from dlc_core.passes.base import Pass, PassContext
from dlc_core.passes.graph.mixed_precision import narrow_dtype
from dlc_core.passes.lower.arena import ALIGN
from dlc_core.passes.lower.control import is_control, with_bodies
from dlc_core.passes.lower.host import is_host
from dlc_core.passes.lower.joins import PART, joins_of, with_windows
from dlc_core.passes.lower.names import unique_name
from dlc_core.passes.lower.views import has_offset, is_view
from dlc_core.support.record import record
from dlc_core.tir.functor import specialize, stmts
from dlc_core.tir.interface import bind_dims, is_scheduled
from dlc_core.tir.sizes import unproved_sizes
from dlc_core.tir.stmt import PrimFunc

DENORMALS = "denormals"
"""PrimFunc attribute: "flush" if rounding to bfloat16 may replace denormal numbers by zero."""


def lower_group(function: Function, name: str) -> PrimFunc:
    """Lower a closed graph function to a PrimFunc over inputs, then outputs, then symbolic dims.

    Raises UnsupportedError, naming every such node, when an op has no tensor lowering.
    """
    inputs = [te.placeholder(p.tensor_type.shape, p.dtype, f"p{i}") for i, p in enumerate(function.params)]
    values = lower_graph(function.body, dict(zip(function.params, inputs, strict=True)), function.name)
    spans = dict.fromkeys(span for n in post_order(function.body) for span in n.spans)
    results = own_tensors((t for result in function.results for t in values[result]), inputs)
    func = with_plan(te.create_prim_func(inputs, results, name, spans=tuple(spans)), values)
    func = _with_plan_of_program(func, values)
    doubtful = unproved_sizes(d for n in values for t in tensor_types(_fields(n)) for d in t.shape)
    return func.with_attrs(sizes=doubtful) if doubtful else func


def _with_plan_of_program(func: PrimFunc, nodes: Iterable[Node]) -> PrimFunc:
    """Attach the plan of the program that the nodes call, if one of them calls one and none has a plan.

    A kernel of one model that another graph calls is then scheduled as in its model.
    """
    plans = [n.attrs["program"].attrs.get(PLAN) for n in nodes if n.op is CALL_TIR]
    if PLAN in func.attrs or len(plans) != 1 or plans[0] is None:
        return func
    return func.with_attrs(**{PLAN: plans[0]})


def _fields(n: Node) -> tuple[Type, ...]:
    return n.type.fields if isinstance(n.type, TupleType) else (n.type,)


@record(frozen=True)
class LowerGroups(Pass):
    """Turn every group, and every single op, into a call of a PrimFunc.

    The attribute `constants` of a PrimFunc lists its parameters that are constants of the model. Schedules
    may repack these.
    """

    name: ClassVar[str] = "lower_groups"
    stage: ClassVar[str] = "lower"
    exact: ClassVar[bool] = False

    def run(self, module: IRModule, context: PassContext) -> IRModule:
        kernels: dict[str, PrimFunc] = {}
        table = _KernelTable()
        denormals = {DENORMALS: "flush"} if narrow_dtype(context).name == "bfloat16" else {}
        # Equal groups are lowered once. Values: the kernel, and the positions of its dims in the roles.
        lowered: dict[tuple[str, tuple[int, ...]], tuple[str, tuple[int, ...]]] = {}
        align = 1 if context.target is not None and not context.target.describe().vector_bits else ALIGN
        computed = () if context.target is None else context.target.describe().dtypes
        target = "" if context.target is None else str(context.target)
        joined: set[Node] = set()
        # The functions below are in a reference cycle. They do not refer to the module, so that its constants
        # can be freed.
        names = dict.fromkeys(module.functions)

        def kernel_of(function: Function, args: Sequence[Node]) -> tuple[str, tuple[Var, ...]]:
            constants = tuple(i for i, arg in enumerate(args) if arg.op is CONST)
            group, roles = structural_roles((function.params, function.body))
            found = lowered.get((group, constants))
            if found is not None:
                symbol, positions = found
                spans = dict.fromkeys(s for n in post_order(function.body) for s in n.spans)
                kernels[symbol] = _spanned(kernels[symbol], spans)
                return symbol, tuple(roles[position] for position in positions)
            for n in post_order(function.body) if declared_dtypes() else ():
                check_arithmetic(n, computed, target)
            func = _scheduled_program(function) or lower_group(function, function.name)
            func = func.with_attrs(constants=constants, **denormals)
            name = table.find(func)
            if name is None:
                name = unique_name(func.name, {**names, **kernels})
                kernels[name] = replace(func, name=name)
                table.add(name, func)
            else:
                kernels[name] = _spanned(kernels[name], func.spans)
            number = {id(role): i for i, role in enumerate(roles)}
            if all(id(dim) in number for dim in func.scalars):
                lowered[group, constants] = name, tuple(number[id(dim)] for dim in func.scalars)
            return name, func.scalars

        def visit(old: Node, args: tuple[Node, ...]) -> Node | None:
            function = old.attrs["function"] if old.op is CALL else None
            if old in joins:
                return None
            if is_control(old):
                return with_bodies(old, args, lambda body, _: body.with_body(rewrite(body.body, visit)))
            if function is None:
                if not isinstance(old.op, OpDecl) or is_view(old):
                    return None
                if old.op in (BAND, JOIN_BANDS):
                    bands = node(old.op, args, old.attrs, old.type)
                    if has_offset(bands, align) and joined.isdisjoint(args):
                        joined.update(args if old.op is JOIN_BANDS else ())
                        return bands
                function, args = _single_op_group(old, args)
            symbol, dims = kernel_of(function, args)
            part = {PART: function.attrs[PART]} if PART in function.attrs else {}
            return node(CALL_PRIM, args, {"symbol": symbol, "dims": dims, **part}, old.type)

        graphs = module.of_kind(Function)
        native = {n: f for n, f in graphs.items() if not (is_host(f) or is_region(f))}
        joins = {join for function in native.values() for join in joins_of(function)}
        functions = {name: f.with_body(rewrite(f.body, visit)) for name, f in native.items()}
        return module.with_functions(with_windows(functions, kernels, module.functions))


def _scheduled_program(function: Function) -> PrimFunc | None:
    """The program of a function that only calls one that has its own schedule; else None.

    The program takes the function's parameters in order, and its by-value parameters become dims of the
    caller.
    """
    call = function.body
    if call.op is not CALL_TIR or call.args != function.params or not is_scheduled(call.attrs["program"]):
        return None
    program: PrimFunc = call.attrs["program"]
    dims = bind_dims(program, [a.tensor_type for a in call.args], call.attrs["scalars"])
    made = specialize(program, dims)
    made = replace(made, params=(*made.params, *free_vars(*dims.values())))
    return _spanned(made, call.spans).with_attrs(scheduled=True)


class _KernelTable:
    """Kernels by structure.  Structural hashing is slow, so only kernels with equal cheap keys are hashed."""

    def __init__(self) -> None:
        self._by_key: dict[tuple[object, ...], dict[str, PrimFunc]] = {}
        self._digests: dict[str, str] = {}

    def find(self, func: PrimFunc) -> str | None:
        """Return a known kernel that equals a program except for names."""
        candidates = self._by_key.get(_cheap_key(func))
        if not candidates:
            return None
        digest = structural_hash(func, names=False)
        return next((name for name, other in candidates.items() if self._digest(name, other) == digest), None)

    def add(self, name: str, func: PrimFunc) -> None:
        """Register a kernel."""
        self._by_key.setdefault(_cheap_key(func), {})[name] = func

    def _digest(self, name: str, func: PrimFunc) -> str:
        found = self._digests.get(name)
        if found is None:
            found = self._digests[name] = structural_hash(func, names=False)
        return found


def _cheap_key(func: PrimFunc) -> tuple[object, ...]:
    """Return a cheap key that is equal for equal programs."""
    params = [(p.dtype, tuple(map(const_value, p.shape))) for p in func.buffers]
    return (*params, len(func.params), sum(1 for _ in stmts(func.body)))


def _spanned(func: PrimFunc, spans: Iterable[Span]) -> PrimFunc:
    """Add the spans of further model nodes that a program computes."""
    merged = merged_spans(func.spans, spans)
    return func if merged is func.spans else replace(func, spans=merged)


def _single_op_group(old: Node, args: tuple[Node, ...]) -> tuple[Function, tuple[Node, ...]]:
    """Make a function of one node, with small constants inside."""
    params, inner, outer = [], [], []
    for index, arg in enumerate(args):
        array = const_array(arg)
        if array is not None and array.size <= INLINE_CONSTANTS:
            inner.append(arg)
            continue
        fresh = param(f"p{index}", arg.type)
        params.append(fresh)
        inner.append(fresh)
        outer.append(arg)
    body = node(old.op, inner, old.attrs, old.type)
    body.add_spans(old.spans)
    return Function(f"fused_{old.op.name}", tuple(params), body), tuple(outer)
