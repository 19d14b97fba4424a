"""Plans: frozen values that describe how the kernel of a node computes it.

    @dataclass(frozen=True)
    class Rows(Plan):
        '''Loops over blocks of rows.'''

        name: ClassVar[str] = "rows"
        rows: int

        def lower(self, type_, attrs, x):
            ...

    RELU.build(x, plan=Rows(4))

A graph pass chooses a plan for a node. The node keeps it as its attribute `plan`. Lowering copies it to the
attributes of the PrimFunc, where a schedule rule finds it by its class. A plan prints, parses and compares
like any other attribute: nodes with different plans are different kernels.

A plan does not change results. Inference, reference and expansion do not see it, and a pass may discard it. A
plugin returns its classes of plans from the hook `dlc_plans`. If no plugin declares the class of a plan that
is read from text or JSON, the plan is an `UnknownPlan`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields
from typing import Any, ClassVar

from dlc_core.diag import UnsupportedError, UsageError
from dlc_core.ir.plan_classes import plan_classes
from dlc_core.ir.structural import Structure, Structured
from dlc_core.support.record import record

PLAN = "plan"
"""The attribute of nodes and of PrimFuncs."""
Value = int | bool | str


@record(frozen=True)
class Plan(Structured):
    """The base class. Subclasses are frozen dataclasses of ints, bools and texts.

    Raises UsageError if a field's value is not of the annotated type.
    """

    name: ClassVar[str] = ""
    fuses_data_movement: ClassVar[bool] = False
    """Whether transposes, slices and the like of a contraction's operands, and a transpose of its result, may
    be fused into the kernel at no cost: the kernel packs operands that it reads often.
    """

    def __post_init__(self) -> None:
        for each in fields(self):
            value = getattr(self, each.name)
            expected = getattr(each.type, "__name__", each.type)
            if type(value).__name__ != expected:
                raise UsageError(
                    f"the plan {self.name!r}: {each.name} is {value!r}", hint=f"its type is {expected}"
                )

    def described(self) -> tuple[str, Mapping[str, Value]]:
        """The plan as a name and fields."""
        return self.name, {each.name: getattr(self, each.name) for each in fields(self)}

    def lower(self, type_: Any, attrs: Mapping[str, Any], *tensors: Any) -> Any:
        """The tensor program of a node with this plan. It replaces the lowering of the op (see
        `op/lower.py`).
        """
        raise NotImplementedError(f"{type(self).__name__}.lower")

    def structure(self) -> Structure:
        name, values = self.described()
        return Structure(f"plan {name}", [(f".{field}", value) for field, value in values.items()])


@record(frozen=True)
class UnknownPlan(Plan):
    """A plan whose class no plugin declares. It can be printed and compared, but not lowered."""

    kind: str
    given: tuple[tuple[str, Value], ...]

    def __post_init__(self) -> None:
        for field, value in self.given:
            if type(value) not in (int, bool, str):
                raise UsageError(
                    f"the plan {self.kind!r}: {field} is a {type(value).__name__}",
                    hint="a plan has ints, bools and texts",
                )

    def described(self) -> tuple[str, Mapping[str, Value]]:
        return self.kind, dict(self.given)

    def lower(self, type_: Any, attrs: Mapping[str, Any], *tensors: Any) -> Any:
        raise UnsupportedError(
            f"no plugin gives the plan {self.kind!r}", hint="`dlc plugins -v` lists what each gives"
        )


def named_plan(name: str, values: Mapping[str, Any]) -> Plan:
    """The plan with this name and these fields; the inverse of `described`.

    Raises UsageError for fields that the class does not have.
    """
    found = plan_classes().get(name)
    if found is None:
        return UnknownPlan(name, tuple(values.items()))
    known = [each.name for each in fields(found)]
    if sorted(values) != sorted(known):
        raise UsageError(
            f"the plan {name!r} with {', '.join(values) or 'no fields'}", hint=f"give {', '.join(known)}"
        )
    made: Plan = found(**values)
    return made


def without_plan(attrs: Mapping[str, Any]) -> Mapping[str, Any]:
    """The attributes without the plan: those that define the computation."""
    return {name: value for name, value in attrs.items() if name != PLAN} if PLAN in attrs else attrs


__all__ = ["PLAN", "Plan", "UnknownPlan", "named_plan", "without_plan"]
