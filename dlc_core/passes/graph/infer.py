"""infer: infer all types again and compare.

Law: nothing changes if the recorded types are right. If inference now knows more (a symbolic dim has become a
number), the new type is recorded. If it contradicts the recorded type, VerifyError names the node. The
conditions on the entry's symbolic dims under which its types are right become its attribute `conditions`.
Functions whose dims a call does not determine, or that may not run, get this attribute too. It is recorded
here because later passes may remove the nodes from which the conditions come.

    relu(x: float32[2, 3]): float32[n, 3]      =>      float32[2, 3]
"""

from __future__ import annotations

from typing import ClassVar

from dlc_core.diag import VerifyError
from dlc_core.graph.node import CALL, CONST, GET, TUPLE, Function, Node, node, post_order, rewrite
from dlc_core.ir.expr import free_vars
from dlc_core.ir.module import IRModule
from dlc_core.ir.types import Dim, TensorType, TupleType, Type
from dlc_core.op.declare import OpDecl, fresh_dims
from dlc_core.op.std.control import IF
from dlc_core.passes.base import GraphPass, PassContext
from dlc_core.passes.graph.dim_conditions import CONDITIONS, dim_conditions
from dlc_core.support.record import record


@record(frozen=True)
class Infer(GraphPass):
    """Infer all types again and compare."""

    name: ClassVar[str] = "infer"
    checks_model: ClassVar[bool] = True

    def run(self, module: IRModule, context: PassContext) -> IRModule:
        return _with_entry_conditions(super().run(module, context))

    def run_function(self, function: Function, context: PassContext) -> Function:
        body = rewrite(function.body, _with_inferred_type)
        return function if body is function.body else function.with_body(body)


@record(frozen=True)
class NoteConditions(GraphPass):
    """For a graph that runs directly: record the conditions on its dims, and change nothing else."""

    name: ClassVar[str] = "note_conditions"
    stage: ClassVar[str] = "interface"

    def run(self, module: IRModule, context: PassContext) -> IRModule:
        return _with_entry_conditions(super().run(module, context))

    def run_function(self, function: Function, context: PassContext) -> Function:
        body = rewrite(function.body, _with_conditions)
        return function if body is function.body else function.with_body(body)


def _with_entry_conditions(module: IRModule) -> IRModule:
    """Set the attribute `conditions` of the entry to the conditions on its dims, if there are any."""
    entry = module.functions.get(module.entry)
    found = dim_conditions(entry) if isinstance(entry, Function) else ()
    if not isinstance(entry, Function) or found == entry.attrs.get(CONDITIONS, ()):
        return module
    return module.with_functions({module.entry: entry.with_attrs(**{CONDITIONS: found})})


def _with_conditions(old: Node, args: tuple[Node, ...]) -> Node | None:
    functions = _with_body_conditions(old)
    return node(old.op, args, {**old.attrs, **functions}, old.type) if functions else None


def _with_inferred_type(old: Node, args: tuple[Node, ...]) -> Node | None:
    found = _inferred(old, args)
    type_ = old.type if found is None else merge_types(old.type, found, old)
    functions = _with_body_conditions(old)
    if type_ == old.type and not functions:
        return None
    return node(old.op, args, {**old.attrs, **functions}, type_)


def _with_body_conditions(value: Node) -> dict[str, Function]:
    """Return the functions of a node with the conditions on their own dims.

    Branches, and loops whose state changes its shape, get all conditions. Other loops get those on
    data-dependent dims.
    """
    needs_all = value.op is IF or bool(value.attrs.get("sizes"))
    found = {}
    for name, attr in value.attrs.items():
        if not isinstance(attr, Function):
            continue
        data_dims = {var for n in post_order(attr.body) for var in fresh_dims(n)}
        conditions = dim_conditions(attr) if needs_all or data_dims else ()
        if not needs_all:
            conditions = tuple(c for c in conditions if not data_dims.isdisjoint(free_vars(c[1], c[2])))
        if conditions and conditions != attr.attrs.get(CONDITIONS):
            found[name] = attr.with_attrs(**{CONDITIONS: conditions})
    return found


def _inferred(old: Node, args: tuple[Node, ...]) -> Type | None:
    """Return the required type of a node; None if any type is right."""
    if isinstance(old.op, OpDecl):
        return old.op.infer_type([a.type for a in args], old.attrs, args)
    if old.op is CONST:
        constant_type: Type = old.attrs["value"].type
        return constant_type
    if old.op is TUPLE:
        return TupleType(tuple(a.type for a in args))
    if old.op is GET:
        fields, index = args[0].type, old.attrs["index"]
        if not isinstance(fields, TupleType) or not 0 <= index < len(fields.fields):
            raise VerifyError(f"no field {index} in a value of type {fields}", spans=old.spans)
        field: Type = fields.fields[index]
        return field
    if old.op is CALL:
        body: Type = old.attrs["function"].body.type
        return body
    return None


def merge_types(recorded: Type, inferred: Type, where: Node) -> Type:
    """Merge a recorded type with a more specific inferred type. Raises VerifyError for a contradiction."""
    if recorded == inferred:
        return recorded
    if isinstance(recorded, TupleType) and isinstance(inferred, TupleType):
        if len(recorded.fields) == len(inferred.fields):
            pairs = zip(recorded.fields, inferred.fields, strict=True)
            return TupleType(tuple(merge_types(a, b, where) for a, b in pairs))
    elif isinstance(recorded, TensorType) and isinstance(inferred, TensorType):
        same_form = recorded.dtype is inferred.dtype and recorded.ndim == inferred.ndim
        pairs_of_dims = list(zip(recorded.shape, inferred.shape))
        if same_form and not any(_contradict(a, b) for a, b in pairs_of_dims):
            return TensorType(tuple(b if isinstance(b, int) else a for a, b in pairs_of_dims), recorded.dtype)
    raise VerifyError(
        f"{where.op.name} is recorded as {recorded}, but is {inferred}",
        spans=where.spans,
        details=[f"inputs: {', '.join(str(a.type) for a in where.args)}", f"attributes: {dict(where.attrs)}"],
    )


def _contradict(a: Dim, b: Dim) -> bool:
    return isinstance(a, int) and isinstance(b, int) and a != b
