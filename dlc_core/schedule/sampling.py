"""Sampling primitives: random choices that the trace records as decisions, so that a tuner can vary them."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence

from dlc_core.diag import ScheduleError
from dlc_core.ir.expr import const_value
from dlc_core.schedule import compute_at as moving
from dlc_core.schedule import query
from dlc_core.schedule.handles import BlockRV, Drawn, LoopRV
from dlc_core.schedule.traced import Traced, primitive
from dlc_core.schedule.tree import Program


class Sampling(Traced):
    """The sampling primitives; equal seeds give equal decisions."""

    @primitive
    def sample_perfect_tile(
        self, loop: LoopRV, n: int, max_innermost_factor: int = 16, decision: Sequence[int] | None = None
    ) -> list[Drawn]:
        """Draw `n` factors, outer to inner, whose product is the constant extent of a loop.

        Every choice with an innermost factor of at most `max_innermost_factor` is equally likely.
        `decision` gives the factors instead of drawing them.
        """
        stmt = self._program.loop(loop)
        what = f"cannot sample {n} factors of loop {loop.name!r}"
        extent = const_value(stmt.extent)
        if extent is None or extent < 1:
            why = f"its extent {stmt.extent} is not a positive constant"
            raise self._program.error(what, stmt, why=why)
        if n < 1 or max_innermost_factor < 1 or (n == 1 and extent > max_innermost_factor):
            why = f"with n = {n} and an innermost factor of at most {max_innermost_factor} there are none"
            raise self._program.error(what, stmt, why=why)
        chosen = self._factors(extent, n, max_innermost_factor) if decision is None else list(decision)
        if len(chosen) != n or any(f < 1 for f in chosen) or math.prod(chosen) != extent:
            raise self._program.error(
                what,
                stmt,
                why=f"{chosen} are not {n} positive factors of {extent}",
                hint="decision=None draws new ones",
            )
        chosen = [int(f) for f in chosen]
        self._record(loop, n, max_innermost_factor=max_innermost_factor, decision=chosen)
        return [Drawn(f) for f in chosen]

    def _factors(self, extent: int, count: int, limit: int) -> list[int]:
        primes = _prime_powers(extent)
        if count == 1:
            return [extent]
        inner = [d for d in _divisors(primes) if d <= limit]
        weights = []
        for divisor in inner:
            powers = _prime_powers(extent // divisor).values()
            weights.append(math.prod(math.comb(power + count - 2, count - 2) for power in powers))
        last = self._draw().choices(inner, weights)[0]
        factors = [1] * (count - 1)
        for prime, power in _prime_powers(extent // last).items():
            # Choose uniformly how many of the prime each factor gets (stars and bars).
            bars = sorted(self._draw().sample(range(power + count - 2), count - 2))
            ends = [-1, *bars, power + count - 2]
            for part, (low, high) in enumerate(itertools.pairwise(ends)):
                factors[part] *= prime ** (high - low - 1)
        return [*factors, last]

    @primitive
    def sample_categorical(
        self, candidates: Sequence[int], probs: Sequence[float] | None = None, decision: int | None = None
    ) -> Drawn:
        """Draw one of the candidates with the given relative probabilities.

        `decision` gives the index of the candidate instead of drawing it.
        """
        weights = [1.0] * len(candidates) if probs is None else [float(p) for p in probs]
        if not candidates or len(weights) != len(candidates):
            raise ScheduleError(
                f"cannot sample one of {len(candidates)} candidates with {len(weights)} probabilities"
            )
        if not all(0 <= w < math.inf for w in weights) or sum(weights) <= 0:
            raise ScheduleError(f"{weights} are no probabilities")
        if decision is None:
            decision = self._draw().choices(range(len(candidates)), weights)[0]
        if not 0 <= decision < len(candidates):
            raise ScheduleError(
                f"decision {decision} is the number of none of the {len(candidates)} candidates"
            )
        self._record(list(candidates), None if probs is None else list(probs), decision=int(decision))
        return Drawn(candidates[decision])

    @primitive
    def sample_compute_location(self, block: BlockRV, decision: int | None = None) -> LoopRV | None:
        """Draw a loop into which `compute_at` may move the block, or None to leave it where it is.

        `decision` is the index of the loop among the possible ones, outer before inner, or -1 for None.
        """
        locations = _locations(self._program, block)
        if decision is None:
            decision = self._draw().randrange(-1, len(locations))
        if not -1 <= decision < len(locations):
            raise self._program.error(
                f"cannot take place {decision} for block {block.name!r}",
                self._program.block(block),
                why=f"it may be computed at {len(locations)} loops",
                hint="decision=None draws a new one",
            )
        self._record(block, decision=int(decision))
        return None if decision < 0 else locations[decision]


def _locations(program: Program, block: BlockRV) -> list[LoopRV]:
    """The loops around the readers of a block into which `compute_at` may move it."""
    program.block(block)
    loops = [loop for user in query.consumers(program, block) for loop in query.loops_of(program, user)]
    return [loop for loop in dict.fromkeys(loops) if _allowed(program, block, loop)]


def _allowed(program: Program, block: BlockRV, loop: LoopRV) -> bool:
    trial = Program(program.func)
    try:
        moving.compute_at(trial, block, loop)
    except ScheduleError:
        return False
    return True


def _prime_powers(value: int) -> dict[int, int]:
    powers: dict[int, int] = {}
    prime = 2
    while prime * prime <= value:
        while value % prime == 0:
            powers[prime] = powers.get(prime, 0) + 1
            value //= prime
        prime += 1
    if value > 1:
        powers[value] = powers.get(value, 0) + 1
    return powers


def _divisors(primes: dict[int, int]) -> list[int]:
    found = [1]
    for prime, power in primes.items():
        found = [d * prime**p for d in found for p in range(power + 1)]
    return sorted(found)


__all__ = ["Sampling"]
