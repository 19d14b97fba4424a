"""ResNet-50 end to end on this machine: compile, check the numbers, measure, show the time of kernels.

    python examples/demo_resnet50.py [--threads 1,2] [--cold]

The model comes with the onnx package, together with an output. All its weights are 0.02, so all classes have
equal outputs, which proves little. Therefore the demo also runs the network with random weights and compares
it with the `reference` target, which computes every op in NumPy.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections import defaultdict
from collections.abc import Callable
from typing import Any

import numpy as np
from dlc_frontend_onnx.testing import light
from rich.console import Console
from rich.table import Table

import dlc_core as dlc
from dlc_core.cli.options import progress
from dlc_core.runtime.measure.timing import Spread, measure

NETWORK = "resnet50"
RTOL, ATOL = 1e-3, 1e-4
out = Console(highlight=False, soft_wrap=True)


def timed(call: Callable[[], Any]) -> tuple[Any, float]:
    """Call a function; return its result and the seconds."""
    start = time.perf_counter()
    result = call()
    return result, time.perf_counter() - start


def build(model: Any, label: str, cold: bool) -> Any:
    """Compile the model, or open it from the cache if an earlier run stored it."""
    with progress(label, None) as tell:
        exe, seconds = timed(lambda: dlc.compile(model, cache=not cold, progress=tell))
    if exe.report["cache"] == "hit":
        out.print(f"compiled     {seconds:.2f} s, from the cache (--cold compiles again)")
        return exe
    stages = ", ".join(f"{name} {spent:.2f}" for name, spent in exe.report["seconds"].items())
    out.print(f"compiled     {seconds:.2f} s, cold ({stages})")
    if not cold:
        exe, again = timed(lambda: dlc.compile(model, cache=True))
        out.print(f"             {again:.2f} s, from the cache")
    return exe


def check(name: str, got: Any, expected: Any) -> bool:
    """Whether all probabilities are within tolerance. Prints the errors and the best five classes."""
    off = np.abs(got - expected)
    fits = bool(np.all(off <= ATOL + RTOL * np.abs(expected)))
    verdict = "[green]fits[/]" if fits else "[bold red]WRONG[/]"
    out.print(f"{name:12} {verdict}, largest error {off.max():.1e} (rtol {RTOL:g}, atol {ATOL:g})")
    best = np.argsort(-got.ravel(), kind="stable")[:5]
    out.print("best five    " + ", ".join(f"class {i}: {got.ravel()[i]:.6f}" for i in best))
    return fits


def show_latency(exe: Any, x: Any, counts: list[int]) -> None:
    table = Table(box=None, pad_edge=False, header_style="bold")
    for title in ("threads", "median ms", "p10", "p90", "calls"):
        table.add_column(title, justify="right")
    for count in counts:
        exe.num_threads = count
        spread: Spread = measure(lambda: exe(x), seconds=1.5)
        figures = (f"{value:.2f}" for value in (spread.median, spread.p10, spread.p90))
        table.add_row(str(count), *figures, str(spread.runs))
    out.print(table)


def show_profile(report: Any, top: int = 10) -> None:
    """The slowest kernels, and the time by kind of kernel."""
    table = Table(box=None, pad_edge=False, header_style="bold")
    for title in ("kernel", "model nodes", "ms", "share", "GFLOP/s"):
        table.add_column(title, justify="left" if title in ("kernel", "model nodes") else "right")
    kinds: dict[str, list[float]] = defaultdict(list)
    for row in report:
        kinds[row.kernel.rstrip("0123456789").rstrip("_")].append(row.milliseconds)
    for row in report.rows[:top]:
        speed = "" if row.gflops is None else f"{row.gflops:.1f}"
        table.add_row(row.kernel, row.nodes[-1], f"{row.milliseconds:.3f}", f"{row.share:.1%}", speed)
    out.print(table)
    total = sum(map(sum, kinds.values()))
    out.print()
    ordered = sorted(kinds.items(), key=lambda item: -sum(item[1]))
    for kind, times in ordered[:8]:
        out.print(f"  {sum(times):8.3f} ms  {sum(times) / total:6.1%}  {len(times):3} × {kind}")


def main() -> int:
    parser = argparse.ArgumentParser(description="ResNet-50, compiled, checked and measured.")
    parser.add_argument("--threads", default="", help="thread counts to measure, such as 1,2")
    parser.add_argument("--cold", action="store_true", help="compile without the cache")
    options = parser.parse_args()

    out.rule("the model of the onnx package, with the output that it stores")
    exe = build(light.path_of(NETWORK), "ResNet-50", options.cold)
    x = light.input_of(NETWORK)[exe.inputs[0].name]
    good = check("stored", exe(x), light.stored_output(NETWORK))

    out.print()
    out.rule("the same network with random weights, against the reference target")
    model = light.with_weights(NETWORK).SerializeToString()
    exe = build(model, "ResNet-50", options.cold)
    good &= check("reference", exe(x), dlc.compile(model, "reference")(x))

    out.print()
    out.rule(f"latency on {exe.target}")
    counts = [int(count) for count in options.threads.split(",") if count] or sorted({1, exe.num_threads})
    show_latency(exe, x, counts)

    out.print()
    exe.num_threads = counts[0]
    report = exe.profile([x], runs=10)
    out.rule(f"where {report.milliseconds:.1f} ms go, {counts[0]} thread{'s' * (counts[0] > 1)}")
    show_profile(report)
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
