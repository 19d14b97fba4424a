"""IR values as JSON: a table of records in which every record refers only to earlier ones.

    {"schema": "dlc-ir", "version": 1, "root": 12, "records": [{"k": "var", "name": "n", …}, …]}

Sharing is kept, so a graph of n nodes makes about n records, and neither direction recurses over references.
Array data is in the record (base64), or in a list if one is given; the record then has its number.

Input is not trusted: unknown kinds and fields, forward references, wrong types, oversized vectors and deep
nesting raise `ArtifactError`. The kinds of each layer are `Kind` tables: `EXPR_KINDS` here, others in
`tir/json.py` and `graph/json.py`; `script.json` has them all.
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from dlc_core.diag import ArtifactError, DlcError, Span, UsageError
from dlc_core.ir import expr as ex
from dlc_core.ir.bounds import Bounds
from dlc_core.ir.buffer import Buffer
from dlc_core.ir.dtype import DType, dtype
from dlc_core.ir.module import IRModule
from dlc_core.ir.plan import Plan, named_plan
from dlc_core.ir.types import TensorType, TupleType

SCHEMA, VERSION = "dlc-ir", 1
MAX_NESTING = 32
MAX_LANES = 1 << 16
_PLAIN = ("str", "int", "dtype", "bounds", "spans", "array")
"""Kinds of fields that have no references to other values.  See `Field`."""


@dataclass(frozen=True)
class Field:
    """One entry of a record.

    `encoding`: "ref" is a reference to a value of `types`, "refs" a list of these, "opt" a reference or null;
    "str", "int" and "dtype" are values of these types; "bounds" are those of a dim, omitted if it has none;
    "literal" is any attribute value; "spans" is a list of spans; "array" is array data.
    """

    name: str
    encoding: str
    types: tuple[type, ...] = ()


@dataclass(frozen=True)
class Kind:
    """How values of one class are written and read. `build` gets the fields by name."""

    name: str
    type: type
    fields: tuple[Field, ...]
    build: Callable[..., Any]
    # Returns an object whose attributes are named like the fields, if the value's own are not.
    view: Callable[[Any], Any] = field(default=lambda value: value)


def _text(*names: str) -> tuple[Field, ...]:
    return tuple(Field(name, "str") for name in names)


EXPRS = (ex.Expr,)
_FIELD_OF_ROLE: Mapping[str, Callable[[str], Field]] = {
    "operand": lambda name: Field(name, "ref", EXPRS),
    "operands": lambda name: Field(name, "refs", EXPRS),
    "buffer": lambda name: Field(name, "ref", (Buffer,)),
    "dtype": lambda name: Field(name, "dtype"),
    "bounds": lambda name: Field(name, "bounds"),
    "text": lambda name: Field(name, "str"),
    "lanes": lambda name: Field(name, "int"),
    "literal": lambda name: Field(name, "literal"),
}
"""Makes the entry for a field of an expression, by the field's role."""


def _expr_kind(cls: type[ex.Expr]) -> Kind:
    """The kind of an expression class, derived from its fields."""

    def build(**given: Any) -> ex.Expr:
        for name, role in cls.parts:
            if name == "op":
                _check_operator(given[name], cls.operators)
            elif role == "lanes":
                _lanes(given[name])
            elif role == "literal":
                _number(given[name])
        made: ex.Expr = cls.make(*[given.get(name) for name, _ in cls.parts])
        return made

    return Kind(
        cls.__name__.lower(), cls, tuple(_FIELD_OF_ROLE[role](name) for name, role in cls.parts), build
    )


