"""A custom compiler for parts of a model: patterns, predicates, regions, and the rest for the host. The
"matrix unit" of this example computes dense layers of at most 4096 weights. Its compiler makes a list of
instructions of each region, which its device runs in NumPy.
"""

import json
import math
import tempfile
from pathlib import Path

import numpy as np

import dlc_core as dlc
from dlc_core.backend import Partitioner, Region, RegionPattern
from dlc_core.hooks import hookimpl
from dlc_core.plugin.registry import fresh_registry
from dlc_core.rewrite import Match, const_var, match_op, var
from dlc_core.runtime.device import HostMemory
from dlc_core.target import Artifact, Option, Target, TargetKind
from dlc_core.testing.networks import mlp


def fits(found: Match, target: Target) -> bool | str:
    """Whether the unit supports a match: True, or the reason, for `dlc explain`."""
    weights, limit = math.prod(found["w"].shape), target["weights"]
    return weights <= limit or f"{weights} weights, the unit holds {limit}"


def patterns() -> list[RegionPattern]:
    dense = match_op("add", match_op("matmul", var("x"), const_var("w")), const_var("b"))
    return [RegionPattern("dense_relu", match_op("relu", dense), fits), RegionPattern("dense", dense, fits)]


def compile_region(region: Region, target: Target) -> Artifact:
    """Instructions (operation, input, offset and shape of weights and bias), followed by the constants."""
    values = {p: index for index, p in enumerate(region.function.params)}
    constants = bytearray()

    def constant(node) -> list:
        data = np.ascontiguousarray(node.attrs["value"].data)
        constants.extend(data.tobytes())
        return [len(constants) - data.nbytes, list(data.shape)]

    program = []
    for part in region.parts:
        found = part.match
        program.append([part.pattern, values[found["x"]], constant(found["w"]), constant(found["b"])])
        values[found.root] = len(values)
    metadata = {"program": program, "results": [values[r] for r in region.function.results]}
    return Artifact("unit-program", bytes(constants), str(target), (region.name,), metadata=metadata)


class Program:
    """Loaded code. An entry with `evaluate` takes and returns arrays."""

    def __init__(self, artifact: Artifact) -> None:
        self.artifact = artifact

    def entry(self, symbol: str) -> "Program":
        return self

    def close(self) -> None:
        pass

    def evaluate(self, arrays, weights, plan):
        values = list(arrays)
        for operation, x, w, b in self.artifact.metadata["program"]:
            result = values[x] @ self.constant(*w) + self.constant(*b)
            values.append(np.maximum(result, 0) if operation == "dense_relu" else result)
        return [values[index] for index in self.artifact.metadata["results"]]

    def constant(self, offset: int, shape: list[int]) -> np.ndarray:
        return np.frombuffer(self.artifact.code, np.float32, math.prod(shape), offset).reshape(shape)


class Unit(HostMemory):
    """The device: it works in this process's memory."""

    name, formats = "unit", ("unit-program",)

    def load(self, artifact: Artifact) -> Program:
        return Program(artifact)


class Plugin:
    """The object of the package's entry point."""

    DLC_API = "0.1"

    @hookimpl
    def dlc_targets(self):
        limit = Option("weights", "int", 4096, "weights of one layer that the unit holds")
        return [TargetKind("unit", "a matrix unit", codegen="", device="unit", options=(limit,))]

    @hookimpl
    def dlc_devices(self):
        return [Unit()]

    @hookimpl
    def dlc_partitioners(self):
        return [Partitioner("unit-dense", "unit", patterns(), compile_region)]


with fresh_registry({"unit": Plugin()}):  # an installed package does not need this line
    model = mlp()
    x = np.random.default_rng(0).standard_normal((1, 64)).astype(np.float32)
    expected = dlc.compile(model, "reference")(x)

    exe = dlc.compile(model, targets=["unit", "reference"])
    np.testing.assert_allclose(exe(x), expected, rtol=1e-5)
    print(exe.explain())
    print("instructions:", json.dumps(exe.regions["region_0"].artifact.metadata["program"]))

    small = dlc.compile(model, targets=["unit -weights=1000", "reference"])
    np.testing.assert_allclose(small(x), expected, rtol=1e-5)
    print("\nwith room for 1000 weights:", *small.explain().refusals(), sep="\n  ")

    with tempfile.TemporaryDirectory() as folder:
        exe.save(Path(folder) / "mlp.dlc")  # it contains the code of all targets
        np.testing.assert_array_equal(dlc.open(Path(folder) / "mlp.dlc")(x), exe(x))
