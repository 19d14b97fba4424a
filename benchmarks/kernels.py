"""Single kernels compared with the machine's peak: `python -m benchmarks.kernels [NAME ...] [--threads 1,2]`

Each line is a model of one operation, and the time is that of its kernels. Conversions of layouts around a
convolution, which larger models seldom need, are not counted.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np

import dlc_core as dlc
from benchmarks.peers import OURS
from benchmarks.report import head, machine, print_table
from dlc_core import nn
from dlc_core.runtime.measure.explain import Kernel
from dlc_core.testing.dot_peak import product_peak
from dlc_core.testing.peak import measured_machine

ROUNDS = 5


@dataclass(frozen=True)
class Work:
    """One operation on an input of a shape."""

    name: str
    shape: tuple[int, ...]
    module: nn.Module
    flops: int | None
    """Multiplications and additions of its definition; None where memory is the measure."""
    direct: bool = False
    """Whether it is computed as it is defined, not by Winograd's or Strassen's algorithm."""


@dataclass(frozen=True)
class Figure:
    """The measurements of an operation."""

    name: str
    threads: int
    rules: tuple[str, ...]
    milliseconds: float
    gflops: float | None
    percent: float | None
    """Of the measured peak; more than 100 is possible with Winograd's and Strassen's algorithms, which
    multiply less than the definition."""
    gbytes: float
    """Inputs, outputs and weights, each once, in 10^9 bytes a second."""
    bound: str
    """The resource that limits the machine's time: arithmetic, or the memory level of the data."""
    of_limit: float | None
    """Per cent: that least time over the measured one."""

    def cells(self) -> list[str]:
        speed = ["–", "–"] if self.gflops is None else [f"{self.gflops:.1f}", f"{self.percent:.0f}"]
        rules = ", ".join(self.rules)
        limit = "–" if self.of_limit is None else f"{self.of_limit:.0f}"
        figures = [*speed, f"{self.gbytes:.1f}", self.bound, limit]
        return [self.name, str(self.threads), rules, f"{self.milliseconds:.4f}", *figures]


TITLES = ("kernel", "threads", "rule", "ms", "GFLOP/s", "% of peak", "GB/s", "bound", "% of limit")


class _Map(nn.Module):
    """A module of a function of one tensor."""

    def __init__(self, function: Callable[[nn.Tensor], nn.Tensor]) -> None:
        self.function = function

    def forward(self, x: nn.Tensor) -> nn.Tensor:
        return self.function(x)


def matmul(rows: int, inner: int, columns: int, direct: bool = False) -> Work:
    """A GEMM with constant weights."""
    module = nn.Linear(inner, columns, bias=False)
    name = f"matmul {rows}×{inner}×{columns}" + (" direct" if direct else "")
    return Work(name, (rows, inner), module, 2 * rows * inner * columns, direct)