EXPR_KINDS = (
    *map(_expr_kind, ex.EXPRESSIONS),
    Kind(
        "buffer",
        Buffer,
        (
            *_text("name", "scope"),
            Field("dtype", "dtype"),
            Field("shape", "refs", EXPRS),
            Field("strides", "literal"),
            Field("offset", "ref", EXPRS),
            Field("align", "int"),
        ),
        lambda name, scope, dtype, shape, strides, offset, align: Buffer(
            name, shape, dtype, strides=_strides(strides), scope=scope, offset=offset, align=align
        ),
    ),
    Kind(
        "tensor_type",
        TensorType,
        (Field("shape", "literal"), Field("dtype", "dtype")),
        lambda shape, dtype: TensorType(_dims(shape), dtype),
    ),
    Kind(
        "plan",
        Plan,
        (*_text("name"), Field("values", "literal")),
        lambda name, values: named_plan(name, _mapping(values)),
        lambda plan: _PlanView(*plan.described()),
    ),
    Kind("tuple_type", TupleType, (Field("fields", "refs", (TensorType, TupleType)),), TupleType),
    Kind("ndarray", np.ndarray, (Field("data", "array"),), lambda data: data, lambda a: _Data(a)),
    Kind(
        "module",
        IRModule,
        (Field("functions", "literal"), Field("attrs", "literal"), *_text("entry")),
        lambda functions, attrs, entry: IRModule(_mapping(functions), _mapping(attrs), entry),
    ),
)


@dataclass(frozen=True, eq=False)
class _PlanView:
    name: str
    values: Mapping[str, Any]


@dataclass(frozen=True, eq=False)
class _Data:
    data: np.ndarray[Any, Any]


def encode(
    value: Any,
    kinds: Sequence[Kind],
    arrays: list[np.ndarray[Any, Any]] | None = None,
    known: Sequence[Any] = (),
) -> dict[str, Any]:
    """The JSON of a value. Array data is appended to `arrays` if given.

    `known` are values that the reader has; they get no records, and keep their identity.
    """
    writer = _Writer(kinds, arrays, known)
    root = writer.write(value)
    return {"schema": SCHEMA, "version": VERSION, "root": root, "records": writer.records}


class _Writer:
    def __init__(
        self, kinds: Sequence[Kind], arrays: list[np.ndarray[Any, Any]] | None, known: Sequence[Any]
    ) -> None:
        self.kinds = kinds
        self.by_type: dict[type, Kind] = {}
        self.arrays = arrays
        self.records: list[dict[str, Any]] = []
        self.first = len(known)
        self.number: dict[int, int] = {id(value): i for i, value in enumerate(known)}
        self.held: list[Any] = []

    def kind_of(self, value: Any) -> Kind | None:
        found = self.by_type.get(type(value))
        if found is None:
            found = next((k for k in self.kinds if isinstance(value, k.type)), None)
            if found is not None:
                self.by_type[type(value)] = found
        return found

    def write(self, root: Any) -> Any:
        """Write records for everything that the root refers to, then for the root. Returns the literal that
        refers to the root.
        """
        work = [(value, False) for value in self.references(root)]
        work.reverse()
        while work:
            value, expanded = work.pop()
            if id(value) in self.number:
                continue
            kind = self.kind_of(value)
            assert kind is not None
            if expanded:
                self.number[id(value)] = self.first + len(self.records)
                self.held.append(value)
                self.records.append(self.record(kind, value))
                continue
            work.append((value, True))
            view = kind.view(value)
            parts = [p for f in kind.fields for p in self.references(getattr(view, f.name), f.encoding)]
            work.extend((part, False) for part in reversed(parts) if id(part) not in self.number)
        return self.literal(root)

    def references(self, value: Any, encoding: str = "literal") -> Iterator[Any]:
        """The values in a field that have records of their own."""
        if encoding in _PLAIN or isinstance(value, (str, bytes, int, float)):
            return
        if isinstance(value, (tuple, list)):
            for item in value:
                yield from self.references(item)
        elif isinstance(value, Mapping):
            for item in value.values():
                yield from self.references(item)
        elif self.kind_of(value) is not None:
            yield value

    def record(self, kind: Kind, value: Any) -> dict[str, Any]:
        view = kind.view(value)
        given = [(f, getattr(view, f.name)) for f in kind.fields]
        return {
            "k": kind.name,
            **{f.name: self.entry(f, part) for f, part in given if f.encoding != "bounds" or part},
        }

    def entry(self, spec: Field, value: Any) -> Any:
        if spec.encoding == "ref":
            return self.number[id(value)]
        if spec.encoding == "opt":
            return None if value is None else self.number[id(value)]
        if spec.encoding == "refs":
            return [self.number[id(item)] for item in value]
        if spec.encoding == "dtype":
            return value.name
        if spec.encoding == "spans":
            return [[s.source, s.name, s.op, s.line, s.column] for s in value]
        if spec.encoding == "array":
            return self.array(value)
        if spec.encoding == "bounds":
            return [value.low, value.high]
        return self.literal(value) if spec.encoding == "literal" else value

    def array(self, value: np.ndarray[Any, Any]) -> dict[str, Any]:
        head = {"dtype": DType.of(value.dtype).name, "shape": list(value.shape)}
        if self.arrays is None:
            return {**head, "base64": base64.b64encode(value.tobytes()).decode()}
        self.arrays.append(value)
        return {**head, "at": len(self.arrays) - 1}

    def literal(self, value: Any) -> Any:
        if value is None or isinstance(value, (bool, int, str)):
            return value
        if isinstance(value, float):
            return ["f", value.hex()]
        if isinstance(value, bytes):
            return ["b", base64.b64encode(value).decode()]
        if isinstance(value, (tuple, list)):
            return ["t" if isinstance(value, tuple) else "l", [self.literal(item) for item in value]]
        if isinstance(value, DType):
            return ["d", value.name]
        if isinstance(value, Mapping):
            return ["m", [[self.literal(key), self.literal(item)] for key, item in value.items()]]
        if id(value) not in self.number:
            raise UsageError(f"{type(value).__name__} cannot be written as JSON")
        return ["r", self.number[id(value)]]


