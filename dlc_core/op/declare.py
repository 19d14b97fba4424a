"""The declaration of an op, from which the compiler, the tests and the docs take everything about it.

    RELU = op(
        "relu", "max(x, 0); NaN stays NaN", ["x"], kind="elementwise",
        infer=same_type, reference=lambda x: np.maximum(x, 0),
        lower=elementwise(lambda x: maximum(x, 0)), samples=unary_samples(), dtypes=FLOATS + SIGNED,
    )
    relu = RELU.build          # relu(node) -> node

A primitive has `infer`, `reference` and, unless it runs on the host only, `lower`. A composite has `compose`,
its body over other ops, which defines inference, reference and expansion. A numerically delicate composite
also has an independent `reference`.

References get narrow floats as float32 and small integers as bytes. The reference of a `raw` op gets the
bits.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import field
from types import MappingProxyType
from typing import Any

import numpy as np

from dlc_core.diag import DlcError, TypeInferenceError, UsageError
from dlc_core.graph.node import Array, Function, Node, Op, freeze_attr, node
from dlc_core.ir.dtype import DType
from dlc_core.ir.expr import Expr, Var
from dlc_core.ir.plan import PLAN, Plan, without_plan
from dlc_core.ir.types import TensorType, Type
from dlc_core.support.record import record
from dlc_core.tir.stmt import PrimFunc

NDArray = np.ndarray[Any, Any]

KINDS = ("elementwise", "broadcast", "injective", "reduction", "contraction", "opaque")
"""How an op may be fused. An output element of an *elementwise* op reads the same element of inputs of the
same shape. In a *broadcast* op, inputs may have smaller rank or extent. In an *injective* op it reads any one
element of each input (transpose, slice, gather). A *reduction* reduces axes; a *contraction* sums products
(matmul, convolution). All others are *opaque*."""

FLOATS = ("float32", "float64", "float16", "bfloat16")
SIGNED = ("int8", "int16", "int32", "int64")
UNSIGNED = ("uint8", "uint16", "uint32", "uint64")
INTS = SIGNED + UNSIGNED
NUMBERS = FLOATS + INTS
ALL = (*NUMBERS, "bool")
NARROW = (
    "float8_e4m3fn", "float8_e4m3fnuz", "float8_e5m2", "float8_e5m2fnuz", "float8_e8m0fnu", "float4_e2m1fn",
    "int4", "uint4", "int2", "uint2",
)  # fmt: skip
"""Dtypes for storage only: tensors of them are moved and cast, but nothing is computed in them."""
STORED = (*ALL, *NARROW)
MOVED = (*STORED, "string")
"""Dtypes for data movement, including strings, on the host."""

REQUIRED = object()

FRESH = ("fresh", "freshes")
"""The kinds of attributes that are data-dependent dims."""


@record(frozen=True)
class Attr:
    """A typed attribute.

    `kind` is one of int, ints, float, floats, bool, str, strs, dtype, dim (int or symbolic expression), dims,
    array, function, foreign, program (a PrimFunc), fresh, freshes.  If the default is None, the attribute may
    be None.

    A *fresh* attribute is a new `Var`: a data-dependent dim of the result, bound when the op has run.
    *freshes* are several.  References do not get them.

    *foreign* is the name of a foreign function.  What an op with such an attribute computes depends on the
    functions that are installed, so it has no samples.
    """

    name: str
    kind: str
    default: Any = REQUIRED
    help: str = ""
    choices: tuple[Any, ...] = ()


@record(frozen=True)
class Tensor:
    """A sample's input: shape, and how its values are drawn.

    `values` is a tag that the kit turns into data: "normal", "positive", "unit" (in [-1, 1]), "index:N" (ints
    in [0, N)), "bool", "special" (±0, ±inf, nan, denormals among normal values), "distinct" (no two equal),
    or an array. `dtype` empty takes the sample's dtype.
    """

    shape: tuple[int, ...]
    values: Any = "normal"
    dtype: str = ""


@record(frozen=True)
class Sample:
    """A use of an op that must work, for every dtype in `dtypes` (the op's own where empty)."""

    inputs: tuple[Tensor, ...]
    attrs: Mapping[str, Any] = field(default_factory=dict)
    dtypes: tuple[str, ...] = ()
    note: str = ""


@record(frozen=True)
class ErrorSample:
    """A use of an op that must be refused at inference with a message containing `message`."""

    inputs: tuple[Tensor, ...]
    attrs: Mapping[str, Any]
    message: str
    dtype: str = "float32"


Infer = Callable[[Sequence[Type], Mapping[str, Any]], Type]
Reference = Callable[..., Any]
Lower = Callable[..., Any]


class OpDecl(Op):
    """An op: its signature, semantics and samples.  Make it with `op(...)`; call `build` to make nodes."""

    __slots__ = (
        "attrs",
        "compose",
        "doc",
        "dtypes",
        "error_samples",
        "fresh",
        "infer",
        "inputs",
        "kind",
        "lower",
        "pure",
        "raw",
        "reference",
        "samples",
        "tolerance",
    )

    def __init__(
        self,
        name: str,
        doc: str,
        inputs: Sequence[str],
        attrs: Sequence[Attr] = (),
        *,
        kind: str,
        infer: Infer | None = None,
        reference: Reference | None = None,
        lower: Lower | None = None,
        compose: Callable[..., Node] | None = None,
        samples: Sequence[Sample] = (),
        error_samples: Sequence[ErrorSample] = (),
        dtypes: Sequence[str] = FLOATS,
        tolerance: Mapping[str, float] | None = None,
        pure: bool = True,
        raw: bool = False,
    ) -> None:
        super().__init__(name)
        if kind not in KINDS:
            raise UsageError(f"op {name!r}: unknown kind {kind!r}", hint=f"one of {', '.join(KINDS)}")
        if compose is None and (infer is None or reference is None):
            raise UsageError(f"op {name!r} needs `infer` and `reference`, or `compose`")
        self.doc = doc
        self.inputs = tuple(inputs)
        self.attrs: Mapping[str, Attr] = MappingProxyType({a.name: a for a in attrs})
        self.fresh = frozenset(a.name for a in attrs if a.kind in FRESH)
        self.kind = kind
        self.infer = infer
        self.reference = reference
        self.lower = lower
        self.compose = compose
        self.samples = tuple(samples)
        self.error_samples = tuple(error_samples)
        self.dtypes = tuple(dtypes)
        self.tolerance: Mapping[str, float] = MappingProxyType(dict(tolerance or {}))
        self.pure = pure
        self.raw = raw

    @property
    def is_composite(self) -> bool:
        return self.compose is not None

    @property
    def calls_foreign(self) -> bool:
        """Whether it calls a foreign function, which an attribute names."""
        return bool(foreign_attrs(self))

    def build(self, *args: Node, **attrs: Any) -> Node:
        """Build a node of this op. Checks arguments and attributes, and infers the type.

        Optional inputs are declared with a trailing `?` and may be omitted from the right. A last input `*xs`
        takes any number of arguments. Every op has an attribute `plan`: how the node's kernel computes it
        (`ir/plan.py`), None for no plan. Raises TypeInferenceError with the current spans.
        """
        self.check_arity(len(args))
        plan = attrs.pop(PLAN, None)
        if plan is not None and not isinstance(plan, Plan):
            raise TypeInferenceError(f"{self.name}: the plan is a {type(plan).__name__}", hint="give a Plan")
        values = self.canonical_attrs(attrs)
        type_ = self.infer_type([a.type for a in args], values, args)
        return node(self, args, values if plan is None else {**values, PLAN: plan}, type_)

    def infer_type(self, types: Sequence[Type], attrs: Mapping[str, Any], args: Sequence[Node] = ()) -> Type:
        """The result type for `types` and canonical attributes."""
        attrs = without_plan(attrs)
        try:
            if self.infer is not None:
                return self.infer(types, attrs)
            assert self.compose is not None
            return self.expand(args, attrs).type
        except DlcError as error:
            if isinstance(error, TypeInferenceError) and error.what.startswith(f"{self.name}:"):
                raise
            shown = ", ".join(map(str, types))
            raise TypeInferenceError(
                f"{self.name}: {error.what}", spans=error.spans, why=error.why, hint=error.hint,
                details=(*error.details, f"inputs: {shown}", f"attributes: {_shown(attrs)}"),
            ) from error  # fmt: skip

    def expand(self, args: Sequence[Node], attrs: Mapping[str, Any]) -> Node:
        """The body of the composite over `args`."""
        assert self.compose is not None
        return self.compose(*args, **without_plan(attrs))

    def canonical_attrs(self, given: Mapping[str, Any]) -> dict[str, Any]:
        """Check and coerce attributes, and fill in defaults."""
        unknown = [name for name in given if name not in self.attrs]
        if unknown:
            known = ", ".join(self.attrs) or "none"
            raise TypeInferenceError(f"{self.name}: unknown attribute {unknown[0]!r}", hint=f"known: {known}")
        values = {}
        for attr in self.attrs.values():
            value = given.get(attr.name, attr.default)
            if value is REQUIRED:
                raise TypeInferenceError(f"{self.name}: attribute {attr.name!r} is missing")
            values[attr.name] = _coerce(self.name, attr, value)
        return values

    def check_arity(self, count: int) -> None:
        """Raise TypeInferenceError if the op does not take this number of arguments."""
        variadic = bool(self.inputs) and self.inputs[-1].startswith("*")
        required = sum(1 for name in self.inputs if name[0] != "*" and name[-1] != "?")
        if count < required or (not variadic and count > len(self.inputs)):
            raise TypeInferenceError(
                f"{self.name}: {count} inputs given", hint=f"it takes ({', '.join(self.inputs)})"
            )


def _shown(attrs: Mapping[str, Any]) -> dict[str, Any]:
    """Attributes for an error message: functions and programs by their names."""
    return {k: v.name if isinstance(v, (Function, PrimFunc)) else v for k, v in attrs.items()}


def plan_of(value: Node) -> Plan | None:
    """The plan of a node: how its kernel computes it. None if no pass has chosen one."""
    found: Plan | None = value.attrs.get(PLAN)
    return found


def lowering_of(value: Node) -> Lower | None:
    """The lowering of a node: that of its plan, else of its op, or None. It does not get the attribute
    `plan`.
    """
    plan = plan_of(value)
    if plan is not None:
        return plan.lower
    return value.op.lower if isinstance(value.op, OpDecl) else None


def foreign_attrs(decl: Op) -> list[str]:
    """The attributes of an op that name foreign functions."""
    attrs = decl.attrs.values() if isinstance(decl, OpDecl) else ()
    return [attr.name for attr in attrs if attr.kind == "foreign"]


def fresh_dims(value: Node) -> list[Var]:
    """The data-dependent dims that a node defines."""
    if not isinstance(value.op, OpDecl):
        return []
    given = (value.attrs[name] for name in sorted(value.op.fresh))
    return [var for item in given for var in (item if isinstance(item, tuple) else (item,))]


def op(name: str, doc: str, inputs: Sequence[str], attrs: Sequence[Attr] = (), **fields: Any) -> OpDecl:
    """Declare an op; see `OpDecl`."""
    return OpDecl(name, doc, inputs, attrs, **fields)


_CHECKS: Mapping[str, Callable[[Any], bool]] = {
    "int": lambda v: isinstance(v, int) and not isinstance(v, bool),
    "ints": lambda v: isinstance(v, tuple) and all(type(i) is int for i in v),
    "float": lambda v: isinstance(v, (int, float)) and not isinstance(v, bool),
    "floats": lambda v: isinstance(v, tuple) and all(isinstance(i, (int, float)) for i in v),
    "bool": lambda v: isinstance(v, (bool, int)),
    "str": lambda v: isinstance(v, str),
    "strs": lambda v: isinstance(v, tuple) and all(isinstance(i, str) for i in v),
    "fresh": lambda v: isinstance(v, Var),
    "freshes": lambda v: isinstance(v, tuple) and all(isinstance(i, Var) for i in v),
    "dtype": lambda v: isinstance(v, (str, DType)),
    "dim": lambda v: type(v) is int or isinstance(v, Expr),
    "dims": lambda v: isinstance(v, tuple) and all(type(i) is int or isinstance(i, Expr) for i in v),
    "array": lambda v: isinstance(v, Array),
    "function": lambda v: isinstance(v, Function),
    "program": lambda v: isinstance(v, PrimFunc),
    "foreign": lambda v: isinstance(v, str),
}
"""Whether a value is of a kind of attributes."""


def _coerce(op_name: str, attr: Attr, value: Any) -> Any:
    if value is None and attr.default is None:
        return None
    frozen = freeze_attr(value)
    if not _CHECKS[attr.kind](frozen):
        raise TypeInferenceError(f"{op_name}: attribute {attr.name!r} must be {attr.kind}, not {value!r}")
    if attr.choices and frozen not in attr.choices:
        raise TypeInferenceError(
            f"{op_name}: attribute {attr.name!r} is {value!r}",
            hint=f"one of {', '.join(map(repr, attr.choices))}",
        )
    if attr.kind == "float":
        return float(frozen)
    if attr.kind == "floats":
        return tuple(float(v) for v in frozen)
    if attr.kind == "bool":
        return bool(frozen)
    return DType.of(frozen) if attr.kind == "dtype" else frozen


def tensor_types(types: Iterable[Type]) -> tuple[TensorType, ...]:
    """The types as tensor types. Raises an error if one is not."""
    result = []
    for index, type_ in enumerate(types):
        if not isinstance(type_, TensorType):
            raise TypeInferenceError(f"input {index} is a tuple, a tensor is needed")
        result.append(type_)
    return tuple(result)
