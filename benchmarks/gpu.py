"""GEMM, layers and memory-bound kernels on a GPU, compared with torch in the same process.

    python -m benchmarks.gpu                                 # the device of the kind `cuda`
    python -m benchmarks.gpu product --target "cuda -arch=sm_90" --json gpu.json

Times are those of the kernels, measured by events of the device: for dlc the sum over the kernels of a call,
for torch one of many consecutive calls. In eager mode torch uses cuBLAS for GEMM; `max-autotune` is
torch.compile with that mode. Without torch, or without a device for it, only dlc is measured.
"""

from __future__ import annotations

import argparse
import json
import math
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

import dlc_core as dlc
from dlc_core.driver import find_target
from dlc_core.graph.node import Node, param
from dlc_core.ir.dtype import dtype
from dlc_core.ir.module import IRModule
from dlc_core.ir.types import tensor_type
from dlc_core.op import std
from dlc_core.testing.cases import module_of

Array = np.ndarray[Any, Any]
RUNS = 20
TOLERANCES = {"float16": 2e-2, "bfloat16": 1e-1, "float32": 2e-3, "int8": 0.0}
"""The tolerances of results compared with torch's, relative to their largest magnitude."""


@dataclass(frozen=True)
class Case:
    """A model of one or several kernels, and the same function in torch, on tensors in the order of the
    inputs.
    """

    name: str
    dtype: str
    module: IRModule
    torch: Callable[..., Any]
    operations: float
    """Multiplications and additions of a call."""
    bytes: float
    """The least bytes that a call reads and writes."""


@dataclass
class Row:
    """The milliseconds of a case by implementation, and the errors."""

    case: Case
    times: dict[str, float] = field(default_factory=dict)
    problems: dict[str, str] = field(default_factory=dict)

    def record(self) -> dict[str, Any]:
        return {"name": self.case.name, "milliseconds": self.times, "problems": self.problems}


def _tensors(kind: str, *shapes: Sequence[int]) -> list[Node]:
    return [param(f"x{i}", tensor_type(tuple(shape), kind)) for i, shape in enumerate(shapes)]


def _case(
    name: str, kind: str, body: Node, given: list[Node], torch: Callable[..., Any], operations: float
) -> Case:
    moved = sum(math.prod(each.shape) * each.type.dtype.itemsize for each in (*given, body))
    return Case(f"{name} {kind}", kind, module_of(body, given), torch, operations, moved)


def product(kind: str, size: int) -> Case:
    """A product of square matrices."""
    a, b = _tensors(kind, (size, size), (size, size))
    if kind == "int8":
        body = std.matmul(a, b, out_dtype="int32")
        return _case(f"product {size}", kind, body, [a, b], _torch("_int_mm"), 2 * size**3)
    return _case(f"product {size}", kind, std.matmul(a, b), [a, b], _torch("matmul"), 2 * size**3)


def conv(kind: str, batch: int, size: int, channels: int) -> Case:
    """A 3 × 3 convolution with an activation, as in the middle of a bottleneck."""
    x, w = _tensors(kind, (batch, channels, size, size), (channels, channels, 3, 3))
    body = std.relu(std.conv(x, w, padding=(1, 1, 1, 1)))

    def theirs(left: Any, right: Any) -> Any:
        import torch

        return torch.relu(torch.nn.functional.conv2d(left, right, padding=1))

    operations = 2 * 9 * batch * size**2 * channels**2
    return _case(f"conv {batch}×{channels}×{size}²", kind, body, [x, w], theirs, operations)


def softmax(kind: str, rows: int, columns: int) -> Case:
    """Softmax over long rows, which is memory-bound."""
    (x,) = _tensors(kind, (rows, columns))
    body = std.softmax(x)

    def theirs(given: Any) -> Any:
        return given.softmax(-1)

    return _case(f"softmax {rows}×{columns}", kind, body, [x], theirs, 4 * rows * columns)


def residual(kind: str, rows: int, columns: int) -> Case:
    """A sum and an activation, which are memory-bound."""
    x, y = _tensors(kind, (rows, columns), (rows, columns))

    def theirs(left: Any, right: Any) -> Any:
        return (left + right).relu()

    body = std.relu(std.add(x, y))
    return _case(f"residual {rows}×{columns}", kind, body, [x, y], theirs, 2 * rows * columns)


def _torch(name: str) -> Callable[..., Any]:
    def call(*given: Any) -> Any:
        import torch

        return getattr(torch, name)(*given)

    return call


