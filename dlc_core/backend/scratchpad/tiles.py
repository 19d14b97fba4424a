"""The choice of tiles for a contraction on scratchpads, by a formula.

    for tile of m, for tile of n:            or n outside; the operand of the outer loops may stay on the chip
        for chunk of k:
            load left, load right            both double-buffered
            product
        load what the epilogue reads
        epilogue, store                      double-buffered

Units run at the same time, so the time is that of the busiest one, and that of what cannot overlap: the
first loads, the last epilogue and store, and loads of an operand that stays, as far as the products at that
time are shorter. Where tiles share banks, units wait for each other, and the cycles of all are added.

    cycles = max(loads, products, epilogues, stores, dispatch) + first loads + last epilogue and store
             + exposed loads
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from functools import lru_cache

from dlc_core.backend.scratchpad.allocation import aligned
from dlc_core.backend.scratchpad.candidates import LEFT, RIGHT, Tiling, tilings
from dlc_core.backend.scratchpad.cycles import DISPATCH
from dlc_core.backend.scratchpad.problem import BATCH, Footprint, K, M, N, Problem
from dlc_core.decisions import Decision
from dlc_core.diag import ScheduleError
from dlc_core.support.record import record
from dlc_core.target.description import Description
from dlc_core.target.units import LOAD, PRODUCT, STORE, VECTOR, MemoryScope, Unit

Slots = tuple[int, int]
"""How many tiles exist at once: of operands and results, and of sums."""
PART = 8 << 10
"""The bytes of a part of a result that the epilogue computes at once."""
SMALL = 8 << 10
"""The most bytes of a tensor of the epilogue that stays on the chip for all tiles."""


@record(frozen=True)
class Scopes:
    """The memory of operands and results, and that of sums."""

    operands: MemoryScope
    sums: MemoryScope


@record(frozen=True)
class Plan:
    """A schedule of a problem on a machine, with its needs and its predicted cycles."""

    problem: Problem
    tiling: Tiling
    machine: Description
    scopes: Scopes

    @property
    def sizes(self) -> dict[int, int]:
        """The tile by the number of the axis."""
        return dict(enumerate(self.tiling.tile))

    @property
    def text(self) -> str:
        """The tile as M x N x K."""
        sizes = [math.prod(self.tiling.tile[a.number] for a in self.problem.of(role)) for role in (M, N, K)]
        return "x".join(map(str, sizes))

    def count(self, *roles: str) -> int:
        """The number of tiles over all axes of some roles."""
        return math.prod(
            -(-a.extent // self.tiling.tile[a.number]) for r in roles for a in self.problem.of(r)
        )

    def stays(self, extra: Footprint) -> bool:
        """Whether a tensor of the epilogue is loaded once for all tiles, as biases are."""
        rows = any(extra.uses(axis) for role in (M, BATCH) for axis in self.problem.of(role))
        return not rows and extra.bytes(self.whole) <= SMALL

    @property
    def whole(self) -> dict[int, int]:
        """The extents of all axes, as a tile."""
        return {axis.number: axis.extent for axis in self.problem.axes}

    @property
    def part(self) -> dict[int, int]:
        """The tile of the epilogue: a part of the tile of sums, along the first dim of the result. It divides
        the extent of its axis and the tile, so that parts are whole also in the last tile.
        """
        sizes, p = self.sizes, self.problem
        first = next((terms[0][0] for terms in p.target.steps if terms and sizes[terms[0][0]] > 1), None)
        if first is None or not p.operations:
            return sizes
        tile, extent = sizes[first], p.axes[first].extent
        row = p.target.bytes(sizes) // p.target.itemsize * p.result_bytes // tile
        common = math.gcd(tile, extent)
        fitting = [n for n in range(1, common + 1) if common % n == 0 and n * row <= PART]
        return {**sizes, first: max(fitting, default=1)} if tile * row > PART else sizes

    @property
    def parts(self) -> int:
        """The parts of a tile that the epilogue computes one after the other."""
        return math.prod(-(-a // b) for a, b in zip(self.sizes.values(), self.part.values(), strict=True))

    def kept(self, side: str) -> dict[int, int]:
        """The tile of an operand: with all of K if it stays on the chip."""
        sizes = self.sizes
        if self.tiling.keep == side:
            sizes.update((a.number, a.extent) for a in self.problem.of(K))
        return sizes

    def needs(self, slots: Slots = (2, 2), shared: bool = False) -> dict[str, int]:
        """The bytes of each scope, with up to `slots` tiles of each operand or result, and of sums. Each tile
        has banks of its own, or all share them.
        """
        p = self.problem
        tiles = self.count(M, N, BATCH)
        left = self.count(M, BATCH) if self.tiling.keep == LEFT else tiles * self.count(K)
        right = self.count(N, BATCH) if self.tiling.keep == RIGHT else tiles * self.count(K)
        own = [(p.left.bytes(self.kept(LEFT)), left), (p.right.bytes(self.kept(RIGHT)), right)]
        own += [
            (extra.bytes(self.whole), 1)
            if self.stays(extra)
            else (extra.bytes(self.part), tiles * self.parts)
            for extra in p.extras
        ]
        sums = p.target.bytes(self.sizes)
        if p.operations:
            size = p.target.bytes(self.part) // p.target.itemsize * p.result_bytes
            own.append((size, tiles * self.parts))
        scopes = self.scopes

        def taken(size: int, scope: MemoryScope) -> int:
            return aligned(size, scope) if shared else scope.taken(size)

        one, other = scopes.operands, scopes.sums
        found = {one.name: sum(min(slots[0], n) * taken(size, one) for size, n in own)}
        found[other.name] = found.get(other.name, 0) + min(slots[1], tiles) * taken(sums, other)
        return found

    def problem_text(self, slots: Slots = (1, 1), shared: bool = True) -> str:
        """Why the tile does not fit, also if tiles share banks or if they do not; empty if it does."""
        for name, size in self.needs(slots, shared).items():
            capacity = self.machine.capacities.get(name, 0)
            if size > capacity:
                return f"tile {self.text} needs {size:,} bytes of {name}, it has {capacity:,}"
        return ""

    def slots(self, shared: bool = False) -> Slots | None:
        """The most slots that fit; None if the tile does not fit once."""
        if self.problem_text((1, 1), shared):
            return None
        return next((slots for slots in ((2, 2), (2, 1)) if not self.problem_text(slots, shared)), (1, 1))

    def alternates(self, slots: Slots) -> bool:
        """Whether all tiles of one step are in one bank, and those of the next step in another one: a bank is
        then filled while units use the other one. Chunks of K share their sums, so that there is one chunk.
        """
        if slots != (2, 2) or self.tiling.keep or self.count(K) > 1 or self.parts > 1:
            return False
        needs = self.needs((1, 1), shared=True)
        scopes = (self.scopes.operands, self.scopes.sums)
        return all(needs[scope.name] <= scope.bank_bytes for scope in scopes)

    def cycles(self, slots: Slots = (2, 2), shared: bool = False) -> int:
        """The predicted cycles with these slots. Units wait for each other if tiles share banks. Commands are
        dispatched one by one while units work. The dispatch of a product counts as work: a product that waits
        for its loads starts no earlier.
        """
        p, machine, sizes = self.problem, self.machine, self.sizes
        load, array = machine.unit_for(LOAD), machine.unit_for(PRODUCT)
        store, vector = machine.unit_for(STORE), machine.unit_for(VECTOR)
        tiles, chunks = self.count(M, N, BATCH), self.count(K)
        # Tiles at the edges are smaller: work is counted as a mean over all tiles, fixed costs for each.
        part = math.prod(a.extent / sizes[a.number] for a in p.axes) / (tiles * chunks)
        share = math.prod(a.extent / sizes[a.number] for a in p.axes if a.role != K) / tiles

        def moved(footprint: Footprint, tile: Mapping[int, int], mean: float) -> float:
            whole = load.copy_cycles(*footprint.runs(tile), self.scopes.operands)
            fixed = load.copy_cycles(0, 0, self.scopes.operands)
            return fixed + (whole - fixed) * mean

        left = moved(p.left, self.kept(LEFT), share if self.tiling.keep == LEFT else part)
        right = moved(p.right, self.kept(RIGHT), share if self.tiling.keep == RIGHT else part)
        rows, columns, depth = (math.prod(sizes[a.number] for a in p.of(role)) for role in (M, N, K))
        work = array.startup + (array.product_cycles(rows, columns, depth) - array.startup) * part
        steps, batches = tiles * chunks, self.count(BATCH)
        lefts = batches * self.count(M) if self.tiling.keep == LEFT else steps
        rights = batches * self.count(N) if self.tiling.keep == RIGHT else steps
        part_of, parts = self.part, self.parts
        beside = parts * sum(moved(extra, part_of, share) for extra in p.extras if not self.stays(extra))
        loads = lefts * left + rights * right + tiles * beside
        others = sum(not self.stays(extra) for extra in p.extras)
        ends = tiles * parts * (1 + bool(p.operations) + others)
        dispatch, work = DISPATCH * (lefts + rights + steps + ends), work + DISPATCH
        elements = p.target.bytes(part_of) // p.target.itemsize
        tail = parts * (vector.vector_cycles(elements, p.operations) if p.operations else 0)
        stored = parts * store.copy_cycles(*p.target.runs(part_of), self.scopes.operands)
        if slots[0] == 1 or (shared and not self.alternates(slots)):
            return round(max(dispatch, loads + steps * work + tiles * (tail + stored)))
        # With one tile of sums, products wait for the epilogue of the tile before.
        products = steps * work + (tiles * (tail or stored) * share if slots[1] == 1 else 0)
        exposed = 0.0
        if self.tiling.keep:
            again = self.count(M if self.tiling.keep == LEFT else N, BATCH) - 1
            whole = left if self.tiling.keep == LEFT else right
            exposed = again * max(0.0, whole - 2 * work)
        busy: dict[str, float] = {}
        for unit, own in (
            (load, loads),
            (array, products),
            (vector, tiles * tail * share),
            (store, tiles * stored * share),
        ):
            busy[unit.name] = busy.get(unit.name, 0.0) + own
        return round(max(dispatch, *busy.values()) + left + right + tail + stored / parts + exposed)


TILES = Decision(
    "scratchpad.tiles",
    "The tile of a contraction in scratchpads, and the operand that stays on the chip: M x N x K.",
    ("streamed", LEFT, RIGHT),
    has_values=True,
)
SHOWN = 8
"""How many plans the report of the choice has."""


def choose(problem: Problem, machine: Description, scopes: Scopes) -> Plan:
    """The plan with the fewest predicted cycles. Raises ScheduleError if no tile fits."""
    ranked = _ranked(problem, machine.units, machine.memory_scopes, scopes)
    found = [Plan(problem, tiling, machine, scopes) for _, tiling in ranked]
    cycles = dict(zip((plan.tiling for plan in found), (predicted for predicted, _ in ranked), strict=True))
    return TILES.pick(
        found[0],
        lambda: found,
        lambda plan: plan.tiling.keep or "streamed",
        lambda plan: plan.text,
        cost=lambda plan: cycles[plan.tiling],
    )


@lru_cache(maxsize=1024)
def _ranked(
    problem: Problem,
    units: tuple[Unit, ...],
    memory_scopes: tuple[str | MemoryScope, ...],
    scopes: Scopes,
) -> tuple[tuple[int, Tiling], ...]:
    """The best plans with their predicted cycles, and the best one of each alternative. A kernel is scheduled
    several times, so the result is kept.
    """
    machine = Description(units=units, memory_scopes=memory_scopes)
    fitting: list[tuple[int, int, Tiling]] = []
    smallest: tuple[int, Plan] | None = None
    # Tiles share banks only if no plan gives each of them banks of its own.
    for shared in (False, True):
        for number, plan in enumerate(plans(problem, machine, scopes)):
            slots = plan.slots(shared)
            if slots is not None:
                fitting.append((plan.cycles(slots, shared), number, plan.tiling))
            elif shared and not fitting:
                size = sum(plan.needs((1, 1), shared).values())
                if smallest is None or size < smallest[0]:
                    smallest = size, plan
        if fitting:
            break
    if not fitting:
        assert smallest is not None
        raise ScheduleError(f"no tile fits: {smallest[1].problem_text()}")
    fitting.sort(key=lambda each: each[:2])
    best = {tiling.keep: (cycles, tiling) for cycles, _, tiling in reversed(fitting)}
    shown = [(cycles, tiling) for cycles, _, tiling in fitting[:SHOWN]]
    return tuple(dict.fromkeys([*shown, *best.values()]))


def check(plan: Plan) -> None:
    """Raise ScheduleError for a plan that does not fit. The error names the next smaller tile that does."""
    why = plan.problem_text()
    if not why:
        return
    tile = list(plan.tiling.tile)
    order = [a for role in (K, N, M) for a in plan.problem.of(role)]
    hint = "use larger memories"
    while any(tile[a.number] > 1 for a in order):
        axis = max(
            order, key=lambda a: (tile[a.number] > 1, a.role == K and tile[a.number] > 16, tile[a.number])
        )
        tile[axis.number] = -(-tile[axis.number] // 2)
        smaller = Plan(plan.problem, Tiling(tuple(tile), plan.tiling.keep), plan.machine, plan.scopes)
        if not smaller.problem_text():
            hint = f"{smaller.text} fits"
            break
    raise ScheduleError(why, hint=hint)


def plans(problem: Problem, machine: Description, scopes: Scopes) -> Iterator[Plan]:
    """The plans that `choose` compares, also those that do not fit."""
    for tiling in tilings(problem, *machine.unit_for(PRODUCT).shape):
        yield Plan(problem, tiling, machine, scopes)


__all__ = ["LEFT", "RIGHT", "TILES", "Plan", "Scopes", "Tiling", "check", "choose", "plans"]
