"""Conversion of protobuf messages to the plain data of `definitions`, with a check of every field.

Checks that need a whole graph (order, undefined names, recursion) are in `check`. Nesting is limited, so the
recursion of this module is bounded.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import onnx

from dlc_frontend_onnx.dtypes import BY_NUMBER
from dlc_frontend_onnx.external import Folder
from dlc_frontend_onnx.location import Location, quoted, shorten
from dlc_frontend_onnx.model import (
    AttrRef,
    AttrValue,
    FunctionDef,
    Graph,
    Model,
    NodeDef,
    Scalar,
    Shape,
    ValueInfo,
    ValueType,
)
from dlc_frontend_onnx.tensors import SparseTensor, Tensor, make_sparse, make_tensor
from dlc_frontend_onnx.wire import Cuts

MAX_DEPTH = 64
"""Limit of the nesting of graphs and of types."""

NO_NAMES = ("", "_", "?", "-1", "None")
"""Placeholder names of dims. Two dims with equal placeholders are different."""

# Attribute kinds: number -> (name, number of the AttributeProto field that holds the value).
_KINDS = {
    1: ("FLOAT", 2),
    2: ("INT", 3),
    3: ("STRING", 4),
    4: ("TENSOR", 5),
    5: ("GRAPH", 6),
    6: ("FLOATS", 7),
    7: ("INTS", 8),
    8: ("STRINGS", 9),
    9: ("TENSORS", 10),
    10: ("GRAPHS", 11),
    11: ("SPARSE_TENSOR", 22),
    12: ("SPARSE_TENSORS", 23),
    13: ("TYPE_PROTO", 14),
    14: ("TYPE_PROTOS", 15),
}
_KIND_OF_FIELD = {number: kind for kind, number in _KINDS.values()}
_ABSENT: dict[str, AttrValue] = {"FLOAT": 0.0, "INT": 0, "STRING": ""}


def domain_of(domain: str) -> str:
    """The domain, with "ai.onnx" replaced by ""."""
    return "" if domain == "ai.onnx" else domain


class Converter:
    """Converts the messages of one model; `source` names it in errors."""

    def __init__(self, source: str, folder: Folder, cuts: Cuts | None) -> None:
        self._source = source
        self._folder = folder
        self._cuts = cuts

    def model(self, message: onnx.ModelProto, fallback_name: str) -> Model:
        """The whole model, before the checks and the sort of its graphs."""
        loc = Location(self._source, "the model")
        if message.ir_version < 1 or not message.HasField("graph"):
            raise loc.error(
                f"{shorten(self._source)} is not an ONNX model",
                why="it has no graph" if message.ir_version >= 1 else "it has no IR version",
            )
        opsets = self._opsets(message.opset_import, loc)
        if not opsets and message.ir_version < 3:
            opsets[""] = 1
        functions: dict[tuple[str, str, str], FunctionDef] = {}
        for item in message.functions:
            function = self._function(item)
            if function.key in functions:
                raise function.loc.error(f"function {quoted(function.name)} is defined twice")
            functions[function.key] = function
        name = self._text(message.graph.name, "the name of the graph", loc)
        graph = self.graph(message.graph, f"graph {quoted(name)}", 0)
        producer = " ".join(filter(None, (_loose(message.producer_name), _loose(message.producer_version))))
        return Model(
            ir_version=message.ir_version,
            opsets=opsets,
            graph=graph,
            functions=functions,
            metadata={_loose(entry.key): _loose(entry.value) for entry in message.metadata_props},
            name=name or fallback_name,
            source=self._source,
            producer=producer,
            domain=_loose(message.domain),
            model_version=message.model_version,
            description=_loose(message.doc_string),
            graph_description=_loose(message.graph.doc_string),
        )

    def graph(self, message: onnx.GraphProto, scope: str, depth: int) -> Graph:
        """One graph. `scope` describes its location in words, `depth` is its nesting level."""
        loc = Location(self._source, scope)
        if depth > MAX_DEPTH:
            raise loc.error(f"graphs are nested deeper than {MAX_DEPTH} levels")
        initializers: dict[str, Tensor] = {}
        for number, item in enumerate(message.initializer):
            tensor = make_tensor(item, f"initializer {number}", self._folder, self._cuts, loc)
            self._new_name(tensor.name, initializers, f"initializer {number}", loc)
            initializers[tensor.name] = tensor
        sparse: dict[str, SparseTensor] = {}
        for number, entry in enumerate(message.sparse_initializer):
            what = f"sparse initializer {number}"
            constant = make_sparse(entry, what, self._folder, self._cuts, loc)
            self._new_name(constant.name, sparse, what, loc)
            self._new_name(constant.name, initializers, what, loc)
            sparse[constant.name] = constant
        return Graph(
            name=self._text(message.name, "the name of the graph", loc),
            inputs=[self._value(item, f"input {number}", loc) for number, item in enumerate(message.input)],
            outputs=[
                self._value(item, f"output {number}", loc) for number, item in enumerate(message.output)
            ],
            nodes=[self._node(item, number, scope, depth) for number, item in enumerate(message.node)],
            initializers=initializers,
            sparse_initializers=sparse,
            value_infos=self._value_infos(message.value_info, loc),
            loc=loc,
        )

    def _function(self, message: onnx.FunctionProto) -> FunctionDef:
        loc = Location(self._source, "a function")
        name = self._text(message.name, "the name of a function", loc)
        domain = domain_of(self._text(message.domain, "the domain of a function", loc))
        scope = f"function {quoted(name)} of domain {quoted(domain or 'ai.onnx')}"
        loc = Location(self._source, scope, -1, name)
        if not name:
            raise loc.error("a function has no name")
        attributes = self._texts(message.attribute, "an attribute of the function", loc)
        defaults = self._attributes(message.attribute_proto, loc, 0)
        repeated = len(set(attributes)) < len(attributes) or any(key in defaults for key in attributes)
        if repeated:
            raise loc.error(f"function {quoted(name)} declares an attribute twice")
        return FunctionDef(
            domain=domain,
            name=name,
            overload=self._text(message.overload, "the overload of the function", loc),
            inputs=self._texts(message.input, "an input", loc),
            outputs=self._texts(message.output, "an output", loc),
            attributes=attributes,
            attribute_defaults=defaults,
            nodes=[self._node(item, number, scope, 0) for number, item in enumerate(message.node)],
            opsets=self._opsets(message.opset_import, loc),
            value_infos=self._value_infos(message.value_info, loc),
            loc=loc,
        )

    def _node(self, message: onnx.NodeProto, index: int, scope: str, depth: int) -> NodeDef:
        name, op, domain = message.name, message.op_type, message.domain
        loc = Location(self._source, scope, index, _loose(name), _loose(op), _loose(domain))
        self._text(name, "the name of a node", loc)
        self._text(domain, "the domain of a node", loc)
        if not self._text(op, "the operator of a node", loc):
            raise loc.error(f"node {index} names no operator")
        inputs = self._texts(message.input, "an input", loc)
        outputs = self._texts(message.output, "an output", loc)
        if not inputs and not outputs:
            raise loc.error(f"node {index} ({shorten(op)}) has neither inputs nor outputs")
        overload = self._text(message.overload, "the overload of a node", loc)
        attrs = self._attributes(message.attribute, loc, depth) if message.attribute else {}
        return NodeDef(name, op, domain_of(domain), overload, inputs, outputs, attrs, index, loc)

    def _attributes(
        self, messages: Iterable[onnx.AttributeProto], loc: Location, depth: int
    ) -> dict[str, AttrValue]:
        attrs: dict[str, AttrValue] = {}
        for message in messages:
            name = self._text(message.name, "the name of an attribute", loc)
            if not name:
                raise loc.error("an attribute has no name")
            if name in attrs:
                raise loc.error(f"attribute {quoted(name)} is given twice")
            attrs[name] = self._attribute(message, name, loc, depth)
        return attrs

    def _attribute(self, message: onnx.AttributeProto, name: str, loc: Location, depth: int) -> AttrValue:
        what = f"attribute {quoted(name)}"
        number = int(message.type)
        values = [
            (field.number, value) for field, value in message.ListFields() if field.number in _KIND_OF_FIELD
        ]
        if len(values) > 1:
            kinds = ", ".join(_KIND_OF_FIELD[key] for key, _ in values)
            raise loc.error(f"{what} has several values at once: {kinds}")
        reference = self._text(message.ref_attr_name, f"the reference of {what}", loc)
        kind, field = _KINDS.get(number, ("", 0))
        if reference:
            if values:
                raise loc.error(f"{what} is a reference to {quoted(reference)} and has a value of its own")
            return AttrRef(reference, kind)
        if not number and values:
            field = values[0][0]
            kind = _KIND_OF_FIELD[field]
        if not kind:
            raise loc.error(f"{what} has no type and no value")
        if not values:
            if kind.endswith("S"):
                return ()
            if kind not in _ABSENT:
                raise loc.error(f"{what} is of type {kind}, but has no value")
            return _ABSENT[kind]
        held, value = values[0]
        if held != field:
            raise loc.error(f"{what} is of type {kind}, but has a value of type {_KIND_OF_FIELD[held]}")
        if kind in ("INT", "FLOAT"):
            return value  # type: ignore[no-any-return]
        if kind in ("INTS", "FLOATS"):
            return tuple(value)
        if kind.endswith("S"):
            return tuple(
                self._single(kind[:-1], item, f"{what}[{number}]", loc, depth)
                for number, item in enumerate(value)
            )
        return self._single(kind, value, what, loc, depth)

    def _single(self, kind: str, value: Any, what: str, loc: Location, depth: int) -> Scalar:
        if kind == "STRING":
            try:
                return str(value, "utf-8")
            except UnicodeDecodeError:
                return bytes(value)
        if kind == "TENSOR":
            return make_tensor(value, what, self._folder, self._cuts, loc)
        if kind == "GRAPH":
            scope = f"{what} of node {loc.index} ({quoted(loc.op)}) of {loc.scope}"
            return self.graph(value, scope, depth + 1)
        if kind == "SPARSE_TENSOR":
            return make_sparse(value, what, self._folder, self._cuts, loc)
        found = self._type(value, what, loc, 0)
        if found is None:
            raise loc.error(f"{what} is an empty type")
        return found

    def _value(self, message: onnx.ValueInfoProto, what: str, loc: Location) -> ValueInfo:
        name = self._text(message.name, f"the name of {what}", loc)
        if not name:
            raise loc.error(f"{what} has no name")
        return ValueInfo(
            name, self._type(message.type, quoted(name), loc, 0) if message.HasField("type") else None
        )

    def _value_infos(self, messages: Iterable[onnx.ValueInfoProto], loc: Location) -> dict[str, ValueInfo]:
        infos: dict[str, ValueInfo] = {}
        for number, message in enumerate(messages):
            info = self._value(message, f"value info {number}", loc)
            if infos.setdefault(info.name, info) != info:
                raise loc.error(f"value {quoted(info.name)} is declared with two types")
        return infos

    def _type(self, message: onnx.TypeProto, what: str, loc: Location, depth: int) -> ValueType | None:
        if depth > MAX_DEPTH:
            raise loc.error(f"the type of {what} is nested deeper than {MAX_DEPTH} levels")
        which = message.WhichOneof("value")
        if which is None:
            return None
        if which == "tensor_type" or which == "sparse_tensor_type":
            tensor = message.tensor_type if which == "tensor_type" else message.sparse_tensor_type
            dtype = self._dtype(tensor.elem_type, what, loc)
            shape = self._shape(tensor.shape, what, loc) if tensor.HasField("shape") else None
            return ValueType("tensor" if which == "tensor_type" else "sparse_tensor", dtype, shape)
        if which == "map_type":
            key = self._dtype(message.map_type.key_type, what, loc)
            return ValueType(
                "map", elem=self._type(message.map_type.value_type, what, loc, depth + 1), key=key
            )
        if which == "sequence_type":
            return ValueType(
                "sequence", elem=self._type(message.sequence_type.elem_type, what, loc, depth + 1)
            )
        if which == "optional_type":
            return ValueType(
                "optional", elem=self._type(message.optional_type.elem_type, what, loc, depth + 1)
            )
        return ValueType("opaque")

    def _dtype(self, number: int, what: str, loc: Location) -> str | None:
        if number == 0:
            return None
        element = BY_NUMBER.get(number)
        if element is None:
            raise loc.unsupported(
                f"{what} has element type {number}, which is newer than this reader or invalid"
            )
        return element.name

    def _shape(self, message: onnx.TensorShapeProto, what: str, loc: Location) -> Shape:
        dims: list[int | str | None] = []
        for dim in message.dim:
            which = dim.WhichOneof("value")
            if which == "dim_value":
                # Some exporters write -1 for an unknown dim.
                if dim.dim_value < -1:
                    raise loc.error(f"{what} has a negative dimension: {dim.dim_value}")
                dims.append(dim.dim_value if dim.dim_value >= 0 else None)
            else:
                name = self._text(dim.dim_param, f"a dimension of {what}", loc)
                dims.append(None if name in NO_NAMES else name)
        return tuple(dims)

    def _opsets(self, messages: Iterable[onnx.OperatorSetIdProto], loc: Location) -> dict[str, int]:
        opsets: dict[str, int] = {}
        for message in messages:
            domain = domain_of(self._text(message.domain, "the domain of an operator set", loc))
            if message.version < 1:
                raise loc.error(
                    f"the import of operator set {quoted(domain or 'ai.onnx')} has no valid version"
                )
            opsets[domain] = max(message.version, opsets.get(domain, 0))
        return opsets

    @staticmethod
    def _text(value: object, what: str, loc: Location) -> str:
        if not isinstance(value, str):
            raise loc.error(f"{what} is not valid UTF-8")
        return value

    @staticmethod
    def _texts(values: Iterable[str], what: str, loc: Location) -> tuple[str, ...]:
        names = tuple(values)
        for name in names:
            if not isinstance(name, str):
                raise loc.error(f"the name of {what} is not valid UTF-8")
        return names

    @staticmethod
    def _new_name(name: str, taken: dict[str, Any], what: str, loc: Location) -> None:
        if not name:
            raise loc.error(f"{what} has no name")
        if name in taken:
            raise loc.error(f"the name {quoted(name)} is defined twice, the second time by {what}")


def _loose(value: str | bytes) -> str:
    """A text that no result depends on; invalid UTF-8 in it is replaced."""
    return value if isinstance(value, str) else value.decode("utf-8", "replace")


__all__ = ["MAX_DEPTH", "Converter", "domain_of"]
