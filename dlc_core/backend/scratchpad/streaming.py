"""Base classes for accelerators that execute streams of commands: a code generator, and a simulated device.

    class NpuCodegen(StreamCodegen):              class NpuDevice(StreamDevice):
        name, kinds, format = …                        name, formats = …

The artefact is the stream of each entry point as JSON. The simulated device executes it in the order of the
times of the commands, and counts cycles.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from dlc_core.backend.scratchpad.checks import check_memories, located
from dlc_core.backend.scratchpad.commands import MAIN, Command, from_data, to_data
from dlc_core.backend.scratchpad.cycles import DISPATCH, Durations, Timing, simulate
from dlc_core.backend.scratchpad.execution import FUNCTIONS, Memories, run
from dlc_core.backend.scratchpad.ordering import ordered
from dlc_core.backend.scratchpad.recording import MOST_COMMANDS, Recorded, record_commands
from dlc_core.backend.scratchpad.tokens import check_tokens, synchronise
from dlc_core.backend.simulated import SimulatedDevice
from dlc_core.diag import ArtifactError, CodegenError
from dlc_core.graph.node import Node
from dlc_core.ir.module import IRModule
from dlc_core.ir.types import TensorType
from dlc_core.runtime.measure.profile import PROFILE_SUFFIX
from dlc_core.runtime.memory.host import NDArray
from dlc_core.target import Artifact, Target
from dlc_core.target.description import Description
from dlc_core.target.units import VECTOR
from dlc_core.tir.stmt import PrimFunc

STREAMS = "streams"


class StreamCodegen:
    """Emits streams of commands for the units of the target's description. A subclass defines `name`,
    `kinds` and `format`.

    `operations` are the elementwise operations of the vector unit. `most_commands` are those of one stream:
    a longer one is an error that names the kernel. `links(a, b)` says whether unit a gives
    tokens to unit b.
    """

    name: str
    kinds: tuple[str, ...]
    format: str
    forms: tuple[str, ...] = ("stream",)
    operations: frozenset[str] = frozenset(FUNCTIONS)
    most_commands: int = MOST_COMMANDS

    def supports(self, node: Node, target: Target) -> bool | str:
        """Whether the units compute a node, or why not. A subclass adds its own reasons."""
        types = [each.type for each in (node, *node.args) if isinstance(each.type, TensorType)]
        if any(tensor.symbols() for tensor in types):
            return "a stream of instructions has constant sizes"
        return True

    def links(self, first: str, second: str) -> bool:
        """Whether a unit can give tokens to another one."""
        return True

    def commands(self, module: IRModule, entry: PrimFunc, machine: Description) -> Recorded:
        """The commands of an entry point, without tokens. Raises CodegenError for operations that the machine
        lacks.
        """
        made = record_commands(module, entry, machine, self.most_commands)
        for command in made.commands:
            for word in command.value if command.work == VECTOR else ():
                if not word.startswith(("x", "#", "cast:")) and word not in self.operations:
                    raise CodegenError(f"{entry.name}: unit {command.unit} has no operation {word!r}")
        return made

    def emit(self, module: IRModule, target: Target) -> Artifact:
        """Write the stream of each entry point. Raises CodegenError for programs that are no commands, or
        do not fit the memories.
        """
        machine = target.describe()
        streams: dict[str, Any] = {}
        for func in module.of_kind(PrimFunc).values():
            if not func.attrs.get("entry") or func.name.endswith(PROFILE_SUFFIX):
                continue
            made = self.commands(module, func, machine)
            order = ordered(made.commands, machine)
            commands = synchronise([made.commands[number] for number in order], self.links)
            check_tokens(commands)
            streams[func.name] = {
                "commands": [to_data(each) for each in commands],
                "kernels": list(made.calls),
                "owner": [made.owner[number] for number in order],
                "slots": dict(made.slots),
            }
        code = json.dumps(streams, separators=(",", ":")).encode()
        sources = {self.forms[0]: lambda: _text(code)}
        return Artifact(self.format, code, str(target), tuple(streams), sources)

    def source(self, artifact: Artifact, form: str) -> str | None:
        """The stream as text; None for other forms."""
        return _text(artifact.code) if form == self.forms[0] else None


def _text(code: bytes) -> str:
    """Streams as text, one command a line."""
    lines = []
    for name, (commands, _, _) in _streams(code).items():
        lines += [f"{name}:", *(f"{i:6} {each}" for i, each in enumerate(commands))]
    return "\n".join(lines)


def _streams(code: bytes) -> dict[str, tuple[tuple[Command, ...], tuple[str, ...], tuple[int, ...]]]:
    """The commands of each entry point, the kernels that it calls, and the call of each command. Raises
    ArtifactError for malformed code.
    """
    try:
        found = {
            str(name): (
                tuple(from_data(each) for each in one["commands"]),
                tuple(map(str, one["kernels"])),
                tuple(map(int, one["owner"])),
            )
            for name, one in json.loads(code).items()
        }
    except (ValueError, TypeError, KeyError, AttributeError) as error:
        raise ArtifactError("the artefact has no streams", why=f"{error!r}") from None
    for commands, kernels, owner in found.values():
        if len(owner) != len(commands) or not all(0 <= n < len(kernels) for n in owner):
            raise ArtifactError("the artefact has no streams", why="kernels and commands do not fit")
    return found


@dataclass(frozen=True)
class StreamEntry:
    """An entry point of a loaded program: its commands, with their times."""

    symbol: str
    commands: tuple[Command, ...]
    timing: Timing
    kernels: tuple[str, ...]
    owner: tuple[int, ...]
    machine: Description

    @property
    def cycles(self) -> int:
        """The cycles of a launch."""
        return self.timing.cycles

    def kernel_cycles(self) -> list[tuple[str, int]]:
        """The cycles from the first start to the last end of each kernel call, in the order of the calls."""
        found: dict[int, tuple[int, int]] = {}
        for (start, end), owner in zip(self.timing.spans, self.owner, strict=True):
            low, high = found.get(owner, (start, end))
            found[owner] = min(low, start), max(high, end)
        return [(self.kernels[owner], high - low) for owner, (low, high) in sorted(found.items())]


class StreamProgram:
    """A program on the device."""

    def __init__(self, entries: Mapping[str, StreamEntry]) -> None:
        self._entries = entries

    def entry(self, symbol: str) -> StreamEntry:
        """An entry point. Raises ArtifactError if there is none with this name."""
        if symbol not in self._entries:
            raise ArtifactError(f"the program has no entry {symbol!r}", hint=", ".join(self._entries))
        return self._entries[symbol]

    def close(self) -> None:
        """Does nothing: the program holds no memory of the device."""


class StreamDevice(SimulatedDevice):
    """A simulated accelerator. A subclass defines `name`, `formats` and `describe`.

    `cycles` counts the cycles of all launches. For hardware, a vendor overrides `run`, and the memory of
    `SimulatedDevice`.
    """

    dispatch = DISPATCH

    def describe(self, target: str) -> Description:
        """The description of the machine for the text of a target."""
        raise NotImplementedError(f"{type(self).__name__}.describe")

    def duration(self, command: Command, machine: Description) -> int:
        """The cycles that a unit takes for a command: by default those of the description."""
        return Durations(machine)(command)

    def load(self, artifact: Artifact) -> StreamProgram:
        """Read the streams and compute their times. Raises ArtifactError for a malformed artefact and for a
        command outside of the memories, and RuntimeFailure for a stream whose tokens do not order its
        commands. Errors name the entry point and the device.
        """
        machine = self.describe(artifact.target)
        entries = {}
        for name, (commands, kernels, owner) in _streams(artifact.code).items():
            with located(f"entry {name!r}", f"device {self.name!r}, as {artifact.target}"):
                check_memories(commands, machine)
                check_tokens(commands)
                timing = simulate(
                    commands,
                    machine,
                    cycles=lambda command: self.duration(command, machine),
                    dispatch=self.dispatch,
                )
            entries[name] = StreamEntry(name, commands, timing, kernels, owner, machine)
        return StreamProgram(entries)

    def launch(self, entry: Any, buffers: Sequence[int], scalars: Sequence[int], threads: int) -> None:
        """Enqueue a call of an entry point. Its errors name the entry point and the device."""
        blocks = [self.memory(handle) for handle in buffers]
        values = tuple(scalars)

        def job() -> None:
            with located(f"entry {entry.symbol!r}", f"device {self.name!r}"):
                self.run(entry, blocks, values, threads)

        self.submit(job)

    def run(self, entry: Any, blocks: Sequence[NDArray], scalars: Sequence[int], threads: int) -> None:
        """Execute an entry point now. `blocks` is the memory of its buffers, as arrays of bytes."""
        count = 1 + max((o.memory for c in entry.commands for o in c.operands if o.space == MAIN), default=-1)
        if count > len(blocks):
            raise ArtifactError(f"{entry.symbol} accesses {count} buffers", why=f"the call has {len(blocks)}")
        run(entry.commands, entry.timing.spans, Memories(entry.machine, blocks))
        self.cycles += entry.cycles


__all__ = ["StreamCodegen", "StreamDevice", "StreamEntry", "StreamProgram"]
