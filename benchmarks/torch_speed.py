"""torch.compile with the backend "dlc" compared with eager and inductor: inference and steps of training.

    python -m benchmarks.torch_speed                                         everything, in ten minutes
    python -m benchmarks.torch_speed resnet18 --modes training --threads 1
    python -m benchmarks.torch_speed --first                                 first calls, in new processes

The networks are those of `dlc_frontend_torch.testing.networks`. A step of training is the forward pass, the
loss (cross entropy, inside of the compiled function), the backward pass and the optimizer: SGD with momentum
for images, AdamW for text, in torch's fused form for all sides. Inference runs in `inference_mode`; inductor
then has `freezing`, and eager and inductor get images and weights in the channels-last layout, as torch's
guides recommend for CPUs.

The sides alternate in one process, each with `torch.set_num_threads`. `/ best` is dlc's median divided by
that of the faster of the others. Before, outputs, losses and gradients are compared with those of eager in
float64; the exit code is 1 if they differ more than those of eager in float32 do. A first call begins before
`torch.compile` and ends with the first result, or the first step; each has a new process with empty caches.
Nothing else may run beside it.
"""

from __future__ import annotations

import argparse
import copy
import gc
import json
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from benchmarks.choosing import chosen_networks
from benchmarks.environment import environment
from benchmarks.report import geometric_mean, machine, print_table

SIDES = ("dlc", "eager", "inductor")
NETWORKS = ("resnet18", "bert", "gpt")
MODES = ("inference", "training")
BATCHES = {("resnet18", "training"): 16, ("bert", "training"): 8, ("gpt", "training"): 8}
"""Samples of a call; 1 where nothing is given."""
TOLERANCE, TIMES_EAGER = 1e-4, 3.0
"""dlc's largest error, as a number and relative to that of eager, whichever is larger: gradients of many
layers have large errors if an activation is on the other side of 0.
"""
ROUNDS = 5
Record = dict[str, Any]


class Side:
    """One side with its own copy of a network: `call` is one inference, or one step of training."""

    def __init__(self, name: str, network: Any, inputs: Sequence[Any], mode: str) -> None:
        import torch

        self.training = mode == "training"
        self.model, self.inputs = copy.deepcopy(network).train(self.training), list(inputs)
        if name != "dlc" and self.inputs[0].dim() == 4:
            self.model = self.model.to(memory_format=torch.channels_last)
            self.inputs[0] = self.inputs[0].contiguous(memory_format=torch.channels_last)
        run = self._loss if self.training else self.model
        backend = {"dlc": "dlc", "eager": "eager", "inductor": "inductor"}[name]
        self.run: Callable[..., Any] = run if name == "eager" else torch.compile(run, backend=backend)
        self._freezes = name == "inductor" and not self.training
        if self.training:
            image = self.inputs[0].dim() == 4
            parameters = self.model.parameters()
            self.optimizer: Any = (
                torch.optim.SGD(parameters, lr=1e-3, momentum=0.9, fused=True)
                if image
                else torch.optim.AdamW(parameters, lr=1e-4, fused=True)
            )

    def _loss(self, x: Any, wanted: Any) -> Any:
        import torch

        scores = self.model(x)
        return torch.nn.functional.cross_entropy(scores.reshape(-1, scores.shape[-1]), wanted)

    def call(self) -> Any:
        """One call; the result of inference, or the loss of a step."""
        import torch

        if not self.training:
            with torch.inference_mode(), self._frozen():
                return self.run(self.inputs[0])
        self.optimizer.zero_grad()
        loss = self.run(*self.inputs)
        loss.backward()
        self.optimizer.step()
        return loss.detach()

    def results(self) -> list[Any]:
        """The output, or the loss and the gradients of a step that is not made."""
        if not self.training:
            return [self.call().clone()]
        loss = self.run(*self.inputs)
        loss.backward()
        found = [loss.detach(), *(each.grad.clone() for each in self.model.parameters())]
        self.optimizer.zero_grad()
        return found

    def _frozen(self) -> Any:
        from torch._inductor import config

        return config.patch(freezing=True) if self._freezes else nullcontext()


