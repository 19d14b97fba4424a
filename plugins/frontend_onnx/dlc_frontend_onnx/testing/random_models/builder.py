"""Draws a valid model node by node. Each node is evaluated when it is added, so all values are known.

A `Builder` keeps the existing values as arrays. A template (see `templates`) requests inputs that its
operator accepts, and `emit`s a node. A node is dropped if the evaluator of the onnx package refuses it, or if
its results are not finite or too large. A value is *exact* if every order of computation gives the same bits.
Discontinuous operators, such as comparisons, ArgMax or rounding, take only exact values.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import ml_dtypes
import numpy as np
import onnx
from onnx import GraphProto, ModelProto, NodeProto, TensorProto, helper, numpy_helper
from onnx.reference import ReferenceEvaluator

from dlc_frontend_onnx.dtypes import number_of
from dlc_frontend_onnx.schema import find_schema, type_text

Array = np.ndarray[Any, Any]

FLOATS = ("float32", "float16", "float64", "bfloat16")
INTS = ("int64", "int32", "int16", "int8", "uint8", "uint16", "uint32", "uint64")
DTYPES = (*FLOATS, *INTS, "bool")
_WEIGHTS = {"float32": 30, "int64": 8, "int32": 5, "float16": 5, "float64": 4, "bool": 4, "uint8": 2}
_LARGEST = {"float32": 1e4, "float64": 1e4, "float16": 60.0, "bfloat16": 60.0}
_SIZES = (1, 2, 3, 4, 5, 6, 7, 8, 9, 16, 17)
MAX_ELEMENTS = 4096


@dataclass(frozen=True)
class Value:
    """A tensor of the model: its name, its value by the evaluator, and whether that is exact."""

    name: str
    array: Array
    exact: bool

    @property
    def dtype(self) -> str:
        return str(self.array.dtype.name)

    @property
    def shape(self) -> tuple[int, ...]:
        return tuple(self.array.shape)

    @property
    def rank(self) -> int:
        return self.array.ndim


class Refused(Exception):
    """A template finds no inputs, or its node is invalid or unwanted."""


class Builder:
    """A model being drawn. If `only` is not None, `draw_dtype` returns this dtype."""

    def __init__(self, rng: random.Random, opset: int, *, only: str | None = None) -> None:
        self.rng = rng
        self.opset = opset
        self.only = only
        self.values: list[Value] = []
        self.nodes: list[NodeProto] = []
        self.inputs: list[Value] = []
        self.initializers: list[Value] = []
        self._numbers = np.random.default_rng(rng.randrange(1 << 32))
        self._count = 0

    # Queries of templates

    def schema(self, op: str, domain: str = "") -> Any:
        """The operator's schema in this opset; Refused if there is none."""
        found = find_schema(domain, op, self.opset if not domain else 1)
        if found is None or found.deprecated:
            raise Refused(op)
        return found

    def has_attribute(self, op: str, name: str) -> bool:
        return name in self.schema(op).attributes

    def dtypes(self, op: str, index: int = 0, domain: str = "") -> list[str]:
        """The dtypes of `DTYPES` that an input of an operator may have."""
        schema = self.schema(op, domain)
        param = schema.inputs[min(index, len(schema.inputs) - 1)]
        allowed = {param.type_str}
        for constraint in schema.type_constraints:
            if constraint.type_param_str == param.type_str:
                allowed = set(constraint.allowed_type_strs)
        return [name for name in DTYPES if type_text(name) in allowed]

    def draw_dtype(self, op: str, among: Sequence[str] = DTYPES, index: int = 0) -> str:
        """A dtype that an operator's input may have; common ones are more frequent."""
        found = [name for name in self.dtypes(op, index) if name in among]
        if self.only is not None:
            found = [name for name in found if name == self.only]
        if not found:
            raise Refused(op)
        return self.rng.choices(found, [_WEIGHTS.get(name, 1) for name in found])[0]

    def chance(self, share: float) -> bool:
        return self.rng.random() < share

    def size(self) -> int:
        return self.rng.choice(_SIZES)

    def shape(self, least: int = 0, most: int = 4) -> tuple[int, ...]:
        """A shape with few elements and a rank between `least` and `most`."""
        while True:
            shape = tuple(self.size() for _ in range(self.rng.randint(least, most)))
            if int(np.prod(shape)) <= 1024:
                return shape

    def fill(self, shape: Sequence[int], dtype: str) -> Array:
        """Numbers that many operators keep exact: multiples of 1/4, small integers."""
        numpy = np.dtype(getattr(ml_dtypes, dtype, dtype))
        if dtype == "bool":
            return self._numbers.random(tuple(shape)) < 0.5
        if dtype in FLOATS:
            return np.asarray(np.round(self._numbers.standard_normal(tuple(shape)) * 4) / 4).astype(numpy)
        low = 0 if dtype.startswith("u") else -5
        return self._numbers.integers(low, 7, tuple(shape)).astype(numpy)

    def need(
        self,
        dtype: str,
        rank: int | tuple[int, int] | None = None,
        shape: Sequence[int] | None = None,
        *,
        exact: bool = False,
        when: Callable[[Value], bool] = lambda value: True,
        fresh: float = 0.2,
    ) -> Value:
        """A value of a dtype and a rank (or range of ranks), or of a shape: an existing or a new one."""
        least, most = (rank, rank) if isinstance(rank, int) else rank if rank is not None else (0, 4)
        fits = [
            v
            for v in self.values
            if v.dtype == dtype
            and (v.shape == tuple(shape) if shape is not None else least <= v.rank <= most)
            and (v.exact or not exact)
            and when(v)
        ]
        if fits and not self.chance(fresh):
            # Prefer later values, so that chains become long.
            return self.rng.choices(fits, range(1, len(fits) + 1))[0]
        for _ in range(20):
            made = self.fill(self.shape(least, most) if shape is None else shape, dtype)
            value = Value("", made, True)
            if when(value):
                return self.given(made)
        raise Refused(dtype)

    def given(self, array: Array, *, constant: bool | None = None) -> Value:
        """A new input of the model, or a constant. If `only` is set, it is a constant only on request."""
        if constant is None:
            constant = self.only is None and self.chance(0.35)
        kind = "c" if constant else "x"
        value = Value(self.fresh(kind), np.ascontiguousarray(array).reshape(array.shape), True)
        (self.initializers if constant else self.inputs).append(value)
        self.values.append(value)
        return value

    def constant(self, numbers: Any, dtype: str = "int64") -> Value:
        """A constant for sizes or indices: never an input, and not reused."""
        value = Value(self.fresh("k"), np.asarray(numbers, np.dtype(getattr(ml_dtypes, dtype, dtype))), True)
        self.initializers.append(value)
        return value

    def partner(self, value: Value, dtype: str | None = None, *, exact: bool = False) -> Value:
        """A value that broadcasts with another one."""
        dtype = dtype or value.dtype

        def broadcasts(other: Value) -> bool:
            pairs = zip(reversed(value.shape), reversed(other.shape))
            return all(a == b or 1 in (a, b) for a, b in pairs)

        fits = [v for v in self.values if v.dtype == dtype and (v.exact or not exact) and broadcasts(v)]
        if fits and not self.chance(0.4):
            return self.rng.choice(fits)
        shape = [d if self.chance(0.7) else 1 for d in value.shape]
        return self.given(self.fill(shape[self.rng.randint(0, len(shape)) :], dtype))

    def axis(self, rank: int) -> int:
        if not rank:
            raise Refused("a scalar has no axis")
        return self.rng.randrange(-rank if self.opset >= 11 else 0, rank)

    def axes(self, rank: int, least: int = 1) -> list[int]:
        count = self.rng.randint(min(least, rank), rank)
        chosen = self.rng.sample(range(rank), count)
        return [axis - rank if self.opset >= 11 and self.chance(0.3) else axis for axis in chosen]

    def fresh(self, kind: str) -> str:
        self._count += 1
        return f"{kind}{self._count}"

    # Actions of templates

    def emit(
        self,
        op: str,
        inputs: Sequence[Value | None],
        outputs: int = 1,
        *,
        exact: bool = False,
        domain: str = "",
        wanted: Sequence[Array] | None = None,
        **attrs: Any,
    ) -> list[Value]:
        """Add a node; `exact` is whether the operator keeps exact inputs exact.

        `wanted` is the expected result if the evaluator is wrong. Raises Refused if the node is invalid.
        """
        schema = self.schema(op, domain)
        unknown = [name for name in attrs if name not in schema.attributes]
        if unknown:
            raise Refused(f"{op} has no {unknown[0]}")
        names = [self.fresh("v") for _ in range(outputs)]
        given = [value.name if value is not None else "" for value in inputs]
        while given and not given[-1]:
            given.pop()
        node = helper.make_node(op, given, names, name=self.fresh(op), domain=domain, **attrs)
        feeds = {value.name: value.array for value in inputs if value is not None}
        captured = {v.name: v.array for v in self.values if v.name in _names_in(node)}
        found = evaluate(node, {**captured, **feeds}, self.opset) if wanted is None else wanted
        all_exact = exact and all(value.exact for value in inputs if value is not None)
        made = [self._checked(name, array, all_exact) for name, array in zip(names, found)]
        for value, param in zip(made, schema.outputs):
            same = [
                i for i, p in zip(inputs, schema.inputs) if i is not None and p.type_str == param.type_str
            ]
            if any(other.dtype != value.dtype for other in same):
                raise Refused(f"the evaluator returns another dtype for {op}")
        self.nodes.append(node)
        self.values += made
        return made

    def _checked(self, name: str, array: Any, exact: bool) -> Value:
        if not isinstance(array, (np.ndarray, np.generic)):
            raise Refused("no tensor")
        array = np.asarray(array)
        value = Value(name, array, exact)
        if array.size > MAX_ELEMENTS or value.dtype not in DTYPES:
            raise Refused("too large")
        if value.dtype in FLOATS:
            wide = array.astype(np.float64)
            if not np.isfinite(wide).all() or (wide.size and np.abs(wide).max() > _LARGEST[value.dtype]):
                raise Refused("not finite")
            if exact and (wide * 64 != np.round(wide * 64)).any():
                value = Value(name, array, False)
        elif value.dtype != "bool" and array.size and max(int(array.max()), -int(array.min())) > 1 << 20:
            raise Refused("too large")
        return value

    # The model

    def model(self, symbolic: bool) -> ModelProto:
        """The model. Its outputs are the unused values and some others.

        With `symbolic`, equal sizes of inputs are one named dim.
        """
        used = {name for node in self.nodes for name in (*node.input, *_names_in(node))}
        made = {name for node in self.nodes for name in node.output}
        outputs = [v for v in self.values if v.name in made and (v.name not in used or self.chance(0.15))]
        inputs = [_info(v, symbolic) for v in self.inputs if v.name in used]
        constants = [numpy_helper.from_array(v.array, v.name) for v in self.initializers if v.name in used]
        results = [helper.make_tensor_value_info(v.name, number_of(v.dtype), None) for v in outputs]
        graph = helper.make_graph(self.nodes, "random", inputs, results, initializer=constants)
        return helper.make_model(graph, opset_imports=self.opsets(), ir_version=10)

    def opsets(self) -> list[Any]:
        return [helper.make_opsetid("", self.opset)]

    def feeds(self) -> dict[str, Array]:
        used = {name for node in self.nodes for name in (*node.input, *_names_in(node))}
        return {v.name: v.array for v in self.inputs if v.name in used}


