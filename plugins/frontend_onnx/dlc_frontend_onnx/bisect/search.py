"""Find the wrong node of a model: `bisect("model.onnx", "onnx-reference", feeds)`.

The reference computes all values of the model, and dlc computes them with every value as an output. The first
differing node, in topological order, is compiled alone with the reference's values as inputs. If it differs,
it is the culprit. If not, preceding nodes are added until the difference appears. If nothing differs when
every value is an output, but the model's outputs differ, the fusion of nodes is wrong, and the same search
finds the group. The search also enters branches and loops.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from os import PathLike
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx import ModelProto, NodeProto, ValueInfoProto, inliner, numpy_helper

from dlc_core.cli.arrays import Comparison, compare
from dlc_core.diag import DlcError, UsageError
from dlc_frontend_onnx.bisect.cut import Array, cut, describe, needed_nodes
from dlc_frontend_onnx.bisect.iterations import iterations_of
from dlc_frontend_onnx.bisect.references import Reference, reference_of, run_dlc
from dlc_frontend_onnx.reader import read_model


@dataclass(frozen=True)
class Culprit:
    """The first wrong value, and the smallest model that reproduces it.

    `nodes` are those of the reproducer; the culprit is the last one, and the only one if it is wrong alone.
    `inside` are the nodes whose subgraphs contain it, outermost first.
    """

    node: str
    op: str
    comparison: Comparison
    nodes: tuple[str, ...]
    model: ModelProto
    feeds: Mapping[str, Array]
    expected: Mapping[str, Array]
    inside: tuple[str, ...] = ()

    def write(self, path: str | PathLike[str]) -> tuple[Path, Path]:
        """Write the reproducer as a model, and its inputs and expected outputs as .npz files next to it.

        `dlc run repro.onnx --inputs repro.npz --expect repro.npz` shows the difference.
        """
        file = Path(path).with_suffix(".onnx")
        arrays = {f"in_{name}": array for name, array in self.feeds.items()}
        names = [value.name for value in self.model.graph.output]
        arrays |= {f"out_{i}": self.expected[name] for i, name in enumerate(names) if name in self.expected}
        try:
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_bytes(self.model.SerializeToString())
            np.savez(file.with_suffix(".npz"), **arrays)  # type: ignore[arg-type]
        except OSError as error:
            raise UsageError(f"{file} cannot be written", why=str(error)) from None
        return file, file.with_suffix(".npz")


@dataclass(frozen=True)
class Bisection:
    """The result: the number of compared values, the outputs, and the culprit if there is one.

    `spread` names values that differ although no part of the model does: accumulated rounding errors.
    """

    compared: int
    outputs: tuple[Comparison, ...]
    culprit: Culprit | None = None
    spread: tuple[Comparison, ...] = ()


def bisect(
    model: str | PathLike[str] | bytes | ModelProto,
    against: str | Reference,
    feeds: Mapping[str, Any],
    *,
    rtol: float = 1e-3,
    atol: float = 1e-4,
    **options: Any,
) -> Bisection:
    """Find the first node whose value is not within `atol + rtol * |reference|` of the reference.

    `options` are those of `dlc.compile`. Raises UsageError for invalid inputs, UnsupportedError if dlc or the
    reference cannot run the model.
    """
    reference = reference_of(against) if isinstance(against, str) else against
    search = _Search(reference, rtol, atol, options)
    return search.whole(plain_message(model), {name: np.asarray(array) for name, array in feeds.items()})


def plain_message(source: str | PathLike[str] | bytes | ModelProto) -> ModelProto:
    """The model as one message, read by the rules of `reader`, with external data embedded, functions
    inlined, and nodes sorted.
    """
    read = read_model(source)
    if isinstance(source, ModelProto):
        message = ModelProto()
        message.CopyFrom(source)
    else:
        data = source if isinstance(source, bytes) else Path(source).read_bytes()
        message = ModelProto.FromString(data)
    for tensor in message.graph.initializer:
        if tensor.data_location == onnx.TensorProto.EXTERNAL:
            array = read.graph.initializers[tensor.name].to_numpy()
            tensor.CopyFrom(numpy_helper.from_array(array, tensor.name))
    order = {
        name: position for position, node in enumerate(read.graph.nodes) for name in node.outputs if name
    }
    nodes = sorted(
        message.graph.node, key=lambda node: max((order.get(n, 0) for n in node.output), default=0)
    )
    message.graph.ClearField("node")
    message.graph.node.extend(nodes)
    if message.functions:
        message = inliner.inline_local_functions(message)
    given = {tensor.name for tensor in message.graph.initializer}
    inputs = [value for value in message.graph.input if value.name not in given]
    message.graph.ClearField("input")
    message.graph.input.extend(inputs)
    return message


@dataclass(frozen=True)
class _Search:
    reference: Reference
    rtol: float
    atol: float
    options: Mapping[str, Any]

    def whole(self, model: ModelProto, feeds: Mapping[str, Array]) -> Bisection:
        """Find the culprit of a model."""
        missing = [value.name for value in model.graph.input if value.name not in feeds]
        if missing:
            raise UsageError(f"input {missing[0]!r} is not given")
        feeds = {value.name: feeds[value.name] for value in model.graph.input}
        outputs = [value.name for value in model.graph.output]
        names = list(dict.fromkeys([n for node in model.graph.node for n in node.output if n] + outputs))
        expected = self.reference(model, feeds, names)
        if not expected:
            raise UsageError("the reference has none of the model's values")
        plain = self._compared(self._run(model, feeds, ()), expected, outputs)
        types: dict[str, ValueInfoProto] = {}
        tapped = self._compared(self._run(model, feeds, list(expected), types), expected, names)
        wrong = [each for each in tapped if not each.fits]
        failing = [each.name for each in plain if not each.fits]
        base = _Base(model, feeds, expected, types)
        found = None
        for name in [each.name for each in wrong[:1]] or self._first_of(base, failing):
            found = self._culprit(base, name)
        if found is None and wrong:
            for name in (each.name for each in tapped):
                found = found or self._alone(base, name)
        return Bisection(
            compared=len(tapped),
            outputs=tuple(plain),
            culprit=found,
            spread=() if found is not None else tuple(wrong),
        )

    # Values

    def _run(
        self,
        model: ModelProto,
        feeds: Mapping[str, Array],
        taps: Sequence[str],
        types: dict[str, ValueInfoProto] | None = None,
    ) -> Mapping[str, Array]:
        pins = self.options.get("shapes") or {}
        known = {value.name for value in model.graph.input}
        known |= {dim.dim_param for v in model.graph.input for dim in v.type.tensor_type.shape.dim}
        fitting = {name: pin for name, pin in pins.items() if name in known}
        return run_dlc(model, feeds, taps, types, **{**self.options, "shapes": fitting})

    def _compared(
        self, found: Mapping[str, Array], expected: Mapping[str, Array], names: Sequence[str]
    ) -> list[Comparison]:
        return [
            compare(name, found[name], expected[name], self.rtol, self.atol)
            for name in names
            if name in found and name in expected
        ]

    # Parts

    def _part(self, base: _Base, name: str, size: int) -> _Part:
        """The part of a model that computes a value: its region, and the `size` - 1 nearest nodes before
        it.
        """
        known = {**base.feeds, **base.expected}
        before = {n: array for n, array in known.items() if n != name}
        graph = base.model.graph
        own = needed_nodes(graph, [name], before)
        computed = {n for node in own for n in node.output if n}
        rest = needed_nodes(graph, [name])
        rest = [node for node in rest if node not in own]
        for node in rest[::-1][: size - 1]:
            computed.update(n for n in node.output if n)
        declared = {value.name for value in graph.input}
        given = {n: array for n, array in before.items() if n not in computed and n not in declared}
        part = cut(base.model, [name], given, base.types)
        feeds = {value.name: known[value.name] for value in part.graph.input}
        return _Part(part, feeds, name, known[name])

    def _differs(self, part: _Part) -> Comparison | None:
        """The difference of the value of a part; None if it is within the tolerance, or if dlc does not
        compile the part.
        """
        try:
            found = self._run(part.model, part.feeds, ())
        except DlcError:
            return None
        mismatch = compare(part.name, found[part.name], part.expected, self.rtol, self.atol)
        return None if mismatch.fits else mismatch

    def _alone(self, base: _Base, name: str) -> Culprit | None:
        part = self._part(base, name, 1)
        mismatch = self._differs(part)
        return None if mismatch is None else self._entered(part, mismatch)

    def _culprit(self, base: _Base, name: str) -> Culprit | None:
        """The smallest part that ends in the node of a value and shows a difference."""
        found = self._alone(base, name)
        if found is not None:
            return found
        most = len(needed_nodes(base.model.graph, [name]))
        low, high = 1, 2
        while (mismatch := self._differs(self._part(base, name, high))) is None:
            if high >= most:
                return None
            low, high = high, min(2 * high, most)
        while high - low > 1:
            middle = (low + high) // 2
            again = self._differs(self._part(base, name, middle))
            if again is None:
                low = middle
            else:
                high, mismatch = middle, again
        return self._made(self._part(base, name, high), mismatch)

    def _first_of(self, base: _Base, failing: Sequence[str]) -> list[str]:
        """The first value that differs if it is the only output, by binary search before an output."""
        if not failing:
            return []
        nodes = needed_nodes(base.model.graph, failing[:1])
        names = [n for node in nodes for n in node.output if n in base.expected]

        def differs(name: str) -> bool:
            part = cut(base.model, [name])
            return self._differs(_Part(part, base.feeds, name, base.expected[name])) is not None

        low, high = -1, len(names) - 1
        while high - low > 1:
            middle = (low + high) // 2
            low, high = (low, middle) if differs(names[middle]) else (middle, high)
        return [names[high]]

    # The result

    def _made(self, part: _Part, mismatch: Comparison) -> Culprit:
        nodes = [_name(node) for node in part.model.graph.node]
        last = part.model.graph.node[-1]
        part.model.graph.ClearField("output")
        part.model.graph.output.append(describe(part.name, part.expected))
        expected = {part.name: part.expected}
        return Culprit(_name(last), last.op_type, mismatch, tuple(nodes), part.model, part.feeds, expected)

    def _entered(self, part: _Part, mismatch: Comparison) -> Culprit:
        """The culprit inside a subgraph of the node, if something in it differs; else the node."""
        plain = self._made(part, mismatch)
        node = part.model.graph.node[-1]
        if len(part.model.graph.node) > 1:
            return plain
        for body, feeds in iterations_of(part.model, node, part.feeds, self.reference):
            try:
                inner = self.whole(body, feeds).culprit
            except DlcError:
                return plain
            if inner is not None:
                return replace(inner, inside=(plain.node, *inner.inside))
        return plain


@dataclass(frozen=True)
class _Base:
    """A model with its inputs, the reference's values, and the types of the values in dlc."""

    model: ModelProto
    feeds: Mapping[str, Array]
    expected: Mapping[str, Array]
    types: Mapping[str, ValueInfoProto]


@dataclass(frozen=True)
class _Part:
    model: ModelProto
    feeds: Mapping[str, Array]
    name: str
    expected: Array


def _name(node: NodeProto) -> str:
    return node.name or next(iter(node.output), "")


__all__ = ["Bisection", "Culprit", "bisect", "plain_message"]
