"""The nodes of a model that a target takes, by its declarations, before the model is compiled.

Partitioners (patterns and predicates), code generators and `Description.dtypes` declare what a target takes.
The compiler's passes up to `partition` read these declarations. This takes milliseconds, so that the kit does
not compile and run all cases of an op on the host if the target takes none of them.
"""

from __future__ import annotations

from dataclasses import replace
from functools import lru_cache

from dlc_core.diag import DlcError
from dlc_core.driver.placement import placement_of
from dlc_core.driver.request import CompileRequest
from dlc_core.driver.stages import context_for, pipelines
from dlc_core.graph.node import Function, Node, functions_of, post_order
from dlc_core.ir.module import IRModule
from dlc_core.ir.types import TensorType, Type
from dlc_core.passes import PassContext, Pipeline
from dlc_core.passes.graph.partition import Partition
from dlc_core.plugin.registry import Registry, registry
from dlc_core.target import Target
from dlc_core.testing.where import Where, where_placed


def is_partial(target: Target) -> bool:
    """Whether compiles for a target divide the model between it and a host."""
    return bool(_request(registry(), target, 3).targets.others)


def taken(module: IRModule, target: Target, opt_level: int = 3) -> Where | None:
    """The nodes of a module that a partial target takes. None if the passes before the division fail: the
    compile then reports the error.
    """
    context, pipeline = _until_partition(registry(), target, opt_level)
    try:
        placed = pipeline.run(module, context).attrs.get("placed")
    except DlcError:
        return None
    if placed is None:
        return None
    found = where_placed(placed, target)
    if found.on or (found.declared and found.nodes):
        return found
    lacking = undeclared_dtypes(module, target)
    if lacking:
        why = f"Description.dtypes does not have {', '.join(lacking)}"
        return replace(found, nodes=max(1, found.nodes), why=why, declared=True)
    return replace(found, nodes=max(1, found.nodes), why=found.why or "it has no operation")


def undeclared_dtypes(module: IRModule, target: Target) -> list[str]:
    """The dtypes of a module's values that the target's description does not list. An empty list in the
    description is no declaration.
    """
    declared = target.describe().dtypes
    if not declared:
        return []
    found: dict[str, None] = {}
    entry = module[module.entry]
    work = [entry] if isinstance(entry, Function) else []
    for function in work:
        for n in post_order(function.body):
            found.update(dict.fromkeys(_dtypes_of(n)))
            work += functions_of(n)
    return [name for name in found if name not in declared]


def _dtypes_of(n: Node) -> list[str]:
    types: list[Type] = [n.type]
    for type_ in types:
        if not isinstance(type_, TensorType):
            types += type_.fields
    return [type_.dtype.name for type_ in types if isinstance(type_, TensorType)]


# The registry is part of the keys, because tests replace it.


@lru_cache(maxsize=8)
def _request(known: Registry, target: Target, opt_level: int) -> CompileRequest:
    return CompileRequest.of(target, opt_level=opt_level, cache=False)


@lru_cache(maxsize=8)
def _until_partition(known: Registry, target: Target, opt_level: int) -> tuple[PassContext, Pipeline]:
    """The pass context of a compile, and the passes up to the division of the graph."""
    request = _request(known, target, opt_level)
    context = context_for(request).with_(placement=placement_of(request.targets))
    passes = pipelines(request.target, context)["graph"].passes
    last = next(i for i, one in enumerate(passes, 1) if one.name == Partition.name)
    return context, Pipeline(passes[:last])


__all__ = ["is_partial", "taken", "undeclared_dtypes"]
