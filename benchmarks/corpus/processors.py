"""The code of the corpus' kernels for several processors, judged by its assembly: nothing is run.

A kernel's hot loop is the innermost loop with the most multiply-adds, of those in which they are a third of
the instructions; transforms of Winograd convolutions and polynomials of exp are not such loops. Of it:

    spills       its stores to the stack
    width        the share of multiply-adds that use the widest vectors of the processor
    efficiency   the cycles of its multiply-adds alone, divided by those of the loop, both by llvm-mca;
                 unknown for a processor that llvm-mca has no model for

A kernel without a hot loop is judged by its loops of scalar arithmetic.
"""

from __future__ import annotations

import re
import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path
from statistics import median

from dlc_backend_llvm.kind import cpu_of
from dlc_backend_llvm.listing import SYNTAX, Syntax, count, functions, hottest, innermost

import dlc_core as dlc
from benchmarks.report import NONE
from dlc_core.diag import DlcError
from dlc_core.driver import find_target
from dlc_core.support.record import record
from dlc_core.target import Target

PROCESSORS = {
    "Zen 4": "-mcpu=znver4",
    "Zen 5": "-mcpu=znver5",
    "Sapphire Rapids": "-mcpu=sapphirerapids",
    "Alder Lake": "-mcpu=alderlake",
    "Haswell": "-mcpu=haswell",
    "Neoverse N1": "-mtriple=aarch64-linux-gnu -mcpu=neoverse-n1",
    "Neoverse V1": "-mtriple=aarch64-linux-gnu -mcpu=neoverse-v1",
    "Cortex-A76": "-mtriple=aarch64-linux-gnu -mcpu=cortex-a76",
    "Apple M1": "-mtriple=arm64-apple-macosx13 -mcpu=apple-m1",
}
"""The target options of each processor."""

MIN_PRODUCTS = 4
"""Loops with fewer multiply-adds are not loops of GEMMs: an interpolation, the tail of a polynomial."""
PRODUCT_SHARE = 1 / 3
"""The share of multiply-adds in the instructions of a hot loop."""
SCALAR_SHARE = 0.25
"""The share of scalar arithmetic in a loop from which a kernel counts as not vectorized."""
ITERATIONS = 50
"""The iterations of a loop that llvm-mca simulates."""
SHORT = 6
"""Loops with fewer instructions are counters and copies of tails."""


@record(frozen=True)
class Kernel:
    """A kernel's code for a processor. `products` is 0 without multiply-adds; `efficiency` may be unknown."""

    model: str
    name: str
    rule: str
    products: int
    spills: int
    width: float
    efficiency: float | None
    scalar: bool

    @property
    def problems(self) -> list[str]:
        """The faults of its code, in words."""
        found = []
        if self.spills:
            found.append(f"{self.spills} stores to the stack beside {self.products} multiply-adds")
        if self.products and self.width < 1:
            found.append(f"{1 - self.width:.0%} of the multiply-adds are narrow")
        if self.efficiency is not None and self.efficiency < 1 / 1.5:
            found.append(f"multiply-adds take {self.efficiency:.0%} of the predicted cycles")
        return [*found, "scalar arithmetic"] if self.scalar else found


def kernels_of(path: Path, processor: str) -> list[Kernel]:
    """The kernels of a model for a processor, compiled for one thread."""
    exe = dlc.compile(path, f"llvm {PROCESSORS[processor]}", num_threads=1)
    target = find_target(f"llvm {PROCESSORS[processor]}")
    rules = {kernel.name: kernel.rule for kernel in exe.explain().kernels}
    texts: dict[str, list[str]] = {}
    for name, text in functions(exe.source("asm")).items():
        kernel = name.partition(".")[0]
        if kernel in rules:
            texts.setdefault(kernel, []).append(text)
    return [judged(path.stem, name, rules[name], "\n".join(parts), target) for name, parts in texts.items()]


def judged(model: str, name: str, rule: str, text: str, target: Target) -> Kernel:
    """A kernel by its listing."""
    cpu = cpu_of(target)
    syntax = SYNTAX[cpu.arch]
    loops = innermost(text)
    loop = hottest([each for each in loops if is_dense(each, syntax)], syntax)
    if not loop:
        long = [each for each in loops if len(each) >= SHORT]
        scalar = any(count(each, syntax.scalar) > SCALAR_SHARE * len(each) for each in long)
        return Kernel(model, name, rule, 0, 0, 1.0, None, scalar)
    products = [line for line in loop if count([line], syntax.products)]
    wide = count(products, widest(cpu.arch, target.describe().vector_bits))
    alone, whole = (cycles(lines, cpu.triple, cpu.cpu) for lines in (products, loop))
    efficiency = None if alone is None or whole is None else min(1.0, alone / whole)
    spills = count(loop, syntax.spill)
    return Kernel(model, name, rule, len(products), spills, wide / len(products), efficiency, False)


def is_dense(loop: Sequence[str], syntax: Syntax) -> bool:
    """Whether a loop may be the hot loop of a contraction."""
    return count(loop, syntax.products) >= max(MIN_PRODUCTS, PRODUCT_SHARE * len(loop))


def widest(arch: str, bits: int) -> str:
    """A regular expression for a register of the widest vectors."""
    if arch == "x86_64":
        return {512: "%zmm", 256: "%ymm"}.get(bits, "%xmm")
    return "" if bits <= 128 else r"\bz\d"


def cycles(loop: Sequence[str], triple: str, cpu: str) -> float | None:
    """The cycles of an iteration by llvm-mca's model of a processor; None without a model."""
    tool = shutil.which("llvm-mca")
    if tool is None:
        return None
    body = "".join(f"{line}\n" for line in loop if not re.search(r"\.?LBB", line))
    options = [f"-iterations={ITERATIONS}", "-all-views=0", "-summary-view"]
    command = [tool, f"-mtriple={triple}", f"-mcpu={cpu}", *options]
    done = subprocess.run(command, input=body, capture_output=True, text=True, timeout=60, check=False)
    total = re.search(r"Total Cycles:\s+(\d+)", done.stdout)
    if done.returncode or total is None or "is not a recognized processor" in done.stderr:
        return None
    return int(total[1]) / ITERATIONS


TITLES = (
    "processor", "kernels", "with products", "spill", "narrow", "scalar", "median efficiency", "not compiled"
)  # fmt: skip


def measured(paths: Sequence[Path], names: Sequence[str]) -> tuple[list[list[str]], list[str]]:
    """A row for each processor, and a line for each kernel with a problem."""
    rows, lines = [], []
    for processor in names:
        kernels: list[Kernel] = []
        refused = 0
        for path in paths:
            try:
                kernels += kernels_of(path, processor)
            except DlcError as error:
                refused += 1
                lines.append(f"{processor}: {path.stem} is not compiled: {error}")
        rows.append(row(processor, kernels, refused))
        for kernel in kernels:
            if kernel.problems:
                why = "; ".join(kernel.problems)
                lines.append(f"{processor}: {kernel.model}: {kernel.name} ({kernel.rule}): {why}")
    return rows, lines


def row(processor: str, kernels: Sequence[Kernel], refused: int) -> list[str]:
    """The row of a processor."""
    products = [k for k in kernels if k.products]
    known = [k.efficiency for k in products if k.efficiency is not None]
    return [
        processor,
        str(len(kernels)),
        str(len(products)),
        str(sum(k.spills > 0 for k in products)),
        str(sum(k.width < 1 for k in products)),
        str(sum(k.scalar for k in kernels)),
        f"{median(known):.2f}" if known else NONE,
        str(refused),
    ]
