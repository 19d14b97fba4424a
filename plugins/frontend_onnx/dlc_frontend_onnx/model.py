"""An ONNX model as plain Python data: what `reader.read_model` returns and the importer reads."""

from __future__ import annotations

from dataclasses import dataclass, field

from dlc_frontend_onnx.definitions import AttrRef as AttrRef
from dlc_frontend_onnx.definitions import AttrValue as AttrValue
from dlc_frontend_onnx.definitions import FunctionDef as FunctionDef
from dlc_frontend_onnx.definitions import Graph as Graph
from dlc_frontend_onnx.definitions import NodeDef as NodeDef
from dlc_frontend_onnx.definitions import Scalar as Scalar
from dlc_frontend_onnx.definitions import Shape as Shape
from dlc_frontend_onnx.definitions import ValueInfo as ValueInfo
from dlc_frontend_onnx.definitions import ValueType as ValueType
from dlc_frontend_onnx.entries import Entries
from dlc_frontend_onnx.location import Location


@dataclass(slots=True, eq=False)
class Model:
    """A whole model. `opsets` maps each imported domain to its version, `source` is its path.

    `description` and `graph_description` are the doc strings of the model and of its graph.
    """

    ir_version: int
    opsets: dict[str, int]
    graph: Graph
    functions: dict[tuple[str, str, str], FunctionDef]
    metadata: dict[str, str]
    name: str
    source: str
    producer: str = ""
    domain: str = ""
    model_version: int = 0
    description: str = ""
    graph_description: str = ""
    importers: Entries = field(default_factory=dict)
    """Custom converters (see `custom`)."""

    @property
    def loc(self) -> Location:
        """The location of the model as a whole."""
        return Location(self.source, "the model")


__all__ = [
    "AttrRef",
    "AttrValue",
    "FunctionDef",
    "Graph",
    "Model",
    "NodeDef",
    "Scalar",
    "Shape",
    "ValueInfo",
    "ValueType",
]