def cases(scale: int) -> list[Case]:
    """All cases, with sizes divided by `scale`."""
    sizes = [max(16, size // scale) for size in (4096, 8192)]
    few = max(1, 32 // scale)
    narrow = ("float16", "bfloat16")
    return [
        *(product(kind, size) for kind in narrow for size in sizes),
        *(product(kind, sizes[0]) for kind in ("int8", "float32")),
        *(
            conv("float16", batch, max(7, 56 // scale), max(16, 64 // scale))
            for batch in dict.fromkeys((1, few))
        ),
        *(softmax("float16", size, size) for size in sizes[:1]),
        *(residual("float16", size, size) for size in sizes[:1]),
    ]


def inputs_of(case: Case) -> list[Array]:
    """Inputs with small numbers of the case's dtype."""
    rng = np.random.default_rng(0)
    types = [p.type for p in case.module["main"].params]
    return [rng.integers(-4, 5, t.shape).astype(np.float32).astype(dtype(case.dtype).numpy) for t in types]


def measured(case: Case, target: str, peers: Mapping[str, Any], runs: int) -> Row:
    """Measure dlc and each peer on the same inputs."""
    row = Row(case)
    given = inputs_of(case)
    try:
        exe = dlc.compile(case.module, target)
        found = np.asarray(exe(*given)).astype(np.float64)
        row.times["ours"] = sum(each.milliseconds for each in exe.profile(given, runs=runs))
    except dlc.DlcError as error:
        row.problems["ours"] = str(error).splitlines()[0]
        return row
    for name, peer in peers.items():
        try:
            milliseconds, theirs = peer(case, given, runs)
        except Exception as error:  # noqa: BLE001 (a peer's failure is a line of the table)
            row.problems[name] = f"{type(error).__name__}: {error}".splitlines()[0]
            continue
        row.times[name] = milliseconds
        away = float(np.abs(found - theirs).max() / max(np.abs(theirs).max(), 1e-9))
        if away > TOLERANCES[case.dtype]:
            row.problems["ours"] = f"{away:.1e} of the largest result away from {name}"
    return row


def torch_peers() -> dict[str, Callable[[Case, list[Array], int], tuple[float, Array]]]:
    """Torch in both modes, if it is installed and has a device."""
    try:
        import torch
    except ImportError:
        return {}
    if not torch.cuda.is_available():
        return {}

    def timed(case: Case, given: list[Array], runs: int, function: Callable[..., Any]) -> tuple[float, Array]:
        kind = getattr(torch, case.dtype)
        tensors = [torch.from_numpy(each.astype(np.float32)).cuda().to(kind) for each in given]
        for _ in range(3):
            result = function(*tensors)
        start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        start.record()
        for _ in range(runs):
            function(*tensors)
        end.record()
        torch.cuda.synchronize()
        return start.elapsed_time(end) / runs, result.double().cpu().numpy()

    def eager(case: Case, given: list[Array], runs: int) -> tuple[float, Array]:
        return timed(case, given, runs, case.torch)

    def tuned(case: Case, given: list[Array], runs: int) -> tuple[float, Array]:
        return timed(case, given, runs, torch.compile(case.torch, mode="max-autotune"))

    return {"torch": eager, "max-autotune": tuned}


def main(arguments: Sequence[str] | None = None) -> int:
    """Print the table in Markdown. Returns 2 if there is no device."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.gpu")
    parser.add_argument("names", nargs="*", help="only cases whose names contain one of these")
    parser.add_argument("--target", default="cuda", help="ours is compiled for it (%(default)s)")
    parser.add_argument("--scale", type=int, default=1, help="sizes are divided by it (%(default)s)")
    parser.add_argument("--runs", type=int, default=RUNS, help="calls that are measured (%(default)s)")
    parser.add_argument("--json", type=Path, help="also write all figures to this file")
    options = parser.parse_args(arguments)
    problem = find_target(options.target).kind.problem()
    if problem is not None:
        print(f"no device for {options.target!r}, so that nothing is measured: {problem}", file=sys.stderr)
        return 2
    chosen = [
        case
        for case in cases(options.scale)
        if not options.names or any(name in case.name for name in options.names)
    ]
    peers = torch_peers() if find_target(options.target).kind.name == "cuda" else {}
    names = ["ours", *peers]
    print(f"{options.target}; peers: {', '.join(peers) or 'none'}\n")
    print(f"| case | {' | '.join(f'{n} ms' for n in names)} | ours TFLOP/s | ours GB/s |")
    print("|---|" + "--:|" * (len(names) + 2))
    rows = []
    for case in chosen:
        row = measured(case, options.target, peers, options.runs)
        rows.append(row)
        times = [f"{row.times[name]:.3f}" if name in row.times else "-" for name in names]
        seconds = row.times.get("ours", math.inf) / 1e3
        rates = f"{case.operations / seconds / 1e12:.1f} | {case.bytes / seconds / 1e9:.0f}"
        print(f"| {case.name} | {' | '.join(times)} | {rates} |", flush=True)
    for row in rows:
        for name, what in row.problems.items():
            print(f"{row.case.name}: {name}: {what}")
    if options.json is not None:
        record = {"target": options.target, "runs": options.runs, "cases": [row.record() for row in rows]}
        options.json.write_text(json.dumps(record, indent=2))
    return 1 if any("ours" in row.problems for row in rows) else 0


if __name__ == "__main__":
    sys.exit(main())
