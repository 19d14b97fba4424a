"""The parts of an ONNX model as plain Python data: types, nodes, graphs and functions.

Nothing here refers to protobuf. Names are `str`. The default operator domain, which files write as `""` or
`"ai.onnx"`, is always `""`. Lists keep the order of the file, except that `nodes` is sorted topologically.
The sort is stable, and `NodeDef.index` is always the index in the file.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias

from dlc_frontend_onnx.location import Location
from dlc_frontend_onnx.tensors import SparseTensor, Tensor

Shape: TypeAlias = "tuple[int | str | None, ...]"
"""Each dim is a number, the name of a symbolic dim, or `None` if it is unknown."""


@dataclass(frozen=True, slots=True)
class ValueType:
    """The declared type of a value.

    `kind` is "tensor", "sparse_tensor", "sequence", "optional", "map" or "opaque". Tensors have `dtype` (a
    dlc name, or `None` if undefined) and `shape` (`None`: unknown rank). Sequences and optionals have `elem`.
    Maps have `key` (a dtype name) and `elem` (the type of the values).
    """

    kind: str
    dtype: str | None = None
    shape: Shape | None = None
    elem: ValueType | None = None
    key: str | None = None

    def innermost(self) -> ValueType:
        """The type inside all sequences, optionals and maps; a tensor type itself."""
        inner = self
        while inner.elem is not None:
            inner = inner.elem
        return inner


@dataclass(frozen=True, slots=True)
class ValueInfo:
    """A named value with its declared type; `type` is `None` if the file declares none."""

    name: str
    type: ValueType | None = None

    @property
    def kind(self) -> str:
        """The kind of the type; "" if undeclared."""
        return self.type.kind if self.type is not None else ""

    @property
    def dtype(self) -> str | None:
        """The element dtype of the tensor, or of the tensor inside the sequence or optional."""
        return self.type.innermost().dtype if self.type is not None else None

    @property
    def shape(self) -> Shape | None:
        """The shape of the tensor, or of the tensor inside the sequence or optional."""
        return self.type.innermost().shape if self.type is not None else None


@dataclass(frozen=True, slots=True)
class AttrRef:
    """In a function body: the attribute has the value of the function's attribute `name`.

    `kind` is "INT", "FLOATS", ..., or "" if the file does not declare it.
    """

    name: str
    kind: str


Scalar: TypeAlias = "int | float | str | bytes | Tensor | SparseTensor | Graph | ValueType"
AttrValue: TypeAlias = "Scalar | tuple[Scalar, ...] | AttrRef"
"""INT is `int`, FLOAT `float`, STRING `str` (`bytes` if it is not UTF-8), TENSOR `Tensor`, SPARSE_TENSOR
`SparseTensor`, GRAPH `Graph`, TYPE_PROTO `ValueType`. The plural kinds are tuples of these.
"""


@dataclass(slots=True, eq=False)
class NodeDef:
    """One operator call. `""` in `inputs` is an omitted optional input, in `outputs` an unused output.

    `captures` are the names that its subgraphs use from enclosing scopes.
    """

    name: str
    op: str
    domain: str
    overload: str
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    attrs: dict[str, AttrValue]
    index: int
    loc: Location
    captures: tuple[str, ...] = ()

    def subgraphs(self) -> list[tuple[str, Graph]]:
        """The graphs among the attributes as (attribute name, graph). Lists of graphs are flattened."""
        found: list[tuple[str, Graph]] = []
        for name, value in self.attrs.items():
            if isinstance(value, Graph):
                found.append((name, value))
            elif isinstance(value, tuple):
                found.extend((name, item) for item in value if isinstance(item, Graph))
        return found


@dataclass(slots=True, eq=False)
class Graph:
    """The main graph, or a graph attribute of a node. `captures` are the outer names that it uses."""

    name: str
    inputs: list[ValueInfo]
    outputs: list[ValueInfo]
    nodes: list[NodeDef]
    initializers: dict[str, Tensor]
    sparse_initializers: dict[str, SparseTensor]
    value_infos: dict[str, ValueInfo]
    loc: Location
    captures: tuple[str, ...] = ()

    @property
    def required_inputs(self) -> list[ValueInfo]:
        """The inputs without initializer, which a caller must feed."""
        return [
            x
            for x in self.inputs
            if x.name not in self.initializers and x.name not in self.sparse_initializers
        ]


@dataclass(slots=True, eq=False)
class FunctionDef:
    """A function of the model, called by nodes with its (domain, name, overload).

    `attributes` names the required attributes; `attribute_defaults` holds the optional ones with their
    values.
    """

    domain: str
    name: str
    overload: str
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    attributes: tuple[str, ...]
    attribute_defaults: dict[str, AttrValue]
    nodes: list[NodeDef]
    opsets: dict[str, int]
    value_infos: dict[str, ValueInfo]
    loc: Location

    @property
    def key(self) -> tuple[str, str, str]:
        """(domain, name, overload)."""
        return (self.domain, self.name, self.overload)


__all__ = [
    "AttrRef",
    "AttrValue",
    "FunctionDef",
    "Graph",
    "NodeDef",
    "Scalar",
    "Shape",
    "ValueInfo",
    "ValueType",
]
