"""The best machine for a model within a budget: `python -m dlc_backend_vta.configurations model.onnx`.

    regions = regions_of(model)                       the parts of a quantized model that the card takes
    rows = search_configurations(regions, budget)     each legal machine with its tuned cycles, the best first

The parameters are those of the hardware, as powers of two:

    LOG_BATCH LOG_BLOCK                               shape of the product unit
    LOG_INP_BUFF LOG_WGT_BUFF LOG_ACC_BUFF            KiB of the memories

A budget limits the multipliers and the memories together. For each machine the schedules of all layers are
tuned (`space.tune_layer`), so machines are compared each at its best. A machine whose multipliers alone would
take longer than the best one found so far is not tuned.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import product
from pathlib import Path
from types import MappingProxyType
from typing import Any

import numpy as np

import dlc_core as dlc
from dlc_backend_vta.config import Config
from dlc_backend_vta.layers import Layer
from dlc_backend_vta.lowering import lower
from dlc_backend_vta.search import shape_of
from dlc_backend_vta.space import EVOLUTIONARY, Tuned, tune_layer
from dlc_core.cli.tables import markdown_table
from dlc_core.diag import DlcError, TargetError, UsageError
from dlc_core.graph import Function
from dlc_core.graph.extract import is_region
from dlc_core.ir.module import IRModule
from dlc_core.passes import Pass, PassContext
from dlc_core.testing.networks import cifar

HOST = "reference -level=tir"
"""The host of the compile that finds the regions: no code is made for it."""
LOGS: Mapping[str, Sequence[int]] = MappingProxyType(
    {
        "LOG_BATCH": (0, 1, 2),
        "LOG_BLOCK": (3, 4, 5),
        "LOG_INP_BUFF": (3, 4, 5, 6),
        "LOG_WGT_BUFF": (5, 6, 7, 8),
        "LOG_ACC_BUFF": (4, 5, 6, 7),
    }
)
"""The values that are searched by default."""


@dataclass(frozen=True)
class Budget:
    """The limits of a machine: multipliers of the product unit, KiB of all memories."""

    multipliers: int = 256
    kib: int = 256

    def allows(self, config: Config) -> bool:
        return multipliers_of(config) <= self.multipliers and kib_of(config) <= self.kib


@dataclass(frozen=True)
class Row:
    """A machine and the cycles of a model on it: the sums of its layers' tuned schedules."""

    logs: Mapping[str, int]
    config: Config
    cycles: int
    layers: tuple[Tuned, ...]

    @property
    def utilisation(self) -> float:
        """The part of the multipliers' cycles that multiply numbers of the model."""
        macs = sum(each.plan.layer.macs() for each in self.layers if each.plan.layer.kind == "gemm")
        return macs / multipliers_of(self.config) / self.cycles


@dataclass
class _Regions:
    """A watcher that keeps the functions that a partitioner takes."""

    found: dict[str, Function] = field(default_factory=dict)
    name: str = "vta-regions"

    def before(self, one: Pass, module: IRModule, context: PassContext) -> None:
        """Nothing is read before a pass."""

    def after(self, one: Pass, module: IRModule, context: PassContext) -> None:
        functions = module.of_kind(Function).items()
        self.found.update({name: function for name, function in functions if is_region(function)})


def multipliers_of(config: Config) -> int:
    """The multipliers of the product unit."""
    return config.batch * config.block_in * config.block_out


def kib_of(config: Config) -> int:
    """The KiB of the memories for inputs, weights, accumulators and micro-operations."""
    return config.inp_kb + config.wgt_kb + config.acc_kb + config.uop_kb


def configuration(logs: Mapping[str, int], base: Config) -> Config:
    """A machine with these parameters, the others those of `base`. Raises TargetError if it is not legal."""
    block = 1 << logs["LOG_BLOCK"]
    sizes = {f"{name}_kb": 1 << logs[f"LOG_{name.upper()}_BUFF"] for name in ("inp", "wgt", "acc")}
    return replace(base, batch=1 << logs["LOG_BATCH"], block_in=block, block_out=block, **sizes)


