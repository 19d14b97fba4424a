"""From a model to a module: the frontend that reads it, and what a request says about it."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dlc_core.diag import UntrustedError, UsageError
from dlc_core.driver.request import CompileRequest
from dlc_core.ir.module import IRModule
from dlc_core.plugin.registry import registry
from dlc_core.support.lazy import lazy

if TYPE_CHECKING:
    import dlc_core.graph.node as nodes
    from dlc_core.graph import donate as donating
    from dlc_core.graph import resize
    from dlc_core.passes.graph import check_module as checks
else:
    checks = lazy("dlc_core.passes.graph.check_module")
    donating = lazy("dlc_core.graph.donate")
    nodes = lazy("dlc_core.graph.node")
    resize = lazy("dlc_core.graph.resize")


def load(
    model: Any,
    *,
    frontend: str | None = None,
    shapes: Mapping[str, Any] | None = None,
    importers: Sequence[Any] = (),
    taps: Sequence[str] = (),
    trust: bool = False,
    **reading: Any,
) -> IRModule:
    """Read a model into an IRModule.

    `model` is a path (its suffix selects the frontend), bytes, or a frontend's in-memory form.  `shapes` pins
    and bounds dims: it maps the name of a dim to an int or to (low, high), where None is an open end, or the
    name of an input to its shape of ints, pairs, names and None.  `importers` import operators that the
    frontend does not know, in addition to those of plugins (hook `dlc_importers`).  `taps` are names of nodes
    or values that become additional outputs.  `trust` allows frontends that run code of files, such as those
    that unpickle, to read a file.  `reading` are further arguments of the frontend, those that its attribute
    `options` lists.  Raises UntrustedError for a file that such a frontend would read without `trust`,
    ModelError for a malformed file, and UnsupportedError with the names of all nodes that cannot be imported.
    """
    if isinstance(model, nodes.Function):
        model = IRModule.of(model)
    if isinstance(model, IRModule):
        if taps:
            raise UsageError("taps need a model, and this is a module", hint="load the model with taps=[...]")
        if reading:
            raise UsageError(f"a module takes no {next(iter(reading))!r}", why="no frontend reads it")
        return resize.with_shapes(checks.check_module(model), shapes)
    reader = reader_of(model, frontend)
    if not trust:
        _check_harmless(reader, model)
    context: dict[str, Any] = {**reading, "shapes": dict(shapes or {})}
    if importers:
        context["importers"] = tuple(importers)
    if taps:
        context["taps"] = tuple(taps)
    unknown = [name for name in context if name not in getattr(reader, "options", ("shapes",))]
    if unknown:
        known = ", ".join(getattr(reader, "options", ("shapes",)))
        raise UsageError(f"the frontend {reader.name!r} takes no {unknown[0]!r}", hint=f"it takes: {known}")
    with nodes.using_context(nodes.GraphContext()):
        result: IRModule = reader.load(model, context)
    return result


def requested(model: Any, request: CompileRequest, reading: Mapping[str, Any] | None = None) -> IRModule:
    """The module of a model, as a request has it read; `reading` are further arguments of the frontend."""
    found = load(
        model,
        frontend=request.frontend,
        shapes=request.shapes,
        importers=request.importers,
        taps=request.taps,
        trust=request.trust,
        **(reading or {}),
    )
    return donating.donate(found, request.donate) if request.donate else found


def _check_harmless(reader: Any, model: Any) -> None:
    """Raise UntrustedError if the reader may run code of the file."""
    if not getattr(reader, "runs_files", False) or not isinstance(model, (str, os.PathLike, bytes)):
        return
    what = "these bytes are" if isinstance(model, bytes) else f"{os.fspath(model)} is"
    if isinstance(model, bytes) or Path(model).exists():
        raise UntrustedError(
            f"{what} not read without trust=True",
            why=f"the frontend {reader.name!r} reads it by a library that runs code of hostile files",
            hint="if you trust its author as you trust a program's: trust=True, or --trust",
        )


def reader_of(model: Any, name: str | None) -> Any:
    """The frontend of this name, or the one that takes the model."""
    known = registry()
    if name is not None:
        return known.frontends[name]
    if isinstance(model, (str, os.PathLike)):
        suffix = Path(model).suffix.lower()
        for reader in known.frontends.values():
            if suffix in reader.suffixes:
                return reader
        have = sorted({s for reader in known.frontends.values() for s in reader.suffixes})
        raise UsageError(
            f"no frontend reads {suffix or 'files without a suffix'}",
            details=known.reasons_for_missing(),
            hint=f"known suffixes: {', '.join(have) or 'none; install a frontend plugin'}",
        )
    for reader in known.frontends.values():
        accepts = getattr(reader, "accepts", None)
        if accepts is not None and accepts(model):
            return reader
    raise UsageError(
        f"no frontend takes a {type(model).__name__}",
        details=known.reasons_for_missing(),
        hint="name one with frontend=...",
    )


__all__ = ["load", "reader_of", "requested"]
