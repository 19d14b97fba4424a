"""Access patterns: the axes of a block, and how the elements that it reads depend on them.

    access = Access.of(block)
    access.operands[0].uses(axis)        whether its elements differ along an axis
    access.operands[0].step(axis)        elements between neighbours along the axis; None if not constant
    access.has_reuse                     whether an operand is read again along a spatial axis

An operand that does not use a spatial axis is the same for all iterations of that axis, so that a register
tile loads it once.
"""

from __future__ import annotations

from collections.abc import Mapping

from dlc_core.ir.expr import Expr, Load, Var, const_value, free_vars, post_order
from dlc_core.ir.expr import load as element
from dlc_core.schedule.rules.analysis import coefficients, extent_of, points_of
from dlc_core.support.record import record
from dlc_core.tir.stmt import Block, IterVar, PrimFunc, Store


@record(frozen=True)
class Operand:
    """A buffer that a block reads, at one index. `factors` are None if the offset is not affine."""

    load: Load
    factors: Mapping[Var, Expr] | None

    @property
    def name(self) -> str:
        return self.load.buffer.name

    def uses(self, axis: IterVar) -> bool:
        if self.factors is None:
            return axis.var in free_vars(*self.load.indices)
        return const_value(self.factors[axis.var]) != 0

    def step(self, axis: IterVar) -> int | None:
        """Elements between neighbours along an axis; None if they are not known."""
        found = None if self.factors is None else const_value(self.factors[axis.var])
        return None if found is None else int(found)


@record(frozen=True)
class Access:
    """The access pattern of a block with one store."""

    block: Block
    spatial: tuple[IterVar, ...]
    reduced: tuple[IterVar, ...]
    operands: tuple[Operand, ...]
    """The loads, without that of the accumulator."""
    result: Operand

    @classmethod
    def of(cls, block: Block) -> Access | None:
        """The pattern of a block; None if its body is not one store."""
        body = block.body
        if not isinstance(body, Store):
            return None
        axes = [axis.var for axis in block.axes]
        loads = dict.fromkeys(e for e in post_order(body.value) if isinstance(e, Load))

        def operand(load: Expr) -> Operand:
            assert isinstance(load, Load)
            return Operand(load, coefficients(load.buffer, load.indices, axes))

        result = element(body.buffer, body.indices)
        assert isinstance(result, Load)
        return cls(
            block,
            tuple(a for a in block.axes if a.kind != "reduce"),
            tuple(a for a in block.axes if a.kind == "reduce"),
            tuple(operand(load) for load in loads if load.buffer is not body.buffer),
            operand(result),
        )

    @property
    def is_reduction(self) -> bool:
        return self.block.init is not None

    @property
    def has_plain_result(self) -> bool:
        """Whether each dim of the result is one spatial axis or constant, so that axes are dims."""
        indices = self.result.load.indices
        axes = [e for e in indices if const_value(e) is None]
        return all(isinstance(e, Var) for e in axes) and len({*axes}) == len(axes) == len(self.own_dims)

    @property
    def own_dims(self) -> list[int]:
        """The dims of the result that are axes of the block."""
        axes = {a.var for a in self.spatial}
        return [i for i, e in enumerate(self.result.load.indices) if e in axes]

    def dim_of(self, axis: IterVar) -> int | None:
        """The dim of the result that is a spatial axis."""
        return next((i for i, e in enumerate(self.result.load.indices) if e is axis.var), None)

    @property
    def tileable(self) -> tuple[IterVar, ...]:
        """The spatial axes of a known extent of at least two, which a register tile may contain."""
        return tuple(a for a in self.spatial if (extent_of(a) or 0) > 1 and self.dim_of(a) is not None)

    @property
    def has_reuse(self) -> bool:
        """Whether an operand does not depend on some tileable axis."""
        return any(not o.uses(a) for a in self.tileable for o in self.operands)

    @property
    def work(self) -> int | None:
        """The iterations; None if they are symbolic."""
        return points_of(self.block.axes)


def is_constant(func: PrimFunc, operand: Operand, access: Access) -> bool:
    """Whether an operand is a constant of the model, indexed by plain axes and zeros: it can be packed."""
    buffer, axes = operand.load.buffer, {a.var for a in access.block.axes}
    if buffer not in func.params or func.params.index(buffer) not in func.attrs.get("constants", ()):
        return False
    return all(index in axes or const_value(index) == 0 for index in operand.load.indices)


def short_name(axis: IterVar) -> str:
    """The name of an axis in questions."""
    return axis.var.name.removeprefix("v_")


__all__ = ["Access", "Operand", "is_constant", "short_name"]
