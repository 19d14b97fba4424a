"""The regions of a module that other targets compile."""

from __future__ import annotations

from collections.abc import Iterable

from dlc_core.graph.extract import REGION
from dlc_core.graph.node import Function
from dlc_core.ir.module import IRModule
from dlc_core.passes import PassContext
from dlc_core.passes.graph.partition import PARTITIONER
from dlc_core.passes.graph.regions import Candidate
from dlc_core.target import Target


def candidate_of(function: Function, context: PassContext) -> Candidate:
    """The target and the partitioner that took a region."""
    key = function.attrs[REGION], function.attrs[PARTITIONER]
    candidates: Iterable[Candidate] = context.placement.candidates
    return next(one for one in candidates if (str(one.target), one.partitioner.name) == key)


def region_module(function: Function) -> IRModule:
    """A region as a module, which the pipelines of its target compile."""
    return IRModule({"main": Function("main", function.params, function.body)})


def region_context(context: PassContext, target: Target) -> PassContext:
    """The context in which the pipelines of a target compile a region."""
    return context.with_(target=target, placement=None)


__all__ = ["candidate_of", "region_context", "region_module"]