def network_of(name: str, mode: str, batch: int | None) -> tuple[Any, list[Any]]:
    """A network with its inputs, and its wanted results for training."""
    import torch
    from dlc_frontend_torch.testing import networks

    torch.manual_seed(0)
    network = getattr(networks, name)()
    count = batch or BATCHES.get((name, mode), 1)
    if name == "resnet18":
        return network, [torch.randn(count, 3, 224, 224), torch.randint(0, 1000, (count,))]
    return network, [torch.randint(0, 8192, (count, 128)), torch.randint(0, 8192, (count * 128,))]


def compare(name: str, mode: str, threads: int, batch: int | None, seconds: float) -> Record:
    """The medians of all sides in milliseconds, and the errors, in this process."""
    import torch

    from dlc_core.runtime.measure.timing import spread_of

    torch.set_num_threads(threads)
    network, inputs = network_of(name, mode, batch)
    sides = {side: Side(side, network, inputs, mode) for side in SIDES}
    wide = [each.double() if each.is_floating_point() else each for each in inputs]
    expected = Side("eager", network.double(), wide, mode).results()
    errors = {side: _difference(sides[side].results(), expected) for side in SIDES}
    times: dict[str, list[float]] = {side: [] for side in SIDES}
    gc.collect()
    for _ in range(ROUNDS):
        for side in SIDES:
            sides[side].call()
            end = time.perf_counter() + seconds / ROUNDS
            while not times[side] or time.perf_counter() < end:
                begun = time.perf_counter()
                sides[side].call()
                times[side].append(time.perf_counter() - begun)
    found = {side: spread_of(each) for side, each in times.items()}
    return {
        "network": name, "mode": mode, "threads": threads, "samples": len(inputs[0]), "errors": errors,
        "milliseconds": {side: each.record() for side, each in found.items()},
    }  # fmt: skip


def first(name: str, mode: str, threads: int, batch: int | None, side: str) -> float:
    """The seconds of the first call of a side, in this process."""
    import torch

    torch.set_num_threads(threads)
    network, inputs = network_of(name, mode, batch)
    begun = time.perf_counter()
    Side(side, network, inputs, mode).call()
    return time.perf_counter() - begun


def ratio(record: Record) -> float:
    """dlc's median divided by that of the faster of the others."""
    times = {side: each["median"] for side, each in record["milliseconds"].items()}
    return float(times["dlc"] / min(times[side] for side in SIDES if side != "dlc"))


def _difference(found: Sequence[Any], expected: Sequence[Any]) -> float:
    """The largest error of any tensor: the norm of the differences, relative to that of the tensor."""
    pairs = zip(found, expected, strict=True)
    return max(float((one - want).norm() / want.norm().clamp_min(1e-12)) for one, want in pairs)


def _in_process(kind: str, *arguments: object, **variables: str) -> Any:
    """Call `compare` or `first` in a new process."""
    code = (
        "import json, sys, warnings; warnings.simplefilter('ignore')\n"
        "from benchmarks import torch_speed\n"
        f"print(json.dumps(torch_speed.{kind}(*json.loads(sys.argv[1]))))"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, json.dumps(arguments)],
        env=environment(**variables), check=True, stdout=subprocess.PIPE, text=True,
    )  # fmt: skip
    return json.loads(done.stdout.splitlines()[-1])


def _first_calls(name: str, mode: str, threads: int, batch: int | None) -> Record:
    """The seconds of the first calls of all sides, each in a new process with empty caches."""
    found = {}
    for side in SIDES:
        with TemporaryDirectory(prefix="dlc-bench-") as folder:
            caches = {"DLC_CACHE_DIR": f"{folder}/dlc", "TORCHINDUCTOR_CACHE_DIR": f"{folder}/inductor"}
            found[side] = _in_process("first", name, mode, threads, batch, side, **caches)
    return {"network": name, "mode": mode, "threads": threads, "seconds": found}


