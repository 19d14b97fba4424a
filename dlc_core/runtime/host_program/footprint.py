"""The memory of values between segments of a host program, computed without running it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping

from dlc_core.graph.node import CALL_PRIM, GET, PARAM, TUPLE, Node
from dlc_core.ir.types import TensorType, Type, static_bytes
from dlc_core.runtime.host_program.steps import Steps
from dlc_core.runtime.memory.recycled import class_of

Atom = tuple[Node, int]
"""A tensor of a node's value: the node and the index of the tensor."""
Block = tuple[str, int | None]
"""A device and a size class in bytes; None for symbolic sizes."""


def device_bytes(steps: Steps, devices: Mapping[str, str]) -> dict[str, int | None]:
    """The peak bytes on each device, in blocks of the size classes of `resident.Pool`; None for symbolic
    sizes.
    """
    found: dict[str, int | None] = dict.fromkeys(devices.values(), 0)
    for (device, size), count in _peaks(steps, devices, nested=False).items():
        so_far = found[device]
        found[device] = None if size is None or so_far is None else so_far + size * count
    return found


def host_bytes(steps: Steps, bytes_of: Callable[[TensorType], int | None]) -> int | None:
    """The peak bytes of live values, without params and constants; None if a size is unknown."""
    atoms: dict[Node, list[Atom]] = {}
    holders: Counter[Atom] = Counter()
    sizes: dict[Atom, int] = {}
    live = most = 0

    def atoms_of(n: Node) -> list[Atom]:
        """The tensors of a value. Params and constants, which are seen here first, need no memory."""
        if n not in atoms:
            atoms[n] = [(n, i) for i in range(len(_fields(n.type)))]
            holders.update(atoms[n])
        return atoms[n]

    for n, dead in steps.order:
        given = [atom for arg in n.args for atom in atoms_of(arg)]
        bodies = steps.bodies.get(n, ())
        if n.op in (GET, TUPLE):
            own = [given[n.attrs["index"]]] if n.op is GET else given
        else:
            own = [(n, i) for i in range(len(_fields(n.type)))]
            for atom, type_ in zip(own, _fields(n.type), strict=True):
                size = bytes_of(type_)
                if size is None:
                    return None
                sizes[atom] = size
                live += size
        atoms[n] = own
        holders.update(own)
        inner = [host_bytes(body, bytes_of) for body in bodies]
        if None in inner:
            return None
        # The results of iterations are collected before they are stacked.
        collected = sum(sizes.get(atom, 0) for atom in own) if bodies else 0
        most = max(most, live + collected + max((size or 0 for size in inner), default=0))
        for arg in dead:
            holders.subtract(atoms[arg])
            live -= sum(sizes.pop(atom, 0) for atom in atoms[arg] if not holders[atom])
    return most


def _peaks(steps: Steps, devices: Mapping[str, str], nested: bool) -> Counter[Block]:
    """The maximum number of live blocks of each kind over all steps. The caller of a body keeps its inputs
    alive.
    """
    atoms: dict[Node, list[Atom]] = {}
    holders: Counter[Atom] = Counter()
    held_on: dict[Atom, set[str]] = {}
    live: Counter[Block] = Counter()
    peaks: Counter[Block] = Counter()

    def atoms_of(n: Node) -> list[Atom]:
        """The tensors of a value. Params and constants are seen here first."""
        if n not in atoms:
            atoms[n] = [(n, i) for i in range(len(_fields(n.type)))]
            holders.update(atoms[n])
        return atoms[n]

    def put(atom: Atom, device: str) -> None:
        if device not in held_on.setdefault(atom, set()):
            held_on[atom].add(device)
            block = _block(atom, device)
            live[block] += 1
            peaks[block] = max(peaks[block], live[block])

    for n, dead in steps.order:
        given = [atom for arg in n.args for atom in atoms_of(arg)]
        if n.op is GET:
            own = [given[n.attrs["index"]]]
        elif n.op is TUPLE:
            own = given
        else:
            own = [(n, i) for i in range(len(_fields(n.type)))]
        atoms[n] = own
        holders.update(own)
        if n.op is CALL_PRIM and n.attrs["symbol"] in devices:
            for atom in (*given, *own):
                put(atom, devices[n.attrs["symbol"]])
        for body in steps.bodies.get(n, ()):
            for block, count in _peaks(body, devices, nested=True).items():
                peaks[block] = max(peaks[block], live[block] + count)
        for arg in dead:
            if nested and arg.op is PARAM:
                continue
            holders.subtract(atoms[arg])
            for atom in atoms[arg]:
                if not holders[atom]:
                    live.subtract(_block(atom, device) for device in held_on.pop(atom, ()))
    return peaks


def _fields(type_: Type) -> tuple[TensorType, ...]:
    if isinstance(type_, TensorType):
        return (type_,)
    return tuple(field for each in type_.fields for field in _fields(each))


def _block(atom: Atom, device: str) -> Block:
    n, index = atom
    size = static_bytes(_fields(n.type)[index])
    return device, None if size is None else class_of(size)


__all__ = ["device_bytes", "host_bytes"]
