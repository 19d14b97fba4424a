"""The memory of values between segments of a host program, computed without running it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping

from dlc_core.graph.node import CALL_PRIM, GET, PARAM, TUPLE, Node
from dlc_core.ir.types import TensorType, Type, static_bytes
from dlc_core.runtime.host_program.steps import Steps
from dlc_core.runtime.memory.recycled import class_of

Leaf = tuple[Node, int]
"""A tensor of a node's value, which may be a nested tuple: the node and the index of the tensor."""
Block = tuple[str, int | None]
"""A device and a size class in bytes; None for symbolic sizes."""


class _Leaves:
    """The tensors of values, with the number of live values that contain each of them."""

    def __init__(self) -> None:
        self._leaves: dict[Node, list[Leaf]] = {}
        self._references: Counter[Leaf] = Counter()

    def operands(self, n: Node) -> list[Leaf]:
        """The tensors of a node's arguments. Params and constants are counted at their first use."""
        for arg in n.args:
            if arg not in self._leaves:
                self._add(arg, [(arg, i) for i in range(len(_fields(arg.type)))])
        return [leaf for arg in n.args for leaf in self._leaves[arg]]

    def run(self, n: Node) -> list[Leaf]:
        """Count the tensors of a node's value."""
        if n.op is GET:
            return self._add(n, [self.operands(n)[n.attrs["index"]]])
        if n.op is TUPLE:
            return self._add(n, self.operands(n))
        return self._add(n, [(n, i) for i in range(len(_fields(n.type)))])

    def drop(self, n: Node) -> list[Leaf]:
        """Count a value as dead. Returns its tensors that no live value contains."""
        self._references.subtract(self._leaves[n])
        return [leaf for leaf in self._leaves[n] if not self._references[leaf]]

    def _add(self, n: Node, leaves: list[Leaf]) -> list[Leaf]:
        self._leaves[n] = leaves
        self._references.update(leaves)
        return leaves


def device_bytes(steps: Steps, devices: Mapping[str, str]) -> dict[str, int | None]:
    """The peak bytes on each device, in blocks of the size classes of `resident.Pool`; None for symbolic
    sizes.
    """
    found: dict[str, int | None] = dict.fromkeys(devices.values(), 0)
    for (device, size), count in _peaks(steps, devices, nested=False).items():
        total = found[device]
        found[device] = None if size is None or total is None else total + size * count
    return found


def host_bytes(steps: Steps, bytes_of: Callable[[TensorType], int | None]) -> int | None:
    """The peak bytes of live values, without params and constants; None if a size is unknown."""
    leaves = _Leaves()
    sizes: dict[Leaf, int] = {}
    live = peak = 0
    for n, dead in steps.order:
        leaves.operands(n)
        own = leaves.run(n)
        if n.op not in (GET, TUPLE):
            for leaf, type_ in zip(own, _fields(n.type), strict=True):
                size = bytes_of(type_)
                if size is None:
                    return None
                sizes[leaf] = size
                live += size
        bodies = [host_bytes(body, bytes_of) for body in steps.bodies.get(n, ())]
        if None in bodies:
            return None
        # The results of iterations are collected before they are stacked.
        collected = sum(sizes.get(leaf, 0) for leaf in own) if bodies else 0
        peak = max(peak, live + collected + max((size or 0 for size in bodies), default=0))
        for arg in dead:
            live -= sum(sizes.pop(leaf, 0) for leaf in leaves.drop(arg))
    return peak


def _peaks(steps: Steps, devices: Mapping[str, str], nested: bool) -> Counter[Block]:
    """The maximum number of live blocks of each kind over all steps. The caller of a body keeps its inputs
    alive.
    """
    leaves = _Leaves()
    devices_of: dict[Leaf, set[str]] = {}
    live: Counter[Block] = Counter()
    peaks: Counter[Block] = Counter()
    for n, dead in steps.order:
        tensors = [*leaves.operands(n), *leaves.run(n)]
        if n.op is CALL_PRIM and n.attrs["symbol"] in devices:
            device = devices[n.attrs["symbol"]]
            for leaf in tensors:
                if device not in devices_of.setdefault(leaf, set()):
                    devices_of[leaf].add(device)
                    block = _block(leaf, device)
                    live[block] += 1
                    peaks[block] = max(peaks[block], live[block])
        for body in steps.bodies.get(n, ()):
            for block, count in _peaks(body, devices, nested=True).items():
                peaks[block] = max(peaks[block], live[block] + count)
        for arg in dead:
            if nested and arg.op is PARAM:
                continue
            for leaf in leaves.drop(arg):
                live.subtract(_block(leaf, holder) for holder in devices_of.pop(leaf, ()))
    return peaks


def _fields(type_: Type) -> tuple[TensorType, ...]:
    """The tensor types in a type, which may be a nested tuple."""
    if isinstance(type_, TensorType):
        return (type_,)
    return tuple(field for each in type_.fields for field in _fields(each))


def _block(leaf: Leaf, device: str) -> Block:
    n, index = leaf
    size = static_bytes(_fields(n.type)[index])
    return device, None if size is None else class_of(size)


__all__ = ["device_bytes", "host_bytes"]
