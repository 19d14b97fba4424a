"""The parts of an ONNX model as plain Python data: types, nodes, graphs and functions.

Nothing here refers to protobuf.  Names are `str`; the default operator domain, which files write as `""` or
`"ai.onnx"`, is always `""`.  Lists keep the order of the file, except that `nodes` is topologically sorted
(stable: a sorted file keeps its order; `NodeDef.index` is always the position in the file).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias

from dlc_frontend_onnx.location import Place
from dlc_frontend_onnx.tensors import SparseTensor, Tensor

Shape: TypeAlias = "tuple[int | str | None, ...]"
"""Dimensions: a number, the name of a symbolic dimension, or `None` when nothing is known."""


@dataclass(frozen=True, slots=True)
class ValueType:
    """The declared type of a value.

    `kind` is "tensor", "sparse_tensor", "sequence", "optional", "map" or "opaque".  Tensors have `dtype` (our
    name, or `None` when undefined) and `shape` (`None`: unknown rank); sequences and optionals have `elem`;
    maps have `key` (a dtype name) and `elem` (the type of the values).
    """

    kind: str
    dtype: str | None = None
    shape: Shape | None = None
    elem: ValueType | None = None
    key: str | None = None

    def innermost(self) -> ValueType:
        """The type inside all sequences, optionals and maps; the type itself for a tensor."""
        inner = self
        while inner.elem is not None:
            inner = inner.elem
        return inner


@dataclass(frozen=True, slots=True)
class ValueInfo:
    """A named value with its declared type; `type` is `None` when the file declares none."""

    name: str
    type: ValueType | None = None

    @property
    def kind(self) -> str:
        """The kind of the type, "" when undeclared."""
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
    """In a function body: the attribute takes the value of the function's own attribute `name`.

    `kind` is "INT", "FLOATS", ..., or "" in files that do not say.
    """

    name: str
    kind: str


Scalar: TypeAlias = "int | float | str | bytes | Tensor | SparseTensor | Graph | ValueType"
AttrValue: TypeAlias = "Scalar | tuple[Scalar, ...] | AttrRef"
"""INT `int`, FLOAT `float`, STRING `str` (`bytes` when it is not UTF-8), TENSOR `Tensor`, SPARSE_TENSOR
`SparseTensor`, GRAPH `Graph`, TYPE_PROTO `ValueType`; the plural kinds are tuples of these."""


@dataclass(slots=True, eq=False)
class NodeDef:
    """One operator call.  `""` in `inputs` is an omitted optional input, in `outputs` an output nobody wants.

    `captures` are the names its subgraphs take from around the node.
    """

    name: str
    op: str
    domain: str
    overload: str
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    attrs: dict[str, AttrValue]
    index: int
    place: Place
    captures: tuple[str, ...] = ()

    def subgraphs(self) -> list[tuple[str, Graph]]:
        """The graphs among the attributes, as (attribute name, graph); lists of graphs are flattened."""
        found: list[tuple[str, Graph]] = []
        for name, value in self.attrs.items():
            if isinstance(value, Graph):
                found.append((name, value))
            elif isinstance(value, tuple):
                found.extend((name, item) for item in value if isinstance(item, Graph))
        return found


@dataclass(slots=True, eq=False)
class Graph:
    """A graph: the main one or an attribute of a node (`captures`: the outer names it uses)."""

    name: str
    inputs: list[ValueInfo]
    outputs: list[ValueInfo]
    nodes: list[NodeDef]
    initializers: dict[str, Tensor]
    sparse_initializers: dict[str, SparseTensor]
    value_infos: dict[str, ValueInfo]
    place: Place
    captures: tuple[str, ...] = ()

    @property
    def required_inputs(self) -> list[ValueInfo]:
        """The inputs a caller must feed: those that no initializer gives a value."""
        return [
            x
            for x in self.inputs
            if x.name not in self.initializers and x.name not in self.sparse_initializers
        ]


@dataclass(slots=True, eq=False)
class FunctionDef:
    """A function of the model: called by nodes with its (domain, name, overload).

    `attributes` names those that a call must give; `attribute_defaults` holds the others with their values.
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
    place: Place

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
