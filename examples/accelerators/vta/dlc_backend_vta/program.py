"""Compiled regions: instructions, constants, and what the device must know, as an artefact.

The code is the constants (weights in blocks, vectors, micro-operations) and then the instructions.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

from dlc_backend_vta.config import INSTRUCTION_BYTES, Config
from dlc_backend_vta.decision import decide
from dlc_backend_vta.generate import Generator, stream
from dlc_backend_vta.isa import Instruction, decode_all, encode_all
from dlc_backend_vta.lowering import ALIGN, CONSTANTS, FIRST, lower
from dlc_backend_vta.model import predict
from dlc_core.diag import ArtifactError, TargetError
from dlc_core.graph import Function
from dlc_core.target import Artifact, Target

FORMAT = "vta-stream"
MOST_REGISTERS = 256


@dataclass(frozen=True)
class Program:
    """The input of the card: sizes in bytes of constants, of memory between layers, of inputs and outputs."""

    config: Config
    constants: bytes
    scratch: int
    buffers: tuple[int, ...]
    instructions: list[Instruction]


def compile_function(name: str, function: Function, target: Target) -> Artifact:
    """The artefact of a region: its layers in their order, each under the schedule that was decided."""
    config = Config.of(target.values())
    made = lower(function, config)
    constants = bytearray(made.constants)
    code: list[Instruction] = []
    layers: list[dict[str, Any]] = []
    for number, layer in enumerate(made.layers):
        plan = decide(layer, config)
        at = len(constants)
        generator = Generator(plan, CONSTANTS, at)
        constants += generator.uops().tobytes()
        constants += bytes(-len(constants) % ALIGN)
        begin = len(code)
        code += stream(generator, follows=number > 0, ends=number == len(made.layers) - 1)
        layers.append(
            {
                "name": layer.name,
                "kind": layer.kind,
                "schedule": str(plan.tiling),
                "macs": layer.macs() if layer.kind == "gemm" else 0,
                "predicted": predict(plan),
                "instructions": len(code) - begin,
            }
        )
    values = (*function.params, *function.results)
    if len(values) + FIRST > MOST_REGISTERS:
        raise TargetError(f"{name} has {len(values)} inputs and outputs", why=f"of {MOST_REGISTERS - FIRST}")
    buffers = [math.prod(int(d) for d in v.shape) * v.dtype.itemsize for v in values]
    metadata = {
        "config": asdict(config),
        "constants": len(constants),
        "scratch": made.scratch,
        "buffers": buffers,
        "layers": layers,
    }
    sources = {"vta": listing(code)}
    return Artifact(FORMAT, bytes(constants) + encode_all(code), str(target), (name,), sources, metadata)


def listing(code: Sequence[Instruction]) -> str:
    """A stream as text."""
    return "\n".join(f"{number:6} {one}" for number, one in enumerate(code))


def read_program(artifact: Artifact) -> Program:
    """The program of an artefact; ArtifactError where it is malformed."""
    try:
        given = artifact.metadata
        config = Config(**given["config"])
        size, scratch = int(given["constants"]), int(given["scratch"])
        buffers = tuple(int(each) for each in given["buffers"])
    except (KeyError, TypeError, ValueError, TargetError) as error:
        raise ArtifactError("the artefact is no program of this card", why=f"{error!r}") from None
    rest = len(artifact.code) - size
    if min((size, scratch, rest, *buffers)) < 0 or rest % INSTRUCTION_BYTES:
        raise ArtifactError("the code of the artefact is cut short", why=f"{rest} bytes of instructions")
    return Program(config, artifact.code[:size], scratch, buffers, decode_all(artifact.code[size:]))


__all__ = ["FORMAT", "Program", "compile_function", "listing", "read_program"]
