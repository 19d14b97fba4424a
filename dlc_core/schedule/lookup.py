"""Buffers of a block, by number or by name."""

from __future__ import annotations

from dlc_core.ir.buffer import Buffer
from dlc_core.schedule.tree import Program
from dlc_core.tir.stmt import Block


def buffer_of(program: Program, block: Block, kind: str, index: int | str) -> Buffer:
    """A buffer among the declared reads or writes of a block, by index or name."""
    if kind not in ("read", "write"):
        raise program.error(f"{kind!r} is no kind of access", block, hint='"read" or "write"')
    regions = block.reads if kind == "read" else block.writes
    found = list(dict.fromkeys(r.buffer for r in regions))
    if isinstance(index, str):
        matching = [i for i, b in enumerate(found) if b.name == index]
        index = matching[0] if len(matching) == 1 else -1
    if not 0 <= index < len(found):
        names = ", ".join(f"{i}: {b.name}" for i, b in enumerate(found)) or "none"
        raise program.error(f"block {block.name!r} has no such {kind}", block, hint=f"it has {names}")
    return found[index]


def named_buffer(program: Program, block: Block, name: str) -> Buffer:
    """The buffer with this name that a block reads or writes."""
    found = {r.buffer for r in (*block.reads, *block.writes) if r.buffer.name == name}
    if len(found) != 1:
        names = ", ".join(sorted({r.buffer.name for r in (*block.reads, *block.writes)})) or "nothing"
        raise program.error(
            f"block {block.name!r} has no one buffer {name!r}", block, hint=f"it touches {names}"
        )
    return found.pop()


def one_buffer(program: Program, block: Block, buffer: str | tuple[str, int]) -> Buffer:
    """The buffer that a name, ("read", n) or ("write", n) identifies."""
    if isinstance(buffer, str):
        return named_buffer(program, block, buffer)
    return buffer_of(program, block, *buffer)


__all__ = ["buffer_of", "named_buffer", "one_buffer"]
