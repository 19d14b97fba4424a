"""External code generation: the parts of a graph that a vendor's compiler takes, and that compiler.

    dense = match_op("relu", match_op("matmul", var("x"), const_var("w")))
    Partitioner("npu-gemm", "npu", [RegionPattern("dense", dense, fits)], compile_region)

The hook `dlc_partitioners` returns such declarations. If a model is compiled for the target kind of a
partitioner, the pass `partition` matches its patterns in the order of declaration. Neighbouring matches
become one region, as long as no value would leave the region and come back. Nodes that a predicate refuses
are offered to the next target. The last target is the host. The reason of the refusal is recorded.

Predicates (`accepts`, `worth`) return True, or the reason of a refusal as text. False is a refusal without a
reason.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from dlc_core.diag import UsageError
from dlc_core.graph.node import Function, Node
from dlc_core.ir.expr import Var
from dlc_core.ir.types import TensorType
from dlc_core.rewrite.pattern import Match, Pattern
from dlc_core.support.record import record
from dlc_core.target.artifact import Artifact
from dlc_core.target.target import Target

Verdict = bool | str
"""True, or the reason of a refusal."""


def _always(*_: object) -> Verdict:
    return True


@record(frozen=True)
class RegionPattern:
    """A pattern of operations that the compiler of a region supports.

    `pattern` matches nodes of the graph after constant folding. Its variables match values from outside the
    region, or constants. `accepts(match, target)` decides by the matched nodes (ops, attributes, dtypes,
    shapes, constants) and the target's options.
    """

    name: str
    pattern: Pattern
    accepts: Callable[[Match, Target], Verdict] = _always

    def __post_init__(self) -> None:
        if not isinstance(self.pattern, Pattern):
            raise UsageError(
                f"the pattern of {self.name!r} is a {type(self.pattern).__name__}",
                hint="make it by match_op, any_op or var of dlc_core.rewrite",
            )


@record(frozen=True)
class Part:
    """One match of a pattern in a region: `match` has nodes of the region's function."""

    pattern: str
    match: Match


@record(frozen=True)
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
        """The symbolic dims. A launch gets them as integers in this order."""
        return tuple(dict.fromkeys(v for t in self.inputs for v in t.symbols()))


@record(frozen=True)
class Partitioner:
    """The parts of a graph that a target takes, and their compiler.

    `target` is the name of a target kind. `compile(region, target)` returns an artefact for the kind's
    device. Its entry point has the region's name. It takes the buffers of inputs, outputs, weights and
    scratch memory (both empty) and the symbols, or has `evaluate`. Without `compile`, the kind's code
    generator compiles the regions. `worth(region, target)` decides whether a merged region pays for its
    transfers. `merge=False` makes each match a separate region.

    `cost(match, target)` predicts the seconds of one match, for placement by cost; without it the cost model
    predicts them from the description of the target.

    With `replacement` there are no regions: `replacement(match, target)` returns a node in place of a match,
    such as a call of a foreign function (`std.call_dps`). It stays in the graph of the target, so a host
    compiles, saves and exports it like other nodes. The node has the type of the match's root, and its
    arguments are nodes of the match.
    """

    name: str
    target: str
    patterns: Sequence[RegionPattern]
    compile: Callable[[Region, Target], Artifact] | None = None
    worth: Callable[[Region, Target], Verdict] = _always
    merge: bool = True
    replacement: Callable[[Match, Target], Node] | None = None
    cost: Callable[[Match, Target], float] | None = None

    def __post_init__(self) -> None:
        patterns = self.patterns
        if not isinstance(patterns, Sequence) or not all(isinstance(p, RegionPattern) for p in patterns):
            raise UsageError(
                f"the patterns of partitioner {self.name!r} are not a list of RegionPattern",
                hint="write patterns=[RegionPattern(name, pattern, accepts)]",
            )

    @property
    def merges(self) -> bool:
        """Whether neighbouring matches become one region."""
        return self.merge and self.replacement is None


__all__ = ["Part", "Partitioner", "Region", "RegionPattern", "Verdict"]
