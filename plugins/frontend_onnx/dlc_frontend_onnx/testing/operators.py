"""Determines the supported operators with versions, types and how they run; writes the table and its page.

python -m dlc_frontend_onnx.testing.operators docs/onnx-operators.md
"""

from __future__ import annotations

import random
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path

import numpy as np
import onnx
from onnx import ModelProto, defs

from dlc_core.diag import DlcError
from dlc_core.passes import PassContext
from dlc_core.passes.lower.host import HostSegments
from dlc_frontend_onnx.converters import find_entry
from dlc_frontend_onnx.importer import load
from dlc_frontend_onnx.operators import MODES, PATH, Operator, page, to_json
from dlc_frontend_onnx.support import untried
from dlc_frontend_onnx.testing import suite
from dlc_frontend_onnx.testing.random_models.builder import DTYPES, Builder, Refused
from dlc_frontend_onnx.testing.random_models.templates import all_templates

OLDEST = 7
TRIES = 4
"""Models drawn per operator, version and type; the best outcome counts."""

Key = tuple[str, str, int]
"""Domain, operator, version."""


def mode_of(model: ModelProto, op: str, domain: str, version: int) -> str | None:
    """How the operator of a single-operator model runs; None if it is refused."""
    try:
        module = HostSegments().run(load(model), PassContext())
    except DlcError:
        return None
    if module.attrs.get("host"):
        return "host"
    return "native" if find_entry(domain, op, version) is not None else "function"


def probe(op: str, since: int, dtype: str) -> str | None:
    """How a random model of an operator version runs with a type; None if none is drawn or all are
    refused.
    """
    template = all_templates()[op][0]
    opset = max(since, OLDEST)
    found: set[str] = set()
    for seed in range(TRIES):
        builder = Builder(random.Random(f"{op} {seed}"), opset, only=dtype)
        try:
            template(builder, op)
        except Refused:
            continue
        nodes = [node for node in builder.nodes if node.op_type == op]
        names = {value.name: value for value in builder.values}
        if not nodes or (
            nodes[0].input and dtype not in {names[n].dtype for n in nodes[0].input if n in names}
        ):
            continue
        mode = mode_of(builder.model(symbolic=False), op, "", opset)
        if mode is not None:
            found.add(mode)
        if mode == "native":
            break
    return next((mode for mode in MODES if mode in found), None)


def versions_of(op: str) -> list[int]:
    """The versions of an operator of the default domain in opsets from `OLDEST` on."""
    every = sorted(
        s.since_version for s in defs.get_all_schemas_with_history() if s.name == op and s.domain == ""
    )
    current = [v for v in every if v <= OLDEST][-1:]
    return [v for v in every if v > OLDEST or v in current]


def of_templates(ops: Iterable[str]) -> dict[Key, dict[str, str]]:
    """For each version of some operators, how each type runs."""
    return {
        ("", op, since): {d: mode for d in DTYPES if (mode := probe(op, since, d)) is not None}
        for op in ops
        for since in versions_of(op)
    }


def of_suite() -> dict[Key, dict[str, str]]:
    """As `of_templates`, for the onnx package's node tests."""
    found: dict[Key, dict[str, str]] = {}
    for case in suite.cases():
        node = case.model.graph.node[0]
        if len(case.model.graph.node) > 1:
            continue
        opsets = {item.domain: item.version for item in case.model.opset_import}
        version = opsets.get(node.domain, 1)
        try:
            since = defs.get_schema(node.op_type, version, node.domain).since_version
        except defs.SchemaError:
            continue
        inputs = case.data_sets[0][0]
        given = [np.asarray(item) for item in inputs if isinstance(item, (np.ndarray, np.generic))]
        dtype = given[0].dtype.name.replace("object", "string") if given else "any"
        model = case.model
        mode = mode_of(model, node.op_type, node.domain, version)
        if mode is None:
            values = dict(zip((info.name for info in model.graph.input), inputs))
            mode = mode_of(suite.with_constants(model, values), node.op_type, node.domain, version)
        modes = found.setdefault((node.domain, node.op_type, since), {})
        if mode is not None and MODES.index(mode) < MODES.index(modes.get(dtype, MODES[-1])) + (
            dtype not in modes
        ):
            modes[dtype] = mode
    return found


def rows_of(found: dict[Key, dict[str, str]]) -> list[Operator]:
    """The rows of the table."""
    order = {name: position for position, name in enumerate(DTYPES)}
    rows = []
    for (domain, op, since), modes in sorted(found.items()):
        for mode in MODES:
            types = sorted(
                (d for d, own in modes.items() if own == mode), key=lambda d: (order.get(d, 99), d)
            )
            if types:
                rows.append(Operator(domain, op, since, mode, tuple(types)))
    return rows


def main(arguments: Sequence[str]) -> int:
    """Write the table, and the page to the given path."""
    found = of_suite()
    for key, modes in of_templates(all_templates()).items():
        found[key] = {**found.get(key, {}), **modes}
    rows = rows_of(found)
    PATH.write_text(to_json(rows, onnx.__version__), encoding="utf-8")
    for path in arguments:
        Path(path).write_text(page(rows, untried(rows)), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

__all__ = ["mode_of", "of_suite", "of_templates", "probe", "rows_of", "versions_of"]
