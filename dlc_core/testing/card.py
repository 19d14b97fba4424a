"""A simulated device with its own compiler for parts of a model, for tests with several targets.

    with fresh_registry({"card": CardPlugin()}):
        exe = dlc.compile(model, targets=["card -limit=4096", "reference"])

It supports GEMM with constants (of at most `-limit` elements), additions and relu. Its compiler writes the
region as JSON, followed by the constants. The device has its own memory, a command queue, and a log of its
actions.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from dlc_core.backend import Partitioner, Region, RegionPattern, SimulatedDevice
from dlc_core.diag import ArtifactError
from dlc_core.graph.node import Function
from dlc_core.hooks import hookimpl
from dlc_core.ir.dtype import dtype
from dlc_core.op.lookup import registered_ops
from dlc_core.op.reference import Value, evaluate, evaluate_dim
from dlc_core.rewrite import Match, const_var, match_op, var
from dlc_core.script.json import from_json, to_json
from dlc_core.target import Artifact, Option, Target, TargetKind

NDArray = np.ndarray[Any, Any]

FORMAT = "card-graph"
LIMIT = 1 << 16


def _fits(found: Match, target: Target) -> bool | str:
    elements, limit = math.prod(found["w"].tensor_type.static_shape() or ()), target["limit"]
    return elements <= limit or f"{elements} weights, the card has memory for {limit}"


def patterns() -> tuple[RegionPattern, ...]:
    """The patterns of the card, longer patterns first."""
    dense = match_op("matmul", var("x"), const_var("w"))
    return (
        RegionPattern("dense_relu", match_op("relu", match_op("add", dense, const_var("b"))), _fits),
        RegionPattern("dense", dense, _fits),
        RegionPattern("relu", match_op("relu", var("x"))),
        RegionPattern("add", match_op("add", var("x"), var("y"))),
    )


def compile_region(region: Region, target: Target) -> Artifact:
    """The card's compiler."""
    arrays: list[NDArray] = []
    code = json.dumps(to_json(region.function, arrays)).encode()
    metadata = {
        "arrays": [[dtype(a.dtype).name, list(a.shape)] for a in arrays],
        "parts": [part.pattern for part in region.parts],
        "code": len(code),
    }
    packed = b"".join(np.ascontiguousarray(a).tobytes() for a in arrays)
    return Artifact(FORMAT, code + packed, str(target), (region.name,), metadata=metadata)


class CardProgram:
    """A region on the card."""

    def __init__(self, artifact: Artifact) -> None:
        offset = int(artifact.metadata["code"])
        data = json.loads(artifact.code[:offset])
        arrays = []
        for name, shape in artifact.metadata["arrays"]:
            flat = np.frombuffer(artifact.code, dtype(name).numpy, math.prod(shape), offset)
            arrays.append(flat.reshape(shape))
            offset += flat.nbytes
        made = from_json(data, registered_ops(), arrays)
        if not isinstance(made, Function):
            raise ArtifactError("the card's program is not a function")
        self.function = made

    def entry(self, symbol: str) -> Function:
        """The region with this name."""
        if symbol != self.function.name:
            raise ArtifactError(f"the card's program has no entry point {symbol}")
        return self.function

    def close(self) -> None:
        """Does nothing: a program owns no resources."""


class Card(SimulatedDevice):
    """The simulated device. `log` has its actions in order: "write", "read", "copy", and names of regions."""

    formats = (FORMAT,)
    memory_bytes = 1 << 26

    def __init__(self, name: str = "card") -> None:
        self.name = name
        super().__init__()
        self.log: list[str] = []

    def load(self, artifact: Artifact) -> Any:
        """Load a program, without running it."""
        return CardProgram(artifact)

    def write(self, handle: int, data: memoryview, offset: int = 0) -> None:
        self.log.append("write")
        super().write(handle, data, offset)

    def read(self, handle: int, out: memoryview, offset: int = 0) -> None:
        self.log.append("read")
        super().read(handle, out, offset)

    def copy(self, handle: int, source: Any, from_handle: int, size: int) -> bool:
        done = super().copy(handle, source, from_handle, size)
        self.log += ["copy"] * done
        return done

    def run(self, entry: Any, blocks: Sequence[NDArray], scalars: Sequence[int], threads: int) -> None:
        """Run a region on memory of the card."""
        self.log.append(entry.name)
        symbols = dict.fromkeys(v for p in entry.params for v in p.tensor_type.symbols())
        dims = dict(zip(symbols, scalars, strict=True))
        arrays = []
        for p, block in zip(entry.params, blocks):
            shape = [evaluate_dim(d, dims) for d in p.shape]
            size = math.prod(shape) * p.dtype.itemsize
            arrays.append(block[:size].view(p.dtype.numpy).reshape(shape))
        for result, block in zip(_flat(evaluate(entry, arrays)), blocks[len(arrays) :]):
            block[: result.nbytes] = np.ascontiguousarray(result).reshape(-1).view(np.uint8)


def _flat(value: Value) -> list[NDArray]:
    return [a for item in value for a in _flat(item)] if isinstance(value, tuple) else [value]


class CardPlugin:
    """A plugin with one card and its partitioner. `fields` override those of the partitioner."""

    DLC_API = "0.1"

    def __init__(self, name: str = "card", **fields: Any) -> None:
        self.name = name
        self.card = Card(name)
        self.fields: Mapping[str, Any] = {"compile": compile_region, **fields}

    @hookimpl
    def dlc_targets(self) -> list[TargetKind]:
        limit = Option("limit", "int", LIMIT, "the maximum number of weights of one GEMM")
        return [TargetKind(self.name, "a card", codegen="", device=self.name, options=(limit,))]

    @hookimpl
    def dlc_devices(self) -> list[Card]:
        return [self.card]

    @hookimpl
    def dlc_partitioners(self) -> list[Partitioner]:
        fields: dict[str, Any] = {"patterns": patterns(), **self.fields}
        return [Partitioner(f"{self.name}-dense", self.name, **fields)]


__all__ = ["Card", "CardPlugin", "compile_region", "patterns"]