def configurations(
    budget: Budget, logs: Mapping[str, Sequence[int]] = LOGS, base: Config | None = None
) -> Iterator[tuple[dict[str, int], Config]]:
    """The legal machines within a budget, with their parameters."""
    for values in product(*logs.values()):
        chosen = dict(zip(logs, values))
        try:
            config = configuration(chosen, base or Config())
        except TargetError:
            continue
        if budget.allows(config):
            yield chosen, config


def regions_of(model: Any, config: Mapping[str, Any] | None = None) -> list[Function]:
    """The parts of a quantized model that the card takes. `config` are settings of the compile.

    Raises UsageError if it takes none.
    """
    watcher = _Regions()
    with dlc.PassContext(watchers=(watcher,)):
        dlc.compile(model, targets=["vta", HOST], config=dict(config or {}), cache=False)
    if not watcher.found:
        raise UsageError("the card takes no part of the model", hint="quantize it: dlc.quantize(model, ...)")
    return list(watcher.found.values())


def search_configurations(
    regions: Sequence[Function],
    budget: Budget | None = None,
    logs: Mapping[str, Sequence[int]] = LOGS,
    trials: int = 8,
    strategy: str = EVOLUTIONARY,
    base: Config | None = None,
) -> list[Row]:
    """Each machine with the cycles of a model, the best one first. `trials` simulations are made for each of
    its distinct layers.

    Raises UsageError if no machine within the budget runs the model.
    """
    rows: list[Row] = []
    candidates = sorted(
        configurations(budget or Budget(), logs, base), key=lambda each: -multipliers_of(each[1])
    )
    for chosen, config in candidates:
        try:
            layers = [layer for region in regions for layer in lower(region, config).layers]
            macs = sum(layer.macs() for layer in layers if layer.kind == "gemm")
            if rows and macs / multipliers_of(config) > min(row.cycles for row in rows):
                continue
            known: dict[Layer, Tuned] = {}
            for layer in layers:
                if shape_of(layer) not in known:
                    known[shape_of(layer)] = tune_layer(shape_of(layer), config, trials, strategy)
        except DlcError:  # a layer does not fit
            continue
        tuned = tuple(known[shape_of(layer)] for layer in layers)
        rows.append(Row(chosen, config, sum(each.cycles for each in tuned), tuned))
    if not rows:
        raise UsageError("no machine within the budget runs the model", hint="raise the budget")
    return sorted(rows, key=lambda row: (row.cycles, kib_of(row.config)))


def table(rows: Sequence[Row], most: int = 12) -> str:
    """The best rows as Markdown."""
    lines = [
        [
            *map(str, row.logs.values()),
            str(multipliers_of(row.config)),
            str(kib_of(row.config)),
            str(row.cycles),
            f"{row.utilisation:.0%}",
        ]
        for row in rows[:most]
    ]
    return markdown_table([*rows[0].logs, "multipliers", "KiB", "cycles", "utilisation"], lines)


def _example() -> Any:
    """A small quantized convolutional network."""
    image = np.random.default_rng(0).standard_normal((1, 3, 32, 32), np.float32)
    return dlc.quantize(cifar(), calibration=[image], target=HOST)


def main(arguments: Sequence[str] | None = None) -> None:
    """The command."""
    parser = argparse.ArgumentParser(prog="python -m dlc_backend_vta.configurations", description=__doc__)
    parser.add_argument("model", nargs="?", type=Path, help="a quantized model; without it, a small network")
    parser.add_argument("--multipliers", type=int, default=256)
    parser.add_argument("--kib", type=int, default=256, help="of all memories")
    parser.add_argument("--trials", type=int, default=8, help="simulations for each layer on each machine")
    parser.add_argument("--strategy", default=EVOLUTIONARY)
    given = parser.parse_args(arguments)
    regions = regions_of(_example() if given.model is None else given.model)
    rows = search_configurations(
        regions, Budget(given.multipliers, given.kib), trials=given.trials, strategy=given.strategy
    )
    print(table(rows))
    print("best:", " ".join(f"{name}={value}" for name, value in rows[0].logs.items()))


if __name__ == "__main__":
    main()

__all__ = ["LOGS", "Budget", "Row", "configurations", "regions_of", "search_configurations", "table"]
