"""The contents of `.dlc` files, for `dlc inspect`."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from textwrap import shorten
from typing import Any

from rich.console import Console
from rich.markup import escape

from dlc_core import driver
from dlc_core.diag import bytes_text
from dlc_core.driver.portable.form import GRAPH, read_portable
from dlc_core.graph.node import STRUCTURAL, Function, nodes_of
from dlc_core.target import COMPILED


def show_compiled(path: Path, as_json: bool) -> None:
    """Print what a file with code contains."""
    exe = driver.open(path, trust=True, compile_source=True)  # nothing of it runs
    signature = exe.signature
    functions = {name: exe[name].target for name in exe.entries}
    record: dict[str, Any] = {
        "target": str(exe.target),
        "device": exe.device.name,
        "format": exe.artifact.format,
        "inputs": [str(value) for value in exe.inputs],
        "outputs": [str(value) for value in exe.outputs],
        "functions": [n if t == exe.target else f"{n} on {t}" for n, t in functions.items()],
        "code": len(exe.artifact.code),
        "weights": signature.weights_size,
        "dims": [f"{dim.name} in {dim.bounds}" for dim in exe.memory.dims if dim.bounds],
        "scratch": str(signature.arena_size),
        "memory": exe.memory.record(),
        "sources": list(exe.artifact.sources),
        "kernel calls": len(exe.about.get("sites", ())),
        "compiled": dict(exe.artifact.metadata.get(COMPILED, {})),
        "metadata": {k: v for k, v in exe.artifact.metadata.items() if isinstance(v, (str, int, float))},
    }
    _print(record, as_json, str(exe.memory))


def show_portable(path: Path, as_json: bool) -> None:
    """Print what a portable model contains. It is checked, and not compiled."""
    model = read_portable(path)
    module = model.module()
    entry = module[module.entry]
    nodes = list(nodes_of(*module.of_kind(Function).values()))
    sections = model.opened.sections
    inputs = entry.attrs.get("inputs") or [param.attrs["name"] for param in entry.params]
    outputs = entry.attrs.get("outputs") or [f"output_{i}" for i in range(len(entry.results))]
    ops = Counter(node.op.name for node in nodes if node.op.name not in STRUCTURAL)
    record: dict[str, Any] = {
        "form": "portable: no code, compiled where it is opened",
        "inputs": [f"{name}: {param.type}" for name, param in zip(inputs, entry.params, strict=True)],
        "outputs": [f"{name}: {value.type}" for name, value in zip(outputs, entry.results)],
        "functions": list(module.functions),
        "nodes": len(nodes),
        "ops": dict(ops.most_common()),
        "weights": sum(view.nbytes for name, view in sections.items() if name != GRAPH),
        "written by": f"dlc-core {model.opened.header.get('core')}",
    }
    _print(record, as_json)


def _print(record: Mapping[str, Any], as_json: bool, memory: str = "") -> None:
    if as_json:
        print(json.dumps(record, indent=2))
        return
    out = Console(soft_wrap=True, highlight=False)
    for key, value in record.items():
        if key in ("code", "weights"):
            value = bytes_text(value)
        elif key == "memory":
            value = memory
        elif isinstance(value, dict):
            value = ", ".join(f"{k} {shorten(str(v), 80)}" for k, v in value.items())
        elif isinstance(value, list):
            value = ", ".join(value) or "none"
        out.print(f"[bold]{key:13}[/]{escape(str(value))}")


__all__ = ["show_compiled", "show_portable"]
