"""attention: recognise attention that a model writes as single operations, and choose a plan for its kernel.

Law: results stay within tolerance.

    matmul(softmax(matmul(q, k, transpose_b=True) * scale + mask), v)
    =>
    attention(q, k, v, mask, scale=scale, plan=G.plan("attention.tiled", rows=6, panel=16))

Attention without a plan becomes its body, GEMMs and a softmax.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import ClassVar

from dlc_core.algorithms.attention.choice import Sizes, dots_for, online_for, tiled_for, two_pass_for
from dlc_core.algorithms.attention.matcher import RULES
from dlc_core.algorithms.attention.plan import AttentionPlan
from dlc_core.graph.node import Function, Node, node, post_order, rewrite
from dlc_core.ir.dtype import DType
from dlc_core.ir.plan import PLAN
from dlc_core.ir.types import Dim, tensor_type
from dlc_core.op.std import BY_NAME as OPS
from dlc_core.passes.base import GraphPass, PassContext
from dlc_core.passes.graph.mixed_precision import narrow_dtype
from dlc_core.support.record import record
from dlc_core.target.description import Description

MATMUL, ATTENTION, WHERE, CAST = (OPS[name] for name in ("matmul", "attention", "where", "cast"))
RESHAPE, TRANSPOSE = OPS["reshape"], OPS["transpose"]


@record(frozen=True)
class Attention(GraphPass):
    """Recognise attention, and choose its plan for the machine's vectors or its groups of threads.

    On a machine with thread axes, attention is expanded to its body if shared memory has no room for a tile
    or there are few queries. Schedule rules then treat its GEMMs.
    """

    name: ClassVar[str] = "attention"
    min_level: ClassVar[int] = 2
    exact: ClassVar[bool] = False

    def run_function(self, function: Function, context: PassContext) -> Function:
        if context.target is None:
            return function
        machine, narrow = context.target.describe(), narrow_dtype(context)
        if not _has_both(machine):
            function = _recognize(function, context)
        return _rewrite(function, lambda old, new: _with_best_plan(new, machine, narrow))


def _has_both(machine: Description) -> bool:
    """Whether a machine has thread axes and vectors; no rule supports both together."""
    return bool(machine.thread_axes) and machine.lanes(32) > 1


def _rewrite(function: Function, visit: Callable[[Node, Node], Node | None]) -> Function:
    def rewrite_node(old: Node, args: tuple[Node, ...]) -> Node | None:
        if old.op is not ATTENTION and old.op is not MATMUL:
            return None
        return visit(old, old if args == old.args else node(old.op, args, old.attrs, old.type))

    body = rewrite(function.body, rewrite_node)
    return function if body is function.body else function.with_body(body)


def _recognize(function: Function, context: PassContext) -> Function:
    """Replace operations that compute only an attention by the attention op."""
    used = Counter(arg for n in post_order(function.body) for arg in dict.fromkeys(n.args))
    used.update(function.results)
    rules = [rule for rule in RULES if not context.leaves_out(rule.name)]

    def visit(old: Node, new: Node) -> Node | None:
        if old.op is not MATMUL:
            return None
        weights = old.args[0]
        chain = [weights, weights.args[-1], *weights.args[-1].args[:1]] if weights.args else [weights]
        if any(used[part] > 1 for part in chain[: 3 if weights.op is WHERE else 2]):
            return None
        for rule in rules:
            found = rule.apply(new)
            if found is not None:
                counts = context.config.get("rule_counts")
                if isinstance(counts, Counter):
                    counts[rule.name] += 1
                return found
        return None

    return _rewrite(function, visit)


def _with_best_plan(value: Node, machine: Description, narrow: DType) -> Node | None:
    """Attention with the best plan for a machine, or its expanded body; None for other nodes."""
    if value.op is not ATTENTION:
        return None
    if machine.thread_axes:
        return _of_groups(value, machine, narrow)
    if value.dtype.bits > 32:  # the rule supports only vectors of float32
        return _with_plan(value, None)
    rows, features = map(_static, value.shape[-2:])
    plan = tiled_for(rows, features, machine, [arg.shape for arg in value.args])
    keys, size = map(_static, value.args[1].shape[-2:])
    if plan is not None and features is not None and size is not None and narrow.bits < value.dtype.bits:
        plan = dots_for(plan, Sizes(rows, keys, size, features), narrow.name, machine)
    return _with_plan(value, plan)


def _of_groups(value: Node, machine: Description, narrow: DType) -> Node:
    """Attention for groups of threads.

    Float32 operands become `narrow` if the machine has matrix units for that dtype.  An added mask prevents
    this, because it may be below the range of the dtype.
    """
    queries, features = map(_static, value.shape[-2:])
    keys, size = map(_static, value.args[1].shape[-2:])
    if features is None or size is None or value.dtype.bits > 32 or _has_both(machine):
        return _with_plan(value, None)
    sizes = Sizes(queries, keys, size, features)
    added = any(not mask.dtype.is_bool for mask in value.args[3:])
    of = narrow if value.dtype.bits == 32 and not added else value.dtype
    plan = online_for(of.name, sizes, machine)
    if plan is None:
        return _with_plan(value, two_pass_for(sizes, machine))
    made = _with_plan(_narrowed(value, of), plan)
    return made if made.dtype is value.dtype else CAST.build(made, to=value.dtype)


def _static(size: Dim) -> int | None:
    return size if isinstance(size, int) else None


def _with_plan(value: Node, plan: AttentionPlan | None) -> Node:
    """Attention with a plan; without one, its expanded body."""
    if plan is None:
        return ATTENTION.expand(value.args, value.attrs)
    return ATTENTION.build(*value.args, **{**value.attrs, PLAN: plan})


def _narrowed(value: Node, to: DType) -> Node:
    """Cast the operands of attention, masks of bools excepted."""
    if value.dtype is to:
        return value

    def cast(arg: Node) -> Node:
        # A cast after a reshape or transposition would be a separate kernel; before it, the cast is fused.
        if arg.op is RESHAPE or arg.op is TRANSPOSE:
            return node(arg.op, (cast(arg.args[0]),), arg.attrs, tensor_type(arg.shape, to))
        return CAST.build(arg, to=to)

    args = [arg if arg.dtype.is_bool else cast(arg) for arg in value.args]
    return ATTENTION.build(*args, **value.attrs)


__all__ = ["Attention"]
