"""How well the cost models of the tuner rank schedules of kernels that they have not seen.

    python -m benchmarks.ranking                          the table, from the data set of the tests
    python -m benchmarks.ranking --measure FILE           measure schedules here: JSON lines, about 15 minutes
    python -m benchmarks.ranking --data FILE OUT.npz      their features and times, as a data set

The kernels are those of small networks: GEMMs, convolutions, pools, rows, and elementwise ones. Their
schedules are random points of the spaces of the tuner. Each is timed on one thread: processor time, the least
of several repeats.

For each kernel the models are trained on all others and rank its schedules: the correlation of ranks by
Spearman and by Kendall, and the regret, by which the best of the first eight is slower than the best of all.
"""

from __future__ import annotations

import argparse
import json
import random
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
from dlc_tune.measuring.kernel import inputs_of, kernel_module
from dlc_tune.ranking.evaluate import compare, load_groups, save_groups
from dlc_tune.ranking.features import Features
from dlc_tune.ranking.model import Group
from dlc_tune.space import Candidate, candidate
from dlc_tune.task import Task

import dlc_core as dlc
from benchmarks.report import print_table
from dlc_core import nn
from dlc_core.diag import DlcError
from dlc_core.passes import PassContext
from dlc_core.passes.lower.costs import operations
from dlc_core.plugin.registry import registry
from dlc_core.schedule import Trace
from dlc_core.tir.stmt import PrimFunc

TARGET = "llvm -num-threads=1"
SCHEDULES = 42
"""The schedules of a kernel."""
ATTEMPTS = 20
"""The points that are made at most for each schedule."""
REPEATS = 15
REPEAT_SECONDS = 2e-3
"""The least time of a repeat: short kernels run several times."""
MAX_SECONDS = 0.2
"""Schedules that take longer are timed once."""
DATA = Path(__file__).parents[1] / "plugins/tune/tests/ranking.npz"

Model = tuple[nn.Module, tuple[int, ...]]


class Of(nn.Module):
    """A function of one input as a model."""

    def __init__(self, function: Callable[[Any], Any]) -> None:
        self.function = function

    def forward(self, x: nn.Tensor) -> nn.Tensor:
        return self.function(x)


MODELS: Mapping[str, Callable[[], Model]] = {
    "gemm 128×256×256": lambda: (nn.Linear(256, 256), (128, 256)),
    "gemm 49×512×1024": lambda: (nn.Linear(1024, 512), (49, 1024)),
    "gemm 384×384×96": lambda: (nn.Linear(96, 384), (384, 96)),
    "gemm 512×512×512": lambda: (nn.Linear(512, 512), (512, 512)),
    "gemv 1×1000×512": lambda: (nn.Linear(512, 1000), (1, 512)),
    "gemm 8×512×512": lambda: (nn.Linear(512, 512), (8, 512)),
    "products 8×64×64×64": lambda: (Of(lambda x: nn.matmul(x, x)), (8, 64, 64)),
    "conv 3×3 32 28×28": lambda: (nn.Conv2d(32, 32, 3, padding=1), (1, 32, 28, 28)),
    "conv 3×3 64/2 28×28": lambda: (nn.Conv2d(32, 64, 3, stride=2, padding=1), (1, 32, 28, 28)),
    "conv 1×1 128 14×14": lambda: (nn.Conv2d(64, 128, 1), (1, 64, 14, 14)),
    "conv 7×7 3 64×64": lambda: (nn.Conv2d(3, 32, 7, stride=2, padding=3), (1, 3, 64, 64)),
    "conv 5×5 16 32×32": lambda: (nn.Conv2d(16, 24, 5, padding=2), (1, 16, 32, 32)),
    "conv 1×1 256 28×28": lambda: (nn.Conv2d(512, 256, 1), (1, 512, 28, 28)),
    "depthwise 3×3 96 28×28": lambda: (nn.Conv2d(96, 96, 3, padding=1, groups=96), (1, 96, 28, 28)),
    "max_pool 3×3 64 56×56": lambda: (nn.MaxPool2d(3, 2, padding=1), (1, 64, 56, 56)),
    "avg_pool 2×2 64 56×56": lambda: (nn.AvgPool2d(2), (1, 64, 56, 56)),
    "softmax 256×512": lambda: (Of(nn.softmax), (256, 512)),
    "layer norm 256×384": lambda: (nn.LayerNorm(384), (256, 384)),
    "gelu 128×1024": lambda: (nn.GELU(), (128, 1024)),
    "silu 64×4096": lambda: (nn.SiLU(), (64, 4096)),
    "add 512×512": lambda: (Of(lambda x: nn.relu(x + 1.0) * x), (512, 512)),
    "group norm 8 32×24×24": lambda: (nn.GroupNorm(8, 32), (1, 32, 24, 24)),
}
"""Networks of one layer, of whose kernels one is measured."""


