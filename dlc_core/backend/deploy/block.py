"""The steps of one function of a host program in C: the program itself, or a body of control flow."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from dlc_core.backend.deploy.memory import Memory
from dlc_core.backend.deploy.steps import (
    Branch,
    Copy,
    DevicePlace,
    HostPlace,
    Launch,
    Loop,
    Move,
    Native,
    Read,
    Reserve,
    Step,
    Write,
)
from dlc_core.backend.deploy.values import Leaf, Value, Values
from dlc_core.graph.node import CALL_PRIM, Function, Node, functions_of
from dlc_core.ir.expr import Expr, const_value
from dlc_core.runtime.host_program.steps import Steps


class Block:
    """The steps of a function, and where its results are.

    `places` are the locations of its params on the host. `targets` are the locations of its results: a
    result is computed there if it can be. The caller copies the others, and then calls `close`.
    """

    def __init__(
        self,
        memory: Memory,
        steps: Steps,
        function: Function,
        places: Sequence[HostPlace],
        targets: Sequence[HostPlace] = (),
    ) -> None:
        self.steps: list[Step] = []
        self._memory = memory
        self._values = Values(memory.base)
        given = iter(places)
        for p in function.params:
            self._values.add(p, [next(given)], owned=False)
        self._run(steps, function.results, targets)

    def _run(self, steps: Steps, results: Sequence[Node], targets: Sequence[HostPlace]) -> None:
        values = self._values
        order = [n for n, _ in steps.order]
        last: dict[Leaf, int] = {}
        for i, n in enumerate(order):
            last.update(dict.fromkeys(values.operands(n), i))
            values.leaves(n)
        finals = [leaf for r in results for leaf in values.leaves(r)]
        last.update(dict.fromkeys(finals, len(order)))
        for leaf, place in zip(finals, targets):
            value = values[leaf]
            computed = leaf[0].op is CALL_PRIM or bool(functions_of(leaf[0]))
            if computed and value.target is None:
                value.target = place
        self.results = [values[leaf] for leaf in finals]
        for i, n in enumerate(order):
            if n.op is CALL_PRIM:
                self._call(n)
            elif functions_of(n):
                self._control(n, steps)
            else:
                continue
            for leaf in dict.fromkeys((*values.operands(n), *values.leaves(n))):
                if last.get(leaf, i) <= i:
                    self._release(values[leaf])

    def close(self) -> None:
        """Free the memory of the results."""
        for value in dict.fromkeys(self.results):
            self._release(value)

    # Values

    def to_host(self, value: Value) -> HostPlace:
        """The place of a value on the host. If necessary, it is copied."""
        if value.host is None:
            place = next(iter(value.on.values()))
            value.host = self._host_place(value)
            self.steps.append(Read(value.host, place.index, value.size))
        return value.host

    def _host_place(self, value: Value) -> HostPlace:
        return value.target or HostPlace("slot", self._memory.host.take(value.size))

    def _to_device(self, value: Value, device: int) -> DevicePlace:
        if device in value.on:
            return value.on[device]
        memory, steps = self._memory, self.steps
        if value.host is not None and value.host.kind == "constant":
            size = int(const_value(value.size) or 0)
            place = DevicePlace("constant", memory.constant(device, value.host.index, size))
        elif value.host is not None:
            place = self._slot(device, value.size)
            steps.append(Write(place.index, value.host, value.size))
        else:
            source = next(iter(value.on.values()))
            place = self._slot(device, value.size)
            buffer = memory.host.take(value.size)
            steps.append(Move(place.index, source.index, HostPlace("slot", buffer), value.size))
            memory.host.give(buffer)
        value.on[device] = place
        return place

    def _slot(self, device: int, size: Expr) -> DevicePlace:
        slot = self._memory.take(device, size)
        self.steps.append(Reserve(slot, size))
        return DevicePlace("slot", slot)

    def _release(self, value: Value) -> None:
        """Free the memory of a value that no later step uses."""
        if value.host is not None and value.host.kind == "slot" and value.owned and value.target is None:
            self._memory.host.give(value.host.index)
        for device, place in value.on.items():
            if place.kind == "slot":
                self._memory.give(device, place.index)
        value.on.clear()

    # Calls

    def _call(self, n: Node) -> None:
        memory, symbol = self._memory, n.attrs["symbol"]
        scalars, scratch = memory.call_sizes(n)
        has_scratch, sites = const_value(scratch) != 0, memory.first_site(symbol)
        inputs = [self._values[leaf] for leaf in self._values.operands(n)]
        made = [self._values[leaf] for leaf in self._values.leaves(n)]
        if symbol not in memory.devices:
            places = tuple(self.to_host(value) for value in inputs)
            for value in made:
                value.host = self._host_place(value)
            outputs = tuple(value.host for value in made if value.host is not None)
            arena = memory.native_arena if has_scratch else None
            self.steps.append(Native(symbol, places, outputs, arena, scalars, sites))
            return
        device = memory.devices[symbol]
        given = tuple(self._to_device(value, device) for value in inputs)
        for value in made:
            value.on[device] = self._slot(device, value.size)
        results = tuple(value.on[device] for value in made)
        slot = None
        if has_scratch:
            slot = memory.arena(device, scratch)
            self.steps.append(Reserve(slot, scratch))
        self.steps.append(Launch(memory.regions[symbol], given, results, slot, scalars, sites))

    # Control flow

    def _control(self, n: Node, steps: Steps) -> None:
        bodies = dict(zip((k for k, v in n.attrs.items() if isinstance(v, Function)), steps.bodies[n]))
        places = [self.to_host(self._values[leaf]) for leaf in self._values.operands(n)]
        made = [self._values[leaf] for leaf in self._values.leaves(n)]
        for value in made:
            value.host = self._host_place(value)
        results = [value.host for value in made if value.host is not None]
        if n.op.name == "if_":
            sides = [
                self._side(n, bodies, name, places[1:], results) for name in ("then_branch", "else_branch")
            ]
            self.steps.append(Branch(places[0], *sides))
            return
        for value, place in zip(made, places, strict=True):
            assert value.host is not None
            self.steps.append(Copy(value.host, place, value.size))
        condition = Block(self._memory, bodies["cond"], n.attrs["cond"], results)
        decided = condition.to_host(condition.results[0])
        condition.close()
        body = self._body(n, bodies, results)
        self.steps.append(Loop(tuple(condition.steps), decided, tuple(body.steps)))

    def _side(
        self,
        n: Node,
        bodies: Mapping[str, Steps],
        name: str,
        places: Sequence[HostPlace],
        results: Sequence[HostPlace],
    ) -> tuple[Step, ...]:
        """The steps of a branch, which writes its results."""
        block = Block(self._memory, bodies[name], n.attrs[name], places, results)
        for value, to in zip(block.results, results, strict=True):
            found = block.to_host(value)
            if found != to:
                block.steps.append(Copy(to, found, value.size))
        block.close()
        return tuple(block.steps)

    def _body(self, n: Node, bodies: Mapping[str, Steps], state: Sequence[HostPlace]) -> Block:
        """The steps of an iteration. The new state is copied when all of it is known."""
        block = Block(self._memory, bodies["body"], n.attrs["body"], state)
        found = [block.to_host(value) for value in block.results]
        host = self._memory.host
        held: list[int] = []
        for i, (value, place) in enumerate(zip(block.results, found, strict=True)):
            if place in state and place != state[i]:  # another part of the old state
                held.append(host.take(value.size))
                found[i] = HostPlace("slot", held[-1])
                block.steps.append(Copy(found[i], place, value.size))
        for value, place, to in zip(block.results, found, state, strict=True):
            if place != to:
                block.steps.append(Copy(to, place, value.size))
        for slot in held:
            host.give(slot)
        block.close()
        return block


__all__ = ["Block"]
