"""fuse: group nodes into kernels.

Law: the function computes the same values; every node that is not structural, a bare reshape or an op without
lowering is inside exactly one `call` of a closed function, which becomes one PrimFunc.

    y = relu(add(conv(x, w), b))     =>     y = call(x, w, b){fused_conv_add_relu}

Constants of one element become part of the function. Larger constants are arguments, so that kernels can
share them; a constant is repacked if the kernel's schedule requires it. Scales and zero points are always
arguments. They differ from layer to layer, and layers should share kernels.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from dlc_core.cancel import checkpoint
from dlc_core.decisions import Decision
from dlc_core.diag import Span
from dlc_core.graph.node import (
    CONST,
    PARAM,
    Function,
    Node,
    call_function,
    node,
    param,
    post_order,
    spanned,
)
from dlc_core.ir.types import TensorType
from dlc_core.op.std.programs import CALL_TIR
from dlc_core.passes.base import GraphPass, PassContext
from dlc_core.passes.graph.grouping import Group, NotFused, group_nodes, why_not
from dlc_core.passes.graph.node_kinds import kind_of
from dlc_core.passes.heuristics import FUSION
from dlc_core.support.record import record

NAME_LENGTH = 64
"""The most characters of the name of a kernel."""
MAX_OPS = Decision(
    "fuse.max_ops",
    "The most operations of a kernel.",
    ("default", "few", "one"),
    has_values=True,
)
DATA_MOVEMENT = Decision(
    "fuse.data_movement",
    "Whether contractions read operands through preceding data movement, or copies are written.",
    ("copied", "read_through"),
)
SCALED = frozenset({"quantize", "dequantize", "requantize", "requantize_fixed"})
"""Ops whose arguments after the first are scales and zero points."""


@record(frozen=True)
class Fuse(GraphPass):
    """Group nodes into kernels of at most `max_ops` operations (None: the heuristic `fusion.max_ops`).

    With `data_movement`, contractions read operands through preceding transposes, slices and reshapes.
    """

    name: ClassVar[str] = "fuse"
    max_ops: int | None = None
    data_movement: bool = False

    def run_function(self, function: Function, context: PassContext) -> Function:
        forced = FUSION.forced_ops
        most = FUSION.max_ops if self.max_ops is None else self.max_ops
        limit = MAX_OPS.pick(
            most if context.opt_level > 0 else 1,
            lambda: [most, *forced, 1],
            lambda ops: "one" if ops == 1 else "few" if ops in forced else "default",
            where=function.name,
        )
        reasons = {
            "read_through": "a contraction reads its operands many times, and a copy in the best order",
            "copied": "the target's contractions read operands in any order",
        }
        preferred = "read_through" if self.data_movement else "copied"
        chosen = DATA_MOVEMENT.choose(preferred, where=function.name, refused=reasons.__getitem__)
        return _with_kernels(function, limit, chosen == "read_through")

    def why_not(self, function: Function) -> tuple[NotFused, ...]:
        """Return the reason for each producer and consumer that this pass leaves in different kernels."""
        return why_not(function, self.max_ops, self.data_movement)


def _with_kernels(function: Function, max_ops: int, data_movement: bool) -> Function:
    grouping = group_nodes(function, max_ops, data_movement)
    groups = grouping.groups
    names = _Names()
    built: dict[Node, Node] = {}
    position = {n: i for i, n in enumerate(grouping.order)}
    for current in grouping.order:
        group = groups.get(current)
        if group is None:
            args = tuple(built[arg] for arg in current.args)
            if args == current.args:
                built[current] = current
            else:
                with spanned(current.spans):
                    built[current] = node(current.op, args, current.attrs, current.type)
        elif group.root is current:
            members = sorted(group.members, key=position.__getitem__)
            built[current] = _call(group, members, built, names)
    return function.with_body(built[function.body])


def _is_literal(value: Node) -> bool:
    return value.op is CONST and isinstance(value.type, TensorType) and value.attrs["value"].data.size == 1


def _call(group: Group, members: Sequence[Node], built: dict[Node, Node], names: _Names) -> Node:
    inner: dict[Node, Node] = {}
    params: list[Node] = []
    args: list[Node] = []
    spans: dict[Span, None] = {}
    for member in members:
        checkpoint()
        for index, arg in enumerate(member.args):
            if arg in inner:
                continue
            if _is_literal(arg) and not (index > 0 and member.op.name in SCALED):
                inner[arg] = arg
                continue
            fresh = param(_param_name(arg, len(params)), arg.type)
            inner[arg] = fresh
            params.append(fresh)
            args.append(built[arg])
        spans.update(dict.fromkeys(member.spans))
        with spanned(member.spans):
            inner[member] = node(member.op, [inner[arg] for arg in member.args], member.attrs, member.type)
    label = next((span.name for span in reversed(spans) if span.name), "")
    attrs = {"kind": kind_of(group.anchor or group.root), "label": label}
    function = Function(names.of(members), tuple(params), inner[group.root]).with_attrs(**attrs)
    with spanned(spans):
        return call_function(function, args)


def _param_name(value: Node, index: int) -> str:
    return str(value.attrs["name"]) if value.op is PARAM else f"{'w' if value.op is CONST else 'x'}{index}"


def _label(member: Node) -> str:
    """The name of an operation in a kernel's name: that of the op, or of the called program."""
    return str(member.attrs["program"].name) if member.op is CALL_TIR else member.op.name


class _Names:
    """Names of kernels by their operations, made unique within a function by a number."""

    def __init__(self) -> None:
        self.used: dict[str, int] = {}

    def of(self, members: Sequence[Node]) -> str:
        name = "fused_" + "_".join(map(_label, members))
        if len(name) > NAME_LENGTH:
            name = f"{name[: NAME_LENGTH - 8].rsplit('_', 1)[0]}_and_more"
        number = self.used[name] = self.used.get(name, 0) + 1
        return name if number == 1 else f"{name}_{number}"


def kernels_of(function: Function) -> list[Function]:
    """Return the fused functions that a function calls, in order of execution."""
    return [n.attrs["function"] for n in post_order(function.body) if n.op.name == "call"]
