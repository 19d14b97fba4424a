"""A simulation of the commands of a stream on arrays of bytes.

Commands run in the order of their times, not in that of the stream: a command reads its sources when it
starts and writes its target when it ends. A stream that lacks a token therefore computes with wrong
numbers, as it would on hardware.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from dlc_core.backend.scratchpad.checks import located
from dlc_core.backend.scratchpad.commands import MAIN, Command, Operand
from dlc_core.diag import RuntimeFailure
from dlc_core.ir.dtype import dtype
from dlc_core.target.description import Description
from dlc_core.target.units import LOAD, PRODUCT, STORE

NDArray = np.ndarray[Any, Any]

FUNCTIONS: Mapping[str, tuple[int, Callable[..., Any]]] = {
    "add": (2, np.add), "sub": (2, np.subtract), "mul": (2, np.multiply), "min": (2, np.minimum), "max": (2,
    np.maximum), "floordiv": (2, np.floor_divide), "shr": (2, np.right_shift), "shl": (2, np.left_shift),
    "bitand": (2, np.bitwise_and), "bitor": (2, np.bitwise_or), "bitxor": (2, np.bitwise_xor), "eq": (2,
    np.equal), "ne": (2, np.not_equal), "lt": (2, np.less), "le": (2, np.less_equal), "gt": (2, np.greater),
    "ge": (2, np.greater_equal), "and": (2, np.logical_and), "or": (2, np.logical_or), "div": (2,
    np.divide), "select": (3, np.where), "neg": (1, np.negative), "not": (1, np.logical_not), "bitnot": (1,
    np.invert), "abs": (1, np.abs), "sqrt": (1, np.sqrt), "exp": (1, np.exp), "log": (1, np.log), "tanh":
    (1, np.tanh), "floor": (1, np.floor), "ceil": (1, np.ceil), "round": (1, np.rint),
}  # fmt: skip
"""The elementwise operations of the simulation: number of operands, and function."""


class Memories:
    """The memories of a simulated accelerator. `main` are the buffers of a call as arrays of bytes."""

    def __init__(self, machine: Description, main: Sequence[NDArray]) -> None:
        self.main = main
        self.chip = {name: np.full(size, 0xA5, np.uint8) for name, size in machine.capacities.items()}

    def view(self, operand: Operand, box: Sequence[tuple[int, int]]) -> NDArray:
        """The elements of an operand in a box of iterations, as a view. Raises RuntimeFailure for elements
        outside of the memory.
        """
        memory = self.main[operand.memory] if operand.space == MAIN else self.chip.get(operand.space)
        begin, end = operand.interval(box)
        if memory is None or begin < 0 or end > memory.size:
            size = "none" if memory is None else f"{memory.size}"
            raise RuntimeFailure(
                f"bytes {begin} to {end} of {operand.space or 'main memory'}", why=f"it has {size}"
            )
        of = dtype(operand.dtype).numpy
        first = operand.offset + sum(s * low for s, (low, _) in zip(operand.strides, box, strict=True))
        shape = [high - low for low, high in box]
        backwards = sum(min(0, s * (n - 1)) for s, n in zip(operand.strides, shape, strict=True))
        flat = memory[first + backwards : end]
        count = flat.size // of.itemsize * of.itemsize
        typed = flat[:count].view(of)
        view: NDArray = np.lib.stride_tricks.as_strided(
            typed[-backwards // of.itemsize :], shape, operand.strides
        )
        return view


def run(commands: Sequence[Command], spans: Sequence[tuple[int, int]], memories: Memories) -> None:
    """Execute commands at their times. `spans` has the start and the end of each. Raises RuntimeFailure, with
    the command, for one that fails.
    """
    events = [(start, 1, i) for i, (start, _) in enumerate(spans)] + [
        (end, 0, i) for i, (_, end) in enumerate(spans)
    ]
    # A command of no cycles ends after it starts.
    events.sort(key=lambda e: (e[0], 2 if not e[1] and spans[e[2]][0] == e[0] else e[1], e[2]))
    pending: dict[int, NDArray] = {}
    with np.errstate(all="ignore"):
        for _, starts, i in events:
            command = commands[i]
            with located(f"command {i}", command):
                if starts:
                    pending[i] = result(command, memories)
                else:
                    memories.view(command.target, command.whole)[...] = pending.pop(i)


def result(command: Command, memories: Memories) -> NDArray:
    """The elements that a command writes, from the present contents of the memories."""
    whole = command.whole
    if command.work in (LOAD, STORE):
        return _copied(command, memories)
    if command.work == PRODUCT:
        return _product(command, memories)
    sources = [memories.view(each, whole) for each in command.sources]
    value: NDArray = np.broadcast_to(evaluate(command.value, sources), command.extents).copy()
    return value


def _copied(command: Command, memories: Memories) -> NDArray:
    (source,) = command.sources
    if not command.inside:
        copied: NDArray = memories.view(source, command.whole).copy()
        return copied
    made = np.full(command.extents, _number(command.value[0]), dtype(source.dtype).numpy)
    if all(begin < end for begin, end in command.inside):
        made[tuple(slice(*span) for span in command.inside)] = memories.view(source, command.inside)
    return made


def _product(command: Command, memories: Memories) -> NDArray:
    target, left, right = command.operands
    of = dtype(target.dtype).numpy
    # Sums of products of bytes are exact in float64, which NumPy multiplies fast.
    wide = np.float64 if of.kind in "iu" else of
    names = "abcdefghijklmnop"[: len(command.extents)]
    arrays, texts = [], []
    for operand in (left, right):
        box = [(0, n if s else 1) for n, s in zip(command.extents, operand.strides, strict=True)]
        kept = [i for i, stride in enumerate(operand.strides) if stride]
        view = memories.view(operand, box)
        arrays.append(view.reshape([view.shape[i] for i in kept]).astype(wide))
        texts.append("".join(names[i] for i in kept))
    out = [i for i, stride in enumerate(target.strides) if stride]
    made = np.einsum(f"{','.join(texts)}->{''.join(names[i] for i in out)}", *arrays, optimize=True)
    if of.kind in "iu":
        made = made.astype(np.int64).astype(of)
    made = made.reshape([n if s else 1 for n, s in zip(command.extents, target.strides, strict=True)])
    if not command.fresh:
        box = [(0, n if s else 1) for n, s in zip(command.extents, target.strides, strict=True)]
        made = made + memories.view(target, box)
    return np.broadcast_to(made, command.extents)


def evaluate(words: Sequence[str], sources: Sequence[NDArray]) -> NDArray:
    """The value of a postfix program. Raises RuntimeFailure for an unknown operation."""
    stack: list[Any] = []
    for word in words:
        if word.startswith("x"):
            stack.append(sources[int(word[1:]) - 1])
        elif word.startswith("#"):
            stack.append(_number(word))
        elif word.startswith("cast:"):
            stack.append(np.asarray(stack.pop()).astype(dtype(word[5:]).numpy))
        elif word in FUNCTIONS:
            count, function = FUNCTIONS[word]
            operands = stack[len(stack) - count :]
            del stack[len(stack) - count :]
            stack.append(function(*operands))
        else:
            raise RuntimeFailure(
                f"the vector unit has no operation {word!r}", hint=f"known: {', '.join(FUNCTIONS)}"
            )
    return np.asarray(stack.pop())


def _number(word: str) -> Any:
    text, _, name = word[1:].rpartition(":")
    of = dtype(name).numpy
    return of.type(text == "True" if of.kind == "b" else float(text) if of.kind in "fV" else int(text))


__all__ = ["FUNCTIONS", "Memories", "evaluate", "result", "run"]
