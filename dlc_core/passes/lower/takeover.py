"""New values in the memory of updated inputs: which tensors are written there, and in which order steps run.

A kernel without the copy of its input (`updates`) writes there anyway. Any other new value reaches the memory
by a copy, the last step that mentions it. The copy is left out if the kernel of the value can write there:
all other readers of the input can run before, and the kernel reads each element of the input only for the
store of the same element (`tir.in_place`), or does not read it.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

from dlc_core.diag import PassError
from dlc_core.graph.node import CALL_PRIM, Function, Node, post_order
from dlc_core.graph.updates import updates_of
from dlc_core.op.std.bands import JOIN_BANDS
from dlc_core.passes.lower.control import is_step
from dlc_core.passes.lower.hazards import Hazards, TensorRef, memory_of, tensors_read
from dlc_core.passes.lower.joins import is_join
from dlc_core.passes.lower.updates import arguments_of
from dlc_core.passes.lower.views import origin
from dlc_core.support.record import record

Pairs = Mapping[Node, Sequence[tuple[int, int]]]
"""For kernel calls: pairs of an input and an output, as parameter indices."""


@record(frozen=True)
class Takeover:
    """The tensors that are in the memory of another one, each with that one; and the steps in order."""

    memory: Mapping[TensorRef, TensorRef]
    order: tuple[Node, ...]


def takeover(
    function: Function, in_place: Pairs, overwrites: Pairs, windows: Collection[TensorRef]
) -> Takeover:
    """Decide which kernels write into the memory of the inputs that a function updates.

    `in_place` are pairs that must be one memory, `overwrites` pairs that may be. `windows` are tensors that
    are in other memory anyway. Raises PassError if a value would be overwritten before its last read.
    """
    return _Planner(function, in_place, overwrites, windows).run()


class _Planner:
    def __init__(
        self, function: Function, in_place: Pairs, overwrites: Pairs, windows: Collection[TensorRef]
    ) -> None:
        self.function, self.in_place, self.overwrites = function, in_place, overwrites
        nodes = list(post_order(function.body))
        self.hazards = Hazards(function.body, [n for n in nodes if is_step(n)])
        self.results = [memory_of(result) for result in function.results]
        inner = {memory_of(arg) for n in nodes if is_join(n) or n.op is JOIN_BANDS for arg in n.args}
        self.fixed = inner.union(windows, self.results)
        """Tensors whose memory cannot be chosen."""
        self.memory: dict[TensorRef, TensorRef] = {}

    def run(self) -> Takeover:
        left_out: set[Node] = set()
        for call, pairs in self.in_place.items():
            arguments = arguments_of(call)
            for source, output in pairs:
                self._overwrite(arguments[source], call)
                self.memory[call, output - len(arguments)] = arguments[source]
        for source, output in updates_of(self.function):
            own, made = (self.function.params[source], 0), origin(self.function.results[output])
            if made in self.memory:
                continue
            value = origin(made[0].args[0])
            if self._can_write(value, made, own):
                self.memory[value], self.memory[made] = own, value
                left_out.add(made[0])
            else:
                self._overwrite(own, made[0])
                self.memory[made] = own
        return Takeover(self.memory, tuple(self.hazards.order(left_out)))

    def _overwrite(self, tensor: TensorRef, writer: Node) -> None:
        if not self.hazards.overwrite(tensor, writer):
            raise PassError(f"{tensor[0]!r} is read after {writer!r} overwrites it", spans=writer.spans)

    def _can_write(self, value: TensorRef, made: TensorRef, own: TensorRef) -> bool:
        """Whether the kernel of a value can write it into the memory of an input. `made` is its copy."""
        call = value[0]
        if call.op is not CALL_PRIM or value in self.fixed or value in self.memory:
            return False
        if self.hazards.readers.get(made):
            return False
        arguments = arguments_of(call)
        read = [memory for arg in call.args for memory in tensors_read(arg)]
        if own in read:
            pairs = [
                source
                for source, output in self.overwrites.get(call, ())
                if output - len(arguments) == value[1]
            ]
            if read.count(own) > 1 or not any(arguments[source] == own for source in pairs):
                return False
        return self.hazards.overwrite(own, call)


__all__ = ["Takeover", "takeover"]