def evaluate(node: NodeProto, feeds: dict[str, Array], opset: int) -> list[Any]:
    """The results of one node by the evaluator of the onnx package; Refused if it raises."""
    inputs = [_info(Value(name, array, True), False) for name, array in feeds.items()]
    results = [onnx.ValueInfoProto(name=name) for name in node.output if name]
    graph = helper.make_graph([node], "one", inputs, results)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=10)
    try:
        with np.errstate(all="ignore"):
            return list(ReferenceEvaluator(model).run(None, feeds))
    except Exception as error:  # the evaluator has no common exception type
        raise Refused(f"{node.op_type}: {error}") from error


def _info(value: Value, symbolic: bool) -> onnx.ValueInfoProto:
    shape: list[int | str] = [f"d{size}" if symbolic and size > 1 else size for size in value.shape]
    return helper.make_tensor_value_info(value.name, number_of(value.dtype), shape)


def _names_in(node: NodeProto) -> set[str]:
    """The names that the subgraphs of a node mention."""
    found: set[str] = set()
    pending: list[GraphProto] = [a.g for a in node.attribute if a.HasField("g")]
    while pending:
        graph = pending.pop()
        for inner in graph.node:
            found.update(inner.input)
            pending += [a.g for a in inner.attribute if a.HasField("g")]
        found.update(out.name for out in graph.output)
    return found


__all__ = ["DTYPES", "FLOATS", "INTS", "Array", "Builder", "Refused", "TensorProto", "Value", "evaluate"]