def task_of(name: str) -> Task:
    """The kernel of a network with the first word of the name in its own, or else the most operations."""
    layer, shape = MODELS[name]()
    module = layer.init(0)
    kept: dict[str, PrimFunc] = {}

    def keep(func: PrimFunc, target: Any) -> None:
        kept[func.name] = func

    with PassContext.current().with_(tuner=keep):
        dlc.compile(module.to_module({"x": shape}), TARGET, params=module.state_dict(), cache=False)
    word = name.partition(" ")[0]
    main = max(kept.values(), key=lambda func: (word in func.name, operations(func) or 0))
    return Task(main, dlc.Target(TARGET), name)


def schedules(task: Task, count: int, seed: int = 0) -> list[Candidate]:
    """Distinct random schedules of a kernel, from all spaces that fit it."""
    spaces = [space for space in registry().search_spaces.values() if not space.fits(task)]
    chance = random.Random(f"{task.name}/{seed}")
    found: dict[str, Candidate] = {}
    for number in range(ATTEMPTS * count):
        if len(found) >= count:
            break
        part = chance.random()

        def answer(question: Any, part: float = part) -> int:
            keeps = chance.random() > part
            return question.default if keeps else chance.randrange(len(question.options))

        made = candidate(spaces[number % len(spaces)], task, answer)
        if isinstance(made, Candidate):
            found.setdefault(made.trace.to_json(), made)
    return list(found.values())


def seconds_of(task: Task, trace: Trace) -> float:
    """The processor time of a run with a schedule, in seconds: the least of several repeats."""
    with PassContext.current().with_(tuner=lambda *_: trace):
        exe = dlc.compile(kernel_module(task.func), TARGET, cache=False)
    call = exe.bind(inputs_of(task.func))
    start = time.thread_time()
    call()
    call()
    once = (time.thread_time() - start) / 2
    if once > MAX_SECONDS:
        return once
    calls = max(1, int(REPEAT_SECONDS / max(once, 1e-7)))
    best = float("inf")
    for _ in range(REPEATS):
        start = time.thread_time()
        for _ in range(calls):
            call()
        best = min(best, (time.thread_time() - start) / calls)
    return best


def measure(path: Path) -> None:
    """Measure schedules of the kernels that the file does not have yet, and append them to it."""
    known = {line["kernel"] for line in lines_of(path)} if path.exists() else set()
    with path.open("a", encoding="utf-8") as out:
        for name in MODELS:
            if name in known:
                continue
            task = task_of(name)
            for one in schedules(task, SCHEDULES):
                try:
                    seconds = seconds_of(task, one.trace)
                except DlcError as error:
                    print(f"{name}: {error.what}", file=sys.stderr)
                    continue
                line = {"kernel": name, "space": one.space, "trace": one.trace.to_json(), "seconds": seconds}
                out.write(json.dumps(line) + "\n")
                out.flush()


def lines_of(path: Path) -> Iterator[dict[str, Any]]:
    with path.open(encoding="utf-8") as file:
        for line in file:
            yield json.loads(line)


def write_data(source: Path, path: Path) -> None:
    """Write the features and the times of measured schedules."""
    rows: dict[str, list[Any]] = {}
    times: dict[str, list[float]] = {}
    features: dict[str, Features] = {}
    tasks: dict[str, Task] = {}
    for line in lines_of(source):
        name = line["kernel"]
        if name not in tasks:
            tasks[name] = task_of(name)
            features[name] = Features(tasks[name])
        func = tasks[name].replayed(Trace.from_json(line["trace"]))
        rows.setdefault(name, []).append(features[name].of(func))
        times.setdefault(name, []).append(line["seconds"])
    save_groups(path, {name: Group(np.stack(rows[name]), np.array(times[name])) for name in rows})


def print_comparison(path: Path) -> None:
    """Print the table of a data set."""
    groups = load_groups(path)
    found = compare(groups)
    signs = {"ρ": "spearman", "τ": "kendall", "regret": "regret", "pairs": "pairs"}
    columns = [(model, what) for model in found for what in signs]
    rows = []
    for name, group in groups.items():
        values = [
            f"{getattr(found[model][name], signs[what]):.2f}" if name in found[model] else "-"
            for model, what in columns
        ]
        rows.append((name, str(len(group.seconds)), *values))
    total = sum(len(group.seconds) for group in groups.values())
    for label, function in (("median", np.median), ("mean", np.mean)):
        means = [
            f"{function([getattr(one, signs[what]) for one in found[model].values()]):.2f}"
            for model, what in columns
        ]
        rows.append((label, str(total), *means))
    titles = ("kernel", "schedules", *(f"{model} {what}" for model, what in columns))
    print_table(titles, rows, markdown=False)


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.ranking", description=__doc__)
    parser.add_argument("--measure", type=Path, metavar="FILE", help="measure schedules, as JSON lines")
    parser.add_argument("--data", type=Path, nargs=2, metavar=("FILE", "OUT"), help="make a data set of them")
    parser.add_argument("--from", dest="source", type=Path, default=DATA, help="the data set of the table")
    options = parser.parse_args()
    if options.measure:
        measure(options.measure)
    elif options.data:
        write_data(*options.data)
    else:
        print_comparison(options.source)
    return 0


if __name__ == "__main__":
    sys.exit(main())
