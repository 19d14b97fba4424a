"""The device of the target `reference`: evaluates modules in NumPy."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from dlc_core.diag import ArtifactError, UsageError
from dlc_core.ir.dtype import dtype
from dlc_core.ir.expr import const_value
from dlc_core.ir.module import IRModule
from dlc_core.op.lookup import registered_ops
from dlc_core.runtime.device import HostMemory
from dlc_core.runtime.guard.failures import RECORD_BYTES, recorded_failure
from dlc_core.runtime.interface.signature import Plan
from dlc_core.support.lazy import lazy
from dlc_core.target import Artifact
from dlc_core.target.reference import GRAPH, TENSOR

if TYPE_CHECKING:
    from dlc_core import graph
    from dlc_core.foreign import resolve
    from dlc_core.op import kernels, reference
    from dlc_core.script import json as from_data
    from dlc_core.tir import interpreter
    from dlc_core.tir.stmt import PrimFunc
else:
    graph = lazy("dlc_core.graph")
    kernels = lazy("dlc_core.op.kernels")
    resolve = lazy("dlc_core.foreign.resolve")
    reference = lazy("dlc_core.op.reference")
    from_data = lazy("dlc_core.script.json")
    interpreter = lazy("dlc_core.tir.interpreter")

Array = np.ndarray[Any, Any]


class ReferenceDevice(HostMemory):
    """Evaluates modules in NumPy. The ops in a module's JSON must be registered."""

    name = "reference"
    formats = (GRAPH, TENSOR)

    def load(self, artifact: Artifact) -> LoadedModule:
        """Load an artefact, without parsing it. The first call parses it, together with the weights."""
        return LoadedModule(artifact)

    def launch(self, entry: Any, buffers: Sequence[int], scalars: Sequence[int], threads: int) -> None:
        """Raises UsageError: entry points of this device are evaluated on arrays."""
        raise UsageError("the reference device evaluates arrays; it cannot launch on buffers")


class LoadedModule:
    """A module that runs on the reference device."""

    def __init__(self, artifact: Artifact) -> None:
        self._artifact = artifact
        self._module: IRModule | None = None
        self._weights: Array | None = None

    def entry(self, symbol: str) -> Entry:
        return Entry(self, symbol, self._artifact)

    def close(self) -> None:
        self._module = None

    def module(self, weights: Array) -> IRModule:
        """The module, whose constants are views of the weights."""
        if self._module is None or self._weights is not weights:
            try:
                data = json.loads(self._artifact.code)
            except (ValueError, RecursionError) as error:
                raise ArtifactError("the module in the artefact is not JSON", why=str(error)) from None
            made = from_data.from_json(data, registered_ops(), self._arrays(weights))
            if not isinstance(made, IRModule):
                raise ArtifactError("the artefact has no module", why=f"it has a {type(made).__name__}")
            self._module, self._weights = made, weights
        return self._module

    def _arrays(self, weights: Array) -> list[Array]:
        arrays = []
        for name, shape, offset in _listed_arrays(self._artifact):
            type_ = dtype(name).numpy
            end = offset + math.prod(shape) * type_.itemsize
            if not 0 <= offset <= end <= weights.nbytes:
                raise ArtifactError(f"an array at bytes {offset}:{end} is outside the weights")
            arrays.append(weights[offset:end].view(type_).reshape(shape))
        return arrays


def _listed_arrays(artifact: Artifact) -> Iterator[tuple[str, list[int], int]]:
    """Dtype, shape and offset of each constant. Raises ArtifactError for other data."""
    listed = artifact.metadata.get("arrays")
    for each in listed if isinstance(listed, list) else [None]:
        match each:
            case [str() as name, list() as shape, int() as offset] if all(
                type(dim) is int and dim >= 0 for dim in shape
            ):
                yield name, shape, offset
            case _:
                why = "'arrays' is no list of dtypes, shapes and offsets"
                raise ArtifactError("the artefact's metadata is malformed", why=why)


class Entry:
    """A function of a module: a graph or a PrimFunc."""

    def __init__(self, loaded: LoadedModule, symbol: str, artifact: Artifact) -> None:
        self._loaded = loaded
        self._symbol = symbol
        check = artifact.metadata.get("check")
        if not isinstance(check, bool):
            raise ArtifactError("the artefact's metadata is malformed", why="'check' is no truth value")
        self._check = check

    def evaluate(self, arrays: Sequence[Array], weights: Array, plan: Callable[[], Plan]) -> list[Array]:
        """Evaluate the function. See `op.reference.evaluate` and `tir.interpreter.run` for the errors."""
        module = self._loaded.module(weights)
        function = module[self._symbol]
        if isinstance(function, graph.Function):
            runner = kernels.KernelRunner(module, check=self._check)
            return _flat(reference.evaluate(function, list(arrays), call_prim=runner))
        return self._run_main(function, module, arrays, weights, plan())

    def _run_main(
        self, main: PrimFunc, module: IRModule, arrays: Sequence[Array], weights: Array, plan: Plan
    ) -> list[Array]:
        outputs = [
            np.empty(shape, buffer.dtype.numpy)
            for shape, buffer in zip(plan.outputs, main.buffers[len(arrays) :])
        ]
        scratch = np.empty(plan.arena, np.uint8)
        record = scratch[:RECORD_BYTES] if plan.sites else scratch[:0]
        record[:] = 0
        used_weights = weights[: const_value(main.buffers[len(arrays) + len(outputs)].num_elements())]
        values: list[Any] = [*arrays, *outputs, used_weights, scratch, *plan.scalars]
        interpreter.run(main, *values, module=module, externs=resolve.Externs(), check=self._check)
        failure = recorded_failure(record.view(np.int64).tolist(), plan.sites) if plan.sites else None
        if failure is not None:
            raise failure
        return outputs


def _flat(value: reference.Value) -> list[Array]:
    return [a for item in value for a in _flat(item)] if isinstance(value, tuple) else [value]


DEVICE = ReferenceDevice()

__all__ = ["DEVICE", "ReferenceDevice"]