def main(arguments: Sequence[str] | None = None) -> int:
    """The command line. Returns 1 if results differ from those of eager."""
    parser = _parser()
    options = parser.parse_args(arguments)
    networks = chosen_networks(parser, options.networks, NETWORKS)
    facts = machine()
    cases = [
        (name, mode, threads, options.batch)
        for threads in map(int, options.threads.split(","))
        for mode in options.modes
        for name in networks
    ]
    records, firsts = [], []
    for case in cases:
        if options.first:
            firsts.append(_first_calls(*case))
        else:
            records.append(_in_process("compare", *case, options.seconds))
        if options.json:
            report = {"machine": facts, "calls": records, "first_calls": firsts}
            options.json.write_text(json.dumps(report, indent=1) + "\n", encoding="utf-8")
    print(f"{facts['processor']}, {facts['cores']} cores; torch {_version()}; load {facts['load']:.1f}\n")
    if options.first:
        _print_firsts(firsts, options.markdown)
        return 0
    return _print_calls(records, options.markdown)


def _is_right(errors: Mapping[str, float]) -> bool:
    return errors["dlc"] <= max(TOLERANCE, TIMES_EAGER * errors["eager"])


def _print_calls(records: Sequence[Record], markdown: bool) -> int:
    titles = (
        "network",
        "mode",
        "samples",
        "threads",
        *(f"{side} ms" for side in SIDES),
        "/ best",
        "error",
        "eager's",
    )
    rows = []
    for each in records:
        times = [f"{each['milliseconds'][side]['median']:.2f}" for side in SIDES]
        facts = (each["network"], each["mode"], str(each["samples"]), str(each["threads"]))
        errors = [f"{each['errors'][side]:.0e}" for side in ("dlc", "eager")]
        rows.append([*facts, *times, f"{ratio(each):.2f}", *errors])
    print_table(titles, rows, markdown=markdown)
    for mode in MODES:
        for threads in sorted({each["threads"] for each in records}):
            ratios = [ratio(r) for r in records if r["mode"] == mode and r["threads"] == threads]
            if ratios:
                mean = geometric_mean(ratios)
                print(
                    f"\ngeometric mean, {mode}, {threads} thread{'s'[: threads > 1]}: {mean:.2f} of the best"
                )
    wrong = [each for each in records if not _is_right(each["errors"])]
    for each in wrong:
        print(f"{each['network']}, {each['mode']}: results differ from those of eager", file=sys.stderr)
    return int(bool(wrong))


def _print_firsts(records: Sequence[Record], markdown: bool) -> None:
    titles = ("network", "mode", "threads", *(f"{side} s" for side in SIDES), "/ inductor")
    rows, ratios = [], []
    for each in records:
        seconds: Mapping[str, float] = each["seconds"]
        ratios.append(seconds["dlc"] / seconds["inductor"])
        facts = (each["network"], each["mode"], str(each["threads"]))
        rows.append([*facts, *(f"{seconds[side]:.2f}" for side in SIDES), f"{ratios[-1]:.2f}"])
    print_table(titles, rows, markdown=markdown)
    print(f"\ngeometric mean: {geometric_mean(ratios):.2f} of inductor")


def _version() -> str:
    from importlib.metadata import version

    return version("torch")


def _parser() -> argparse.ArgumentParser:
    text = (__doc__ or "").split("\n", 1)[0]
    made = argparse.ArgumentParser(prog="python -m benchmarks.torch_speed", description=text)
    made.add_argument("networks", nargs="*", help=f"of {', '.join(NETWORKS)}; all of them by default")
    made.add_argument("--modes", nargs="+", choices=MODES, default=list(MODES))
    made.add_argument("--threads", default="1,2", help="numbers of threads (default: 1,2)")
    made.add_argument("--batch", type=int, help="samples of a call")
    made.add_argument("--seconds", type=float, default=4.0, help="for each side (default: 4)")
    made.add_argument("--first", action="store_true", help="measure first calls instead")
    made.add_argument("--markdown", action="store_true")
    made.add_argument("--json", type=Path, help="also write the times to this file")
    return made


if __name__ == "__main__":
    sys.exit(main())