def decode(
    data: Any,
    kinds: Sequence[Kind],
    arrays: Sequence[np.ndarray[Any, Any]] = (),
    known: Sequence[Any] = (),
) -> Any:
    """Read what `encode` wrote with as many `known` values. Raises ArtifactError for other data."""
    reader = _Reader(kinds, arrays, known)
    try:
        return reader.read(data)
    except ArtifactError:
        raise
    except DlcError as error:
        raise ArtifactError(f"record {len(reader.values)} breaks the grammar: {error.what}") from error
    except (TypeError, ValueError, LookupError, AttributeError, ArithmeticError, AssertionError) as error:
        raise ArtifactError(f"record {len(reader.values)} is malformed: {error}") from error


class _Reader:
    def __init__(
        self, kinds: Sequence[Kind], arrays: Sequence[np.ndarray[Any, Any]], known: Sequence[Any]
    ) -> None:
        self.kinds = {kind.name: kind for kind in kinds}
        self.arrays = arrays
        self.values: list[Any] = list(known)

    def read(self, data: Any) -> Any:
        if not isinstance(data, dict) or data.get("schema") != SCHEMA:
            raise ArtifactError("this is no JSON of the IR", hint=f"it has no schema {SCHEMA!r}")
        if data.get("version") != VERSION:
            raise ArtifactError(
                f"JSON of version {data.get('version')!r}", hint=f"this version reads {VERSION}"
            )
        records = data.get("records")
        if not isinstance(records, list) or set(data) != {"schema", "version", "root", "records"}:
            raise ArtifactError("the JSON of the IR lacks its records or has unknown entries")
        for record in records:
            self.values.append(self.make(record))
        return self.literal(data["root"], 0)

    def make(self, record: Any) -> Any:
        kind = self.kinds.get(record["k"]) if isinstance(record, dict) and "k" in record else None
        if kind is None:
            raise ArtifactError(f"record {len(self.values)} is of an unknown kind")
        given = [f for f in kind.fields if f.encoding != "bounds" or f.name in record]
        if len(record) != len(given) + 1:
            raise ArtifactError(f"record {len(self.values)} ({kind.name}) has missing or unknown fields")
        return kind.build(**{f.name: self.entry(f, record[f.name]) for f in given})

    def reference(self, index: Any, types: tuple[type, ...]) -> Any:
        if type(index) is not int or not 0 <= index < len(self.values):
            raise ArtifactError(f"record {len(self.values)} refers to {index!r}, which is not before it")
        value = self.values[index]
        if types and not isinstance(value, types):
            names = " or ".join(t.__name__ for t in types)
            raise ArtifactError(
                f"record {len(self.values)} has a {type(value).__name__} where a {names} belongs"
            )
        return value

    def entry(self, spec: Field, value: Any) -> Any:
        if spec.encoding == "ref" or (spec.encoding == "opt" and value is not None):
            return self.reference(value, spec.types)
        if spec.encoding == "refs":
            return tuple(self.reference(item, spec.types) for item in _typed(value, list))
        if spec.encoding == "dtype":
            return _dtype(value)
        if spec.encoding == "spans":
            return tuple(_span(item) for item in _typed(value, list))
        if spec.encoding == "array":
            return self.array(_typed(value, dict))
        if spec.encoding == "bounds":
            return Bounds(*_typed(value, list))
        if spec.encoding == "literal":
            return self.literal(value, 0)
        return _typed(value, {"str": str, "int": int, "opt": type(None)}[spec.encoding])

    def array(self, value: dict[str, Any]) -> np.ndarray[Any, Any]:
        type_ = _dtype(value["dtype"])
        shape = tuple(_typed(n, int) for n in _typed(value["shape"], list))
        if "at" in value:
            at = _typed(value["at"], int)
            if not 0 <= at < len(self.arrays):
                raise ArtifactError(f"there is no array {at}")
            known: np.ndarray[Any, Any] = self.arrays[at]
            if known.shape != shape or DType.of(known.dtype) is not type_:
                raise ArtifactError(f"array {at} is not {type_}{list(shape)}")
            return known
        try:
            raw = base64.b64decode(_typed(value["base64"], str), validate=True)
        except binascii.Error as error:
            raise ArtifactError(f"array data is not base64: {error}") from error
        # NumPy checks that the number of bytes fits the shape.
        data: np.ndarray[Any, Any] = np.frombuffer(raw, np.uint8).view(type_.numpy).reshape(shape)
        return data

    def literal(self, value: Any, depth: int) -> Any:
        if value is None or isinstance(value, (bool, int, str)):
            return value
        if depth > MAX_NESTING:
            raise ArtifactError(f"attributes are nested more than {MAX_NESTING} deep")
        tag, body = _typed(value, list)
        if tag == "f":
            return float.fromhex(body)
        if tag == "b":
            return base64.b64decode(body, validate=True)
        if tag == "d":
            return _dtype(body)
        if tag == "r":
            return self.reference(body, ())
        if tag in ("t", "l"):
            items = [self.literal(item, depth + 1) for item in _typed(body, list)]
            return tuple(items) if tag == "t" else items
        if tag == "m":
            return {_name(key): self.literal(item, depth + 1) for key, item in _typed(body, list)}
        raise ArtifactError(f"unknown tag {tag!r} of an attribute")


