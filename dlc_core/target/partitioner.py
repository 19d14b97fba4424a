"""External code generation: which parts of a graph a vendor's own compiler takes, and that compiler.

    dense = match_op("relu", match_op("matmul", var("x"), const_var("w")))
    Partitioner("npu-gemm", "npu", [RegionPattern("dense", dense, fits)], compile_region)

The hook `dlc_partitioners` returns such declarations.  Where a model is compiled for the target kind of one,
the pass `partition` looks for its patterns, first those declared first; neighbouring matches become one
region, as far as no value would have to leave a region and come back.  What a predicate refuses is offered to
the next target, the last of which is the host, and the reason is kept.

Predicates (`accepts`, `worth`) answer True, or the reason of a refusal as text; False is a refusal without
one.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from dlc_core.graph.node import Function
from dlc_core.ir.expr import Var
from dlc_core.ir.types import TensorType
from dlc_core.rewrite.pattern import Match, Pattern
from dlc_core.target.artifact import Artifact
from dlc_core.target.target import Target

Verdict = bool | str
"""True, or why not."""


def _always(*_: object) -> Verdict:
    return True


@dataclass(frozen=True)
class RegionPattern:
    """Operations that the compiler of a region knows as one.

    `pattern` is over nodes of the graph after folding; what its variables stand for are values from outside,
    or constants.  `accepts(match, target)` looks at the matched nodes (ops, attributes, dtypes, shapes,
    constants) and the target's options.
    """

    name: str
    pattern: Pattern
    accepts: Callable[[Match, Target], Verdict] = _always


@dataclass(frozen=True)
class Part:
    """One match of a pattern in a region: `match` has nodes of the region's function."""

    pattern: str
    match: Match


@dataclass(frozen=True)
class Region:
    """A part of a model for one device: a closed function, with its constants in it.

    `parts` are the matches of which it consists, in an order of execution: each node of the function but
    params, constants, tuples and their fields is in exactly one.
    """

    name: str
    function: Function
    parts: tuple[Part, ...] = ()

    @property
    def inputs(self) -> tuple[TensorType, ...]:
        """The types of its parameters."""
        return tuple(p.tensor_type for p in self.function.params)

    @property
    def outputs(self) -> tuple[TensorType, ...]:
        """The types of its results."""
        return tuple(r.tensor_type for r in self.function.results)

    @property
    def symbols(self) -> tuple[Var, ...]:
        """The symbolic dims, which a launch gets as integers, in this order."""
        return tuple(dict.fromkeys(v for t in self.inputs for v in t.symbols()))


@dataclass(frozen=True)
class Partitioner:
    """The parts of a graph that a target takes, and their compiler.

    `target` is the name of a target kind.  `compile(region, target)` gives an artefact for the kind's device,
    with an entry point of the region's name that takes the buffers of inputs, outputs, weights and scratch
    memory (both empty) and the symbols, or has `evaluate`; without it regions take the ordinary way of the
    kind.  `worth(region, target)` says whether a merged region is worth its transfers.  `merge` False keeps
    every match a region of its own.
    """

    name: str
    target: str
    patterns: Sequence[RegionPattern]
    compile: Callable[[Region, Target], Artifact] | None = None
    worth: Callable[[Region, Target], Verdict] = _always
    merge: bool = True


__all__ = ["Part", "Partitioner", "Region", "RegionPattern", "Verdict"]