def conv(
    channels: int,
    filters: int,
    size: int,
    kernel: int,
    stride: int = 1,
    groups: int = 1,
    kind: str = "conv",
    direct: bool = False,
) -> Work:
    """A convolution of an image of `size`², padded so that stride 1 keeps its size."""
    module = nn.Conv2d(
        channels, filters, kernel, stride=stride, padding=kernel // 2, groups=groups, bias=False
    )
    out = (size + 2 * (kernel // 2) - kernel) // stride + 1
    flops = 2 * out * out * filters * channels // groups * kernel * kernel
    name = f"{kind} {channels}→{filters} {size}² {kernel}×{kernel}" + (f" /{stride}" if stride > 1 else "")
    name += " direct" if direct else ""
    return Work(name, (1, channels, size, size), module, flops, direct)


def all_work() -> list[Work]:
    """Shapes of transformers, of ResNet-50 and of MobileNetV2."""
    wide = (1024, 1024)
    return [
        *(matmul(*each, direct=direct)
          for each in ((128, 768, 768), (128, 768, 3072), (128, 3072, 768), (197, 768, 768),
                       (197, 768, 3072), (197, 3072, 768), (512, 512, 512), (1024, 1024, 1024))
          for direct in (True, False)),
        *(matmul(*each) for each in ((1, 768, 768), (1, 768, 3072))),
        conv(3, 64, 224, 7, stride=2, kind="stem"),
        *(conv(*each, 1) for each in (
            (64, 64, 56), (64, 256, 56), (256, 64, 56), (512, 128, 28), (128, 512, 28), (1024, 256, 14),
            (256, 1024, 14), (2048, 512, 7), (512, 2048, 7), (16, 96, 112), (96, 24, 56), (320, 1280, 7),
        )),
        *(conv(*each, 3, direct=direct)
          for each in ((64, 64, 56), (128, 128, 28), (256, 256, 14), (512, 512, 7))
          for direct in (True, False)),
        *(conv(*each, 3, stride=2) for each in ((128, 128, 56), (256, 256, 28), (512, 512, 14))),
        conv(256, 512, 56, 1, stride=2),
        *(conv(c, c, size, 3, stride=s, groups=c, kind="depthwise") for c, size, s in (
            (32, 112, 1), (96, 112, 2), (144, 56, 1), (384, 14, 1), (960, 7, 1),
        )),
        Work("softmax 1536×128", (1536, 128), _Map(nn.softmax), None),
        Work("softmax 512×1024", (512, 1024), _Map(nn.softmax), None),
        Work("layer norm 128×768", (128, 768), nn.LayerNorm(768), None),
        Work("layer norm 4096×768", (4096, 768), nn.LayerNorm(768), None),
        Work("add 1024²", wide, _Map(lambda x: x + 1.5), None),
        Work("relu 1024²", wide, _Map(nn.relu), None),
        Work("gelu 1024²", wide, _Map(nn.gelu), None),
        Work("tanh 1024²", wide, _Map(nn.tanh), None),
    ]  # fmt: skip


def measure(
    work: Work, threads: int, peak: float, runs: int, target: str | None = None, precision: str = "float32"
) -> Figure:
    """The shortest time of several rounds of calls."""
    module = work.module.init(seed=0)
    with dlc.PassContext(disabled={"winograd", "row_filter", "strassen"} if work.direct else ()):
        exe = dlc.compile(
            module.to_module({"x": work.shape}),
            target,
            params=module.state_dict(),
            num_threads=threads,
            precision=precision,
            cache=False,
        )
    x = np.random.default_rng(0).standard_normal(work.shape, np.float32)
    estimates = {kernel.name: kernel for kernel in exe.explain(measured_machine()).kernels}
    best: list[tuple[float, Kernel, int]] = []
    for _ in range(ROUNDS):
        rows = exe.profile([x], runs=runs)
        working = [row for row in rows if row.flops] or list(rows)
        found = [(row.milliseconds, estimates[row.kernel], row.bytes or 0) for row in working]
        if not best or sum(f[0] for f in found) < sum(f[0] for f in best):
            best = found
    seconds = sum(each[0] for each in best) / 1e3
    gflops = None if work.flops is None else work.flops / seconds / 1e9
    limits = [kernel.estimate for _, kernel, _ in best if kernel.estimate is not None]
    return Figure(
        work.name,
        threads,
        tuple(dict.fromkeys(kernel.rule for _, kernel, _ in best)),
        1e3 * seconds,
        gflops,
        None if gflops is None else 100 * gflops / peak,
        sum(each[2] for each in best) / seconds / 1e9,
        ", ".join(dict.fromkeys(each.bound for each in limits)) or "–",
        100 * sum(each.limit for each in limits) / seconds if len(limits) == len(best) else None,
    )


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.kernels", description="Single kernels against the measured peak."
    )
    parser.add_argument("names", nargs="*", help="only operations whose names contain one of these")
    parser.add_argument("--threads", help="thread counts; 1 and all cores if not given")
    parser.add_argument("--target", help="such as 'llvm -mcpu=haswell'; this machine if not given")
    parser.add_argument("--runs", type=int, default=20, help="calls in each of five rounds (%(default)s)")
    parser.add_argument("--markdown", action="store_true", help="print the table as Markdown")
    parser.add_argument("--json", type=Path, help="also write all figures to this file")
    parser.add_argument(
        "--precision",
        choices=("float32", "fast", "bfloat16", "float16"),
        default="float32",
        help="(%(default)s)",
    )
    options = parser.parse_args(arguments)

    chosen = [w for w in all_work() if not options.names or any(name in w.name for name in options.names)]
    if not chosen:
        known = ", ".join(work.name for work in all_work())
        print(f"no kernel {options.names[0]}; known: {known}", file=sys.stderr)
        return 2
    facts = machine()
    print(head(facts, [OURS]), flush=True)
    given = options.threads
    counts = sorted({1, facts["cores"]} if given is None else set(map(int, given.split(","))))
    factors = "float32" if options.precision == "fast" else options.precision
    peaks = {threads: product_peak(threads, factors) for threads in counts}
    for threads, peak in peaks.items():
        print(f"peak in {factors}, threads {threads}: {peak:.1f} GFLOP/s")
    figures = [
        measure(work, threads, peaks[threads], options.runs, options.target, options.precision)
        for work in chosen
        for threads in counts
    ]
    print_table(TITLES, [figure.cells() for figure in figures], markdown=options.markdown)
    if options.json is not None:
        record = {"machine": facts, "peaks": peaks, "kernels": [asdict(figure) for figure in figures]}
        options.json.write_text(json.dumps(record, indent=1) + "\n", encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
