"""The memory of a call, computed before the call.

    exe.memory.scratch, exe.memory.results      bytes, as expressions over the dims
    exe.memory.maximum                          the maximum over all calls, if all dims are bounded
    exe.memory.at(batch=8, length=512)          the maximum over calls with these sizes

Scratch memory holds intermediate values. Inputs belong to the caller, and weights
(`exe.signature.weights_size`) exist once. Memory that a device allocates internally is not counted, such as
that of NumPy for the target `reference` and for ops that run on the host.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from dlc_core.diag import UsageError, bytes_text
from dlc_core.ir.dtype import STRING
from dlc_core.ir.expr import Expr, Var, const, const_value, free_vars
from dlc_core.ir.types import TensorType
from dlc_core.runtime.artefact.compiled import CompiledModel
from dlc_core.support.lazy import lazy

if TYPE_CHECKING:
    from dlc_core import arith
    from dlc_core.runtime.host_program import program as hosted
else:
    arith = lazy("dlc_core.arith")
    hosted = lazy("dlc_core.runtime.host_program.program")


@dataclass(frozen=True)
class Bytes:
    """The bytes of one call."""

    scratch: int
    results: int

    @property
    def total(self) -> int:
        return self.scratch + self.results

    def __str__(self) -> str:
        return f"{bytes_text(self.scratch)} of scratch, {bytes_text(self.results)} of results"


class CallMemory:
    """The memory of one call of an executable."""

    def __init__(self, exe: CompiledModel) -> None:
        self._exe = exe
        signature = exe.signature
        self.dims: tuple[Var, ...] = signature.dims
        """The dims that calls give a value."""
        self.results: Expr | None = _total(value.type for value in signature.outputs)
        """The bytes of the results; None if they are strings."""
        self.scratch: Expr | None = signature.arena_size if exe.program is None else None
        """The bytes of scratch memory; None if the host runs parts of the model (see `maximum` and `at`)."""

    @property
    def maximum(self) -> Bytes | None:
        """The maximum over all calls; None if a dim that it depends on has no upper bound."""
        return self._maximum({})

    def at(self, sizes: Mapping[str, int] | None = None, /, **named: int) -> Bytes:
        """An upper bound of the memory of calls with these sizes, given by the names of dims. Other dims may
        have all values within their bounds.

        The bound is exact if the dims of all inputs are given and no size depends on data.  Raises UsageError
        for unknown names, wrong sizes, and remaining dims without bounds.
        """
        given = {**(sizes or {}), **named}
        known = {var.name: var for var in self.dims}
        for name, size in given.items():
            if name not in known:
                raise UsageError(f"there is no dim {name!r}", hint=f"dims: {', '.join(known) or 'none'}")
            bounds = known[name].bounds
            if isinstance(size, bool) or not isinstance(size, int) or size < 0:
                raise UsageError(f"dim {name!r} is {size!r}, which is not a size")
            if bounds is not None and not bounds.admits(size):
                raise UsageError(f"{name} is {size}, and the model is compiled for {name} in {bounds}")
        found = self._maximum(given)
        if found is None:
            unbounded = [v.name for v in self._unbounded() if v.name not in given]
            raise UsageError(
                f"the memory depends on {', '.join(unbounded) or 'strings'}",
                why="there is no upper bound for it",
                hint="give it here, or bounds for dims when compiling: shapes={name: (1, 512)}",
            )
        return found

    def record(self) -> dict[str, Any]:
        """All facts as JSON data."""
        maximum = self.maximum
        return {
            "scratch": None if self.scratch is None else str(self.scratch),
            "results": None if self.results is None else str(self.results),
            "maximum": None if maximum is None else {"scratch": maximum.scratch, "results": maximum.results},
        }

    def __str__(self) -> str:
        texts = [
            f"{_bytes_text(size)} of {what}"
            for what, size in (("scratch", self.scratch), ("results", self.results))
            if size is not None
        ]
        maximum = self.maximum
        if maximum is not None and not all(
            size is not None and const_value(size) is not None for size in (self.scratch, self.results)
        ):
            texts.append(f"at most {maximum}")
        return ", ".join(texts)

    def _unbounded(self) -> list[Var]:
        """The dims without upper bounds that sizes depend on."""
        sizes = [size for size in (self.scratch, self.results) if size is not None]
        return [v for v in free_vars(*sizes) if v.bounds is None or v.bounds.high is None]

    def _maximum(self, given: Mapping[str, int]) -> Bytes | None:
        exe = self._exe
        ranges = {name: (size, size) for name, size in given.items()}
        for var, size, _ in exe.signature.data_dims:
            _add_bound(ranges, var, size)
        if exe.program is not None:
            for count, size in hosted.data_dim_bounds(exe.program, exe.weights):
                _add_bound(ranges, count, size)
        results = None if self.results is None else upper(self.results, ranges)
        if self.scratch is not None:
            scratch = upper(self.scratch, ranges)
        else:
            scratch = _program_bytes(exe, given, ranges)
        return None if scratch is None or results is None else Bytes(scratch, results)


def upper(size: Expr, ranges: Mapping[str, tuple[int, int]]) -> int | None:
    """The maximum of a size; None if it has no upper bound.

    Dims are within `ranges`, given by their names, and within their bounds.
    """
    known = const_value(size)
    if known is not None:
        return known
    analyzer = arith.Analyzer()
    for var in free_vars(size):
        analyzer.declare_dim(var, *ranges.get(var.name, (0, None)))
    high = analyzer.quick_bounds(size)[1]
    return None if math.isinf(high) else max(0, int(high))


def _add_bound(ranges: dict[str, tuple[int, int]], var: Var, size: Expr) -> None:
    """Add the upper bound `size` of a dim to the ranges. Several dims may have the same name."""
    high = upper(size, ranges)
    if high is not None:
        ranges[var.name] = 0, max(high, ranges.get(var.name, (0, 0))[1])


def _total(types: Iterable[TensorType]) -> Expr | None:
    """The bytes of tensors; None if one has strings."""
    total: Expr = const(0)
    for type_ in types:
        if type_.dtype is STRING:
            return None
        constant = math.prod(dim for dim in type_.shape if isinstance(dim, int)) * type_.dtype.itemsize
        size: Expr = const(1)
        for dim in type_.shape:
            size = size if isinstance(dim, int) else size * dim
        total = total + size * constant
    return total


def _program_bytes(
    exe: CompiledModel, given: Mapping[str, int], ranges: Mapping[str, tuple[int, int]]
) -> int | None:
    """The peak bytes of a host program: the scratch memory of its segments, and the live values
    between them.
    """
    assert exe.program is not None
    parts = [upper(own.arena_size, ranges) for own in exe.program.segments.values()]
    for region in exe.regions.values():
        maximum = CallMemory(region)._maximum(given)
        parts.append(None if maximum is None else maximum.total)

    def bytes_of(type_: TensorType) -> int | None:
        size = _total([type_])
        return None if size is None else upper(size, ranges)

    lanes = hosted.lanes_of(exe.device, {name: region.device for name, region in exe.regions.items()})
    parts.append(hosted.host_bytes_of(exe.program, exe.weights, (*exe.regions,), bytes_of, lanes))
    known = [part for part in parts if part is not None]
    return sum(known) if len(known) == len(parts) else None


def _bytes_text(size: Expr) -> str:
    known = const_value(size)
    return f"{size} bytes" if known is None else bytes_text(known)


__all__ = ["Bytes", "CallMemory", "upper"]