def _typed(value: Any, kind: type) -> Any:
    if type(value) is not kind:
        raise ArtifactError(f"{type(value).__name__} where {kind.__name__} belongs")
    return value


def _dtype(name: Any) -> DType:
    found = dtype(_typed(name, str))
    _lanes(found.lanes)
    return found


def _lanes(lanes: int) -> int:
    if not 1 <= lanes <= MAX_LANES:
        raise ArtifactError(f"a vector of {lanes} lanes")
    return lanes


def _span(value: Any) -> Span:
    source, name, op, line, column = _typed(value, list)
    texts = [_typed(text, str) for text in (source, name, op)]
    return Span(texts[0], texts[1], texts[2], _typed(line, int), _typed(column, int))


def _name(value: Any) -> str | int:
    if not isinstance(value, (str, int)):
        raise ArtifactError(f"an attribute's name is a {type(value).__name__}")
    return value


def _number(value: Any) -> Any:
    if not isinstance(value, (bool, int, float)):
        raise ArtifactError(f"a literal of {type(value).__name__}")
    return value


def _check_operator(op: str, known: frozenset[str]) -> str:
    if op not in known:
        raise ArtifactError(f"unknown operator {op!r}")
    return op


def _dims(shape: Any) -> tuple[Any, ...]:
    if not isinstance(shape, tuple) or not all(type(d) is int or isinstance(d, ex.Expr) for d in shape):
        raise ArtifactError("a shape that is no tuple of dims")
    return shape


def _strides(value: Any) -> Any:
    return None if value is None else _dims(value)


def _mapping(value: Any) -> Mapping[str, Any]:
    if not isinstance(value, dict):
        raise ArtifactError("attributes that are no mapping")
    return value
