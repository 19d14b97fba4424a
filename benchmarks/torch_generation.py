"""Tokens a second of `generate()` of transformers with a static cache: dlc, eager and inductor.

    python -m benchmarks.torch_generation                          all networks, at 1 and 2 threads
    python -m benchmarks.torch_generation llama --threads 1 --tokens 64

The networks are small and have random weights: four layers of 512 features, with a vocabulary of 8192. The
sides alternate in one process, each with a copy of the network, whose `forward` is compiled by
`torch.compile`; decoding is greedy. A run begins with a prompt. The time of the prompt ends with the first
token; tokens a second are those of the decode steps after it. `/ best` is the time of a token, or of the
prompt, divided by that of the faster of the others. The exit code is 1 if tokens differ from those of eager.
`own` are the microseconds of a decode step that dlc's Python takes, besides the compiled code.
Nothing else may run beside it.
"""

from __future__ import annotations

import argparse
import copy
import gc
import sys
import time
from collections.abc import Callable, Sequence
from statistics import median
from typing import Any

from benchmarks.choosing import chosen_networks
from benchmarks.corpus.exporting import stand_in_operators
from benchmarks.report import geometric_mean, machine, print_table

SIDES = ("dlc", "eager", "inductor")
NETWORKS = ("llama", "qwen2", "gpt2")
WIDTH, LAYERS, HEADS, VOCABULARY = 512, 4, 8, 8192
ROUNDS = 5
Record = dict[str, Any]


class Clock:
    """A streamer of `generate()`: the times at which it gets the prompt and each token."""

    def __init__(self) -> None:
        self.times: list[float] = []

    def put(self, tokens: Any) -> None:
        """Note the time."""
        del tokens
        self.times.append(time.perf_counter())

    def end(self) -> None:
        """Do nothing at the end of a run."""


class Side:
    """One side with its own copy of a network."""

    def __init__(self, name: str, network: Any) -> None:
        import torch

        self.model = copy.deepcopy(network)
        if name != "eager":
            self.model.forward = torch.compile(self.model.forward, backend=name)

    def generate(self, prompt: Any, count: int) -> tuple[list[int], float, float]:
        """The tokens of a run, the seconds of the prompt, and those of a decode step."""
        clock = Clock()
        begun = time.perf_counter()
        tokens = self.model.generate(
            prompt, max_new_tokens=count, min_new_tokens=count, do_sample=False, streamer=clock,
            cache_implementation="static", disable_compile=True,
        )  # fmt: skip
        first, last = clock.times[1], clock.times[-1]
        return tokens[0].tolist(), first - begun, (last - first) / (count - 1)


def network_of(name: str, positions: int) -> Any:
    """A network with random weights, for so many positions."""
    import torch

    stand_in_operators()
    import transformers

    torch.manual_seed(0)
    known = {"bos_token_id": 1, "eos_token_id": None, "pad_token_id": 0, "vocab_size": VOCABULARY}
    if name == "gpt2":
        sizes = {"n_layer": LAYERS, "n_embd": WIDTH, "n_head": HEADS, "n_positions": positions}
        return transformers.GPT2LMHeadModel(transformers.GPT2Config(**sizes, **known)).eval()
    sizes = {
        "hidden_size": WIDTH, "intermediate_size": 3 * WIDTH, "num_hidden_layers": LAYERS,
        "num_attention_heads": HEADS, "num_key_value_heads": HEADS // 2, "max_position_embeddings": positions,
    }  # fmt: skip
    family = {"llama": "Llama", "qwen2": "Qwen2"}[name]
    config = getattr(transformers, f"{family}Config")(**sizes, **known)
    return getattr(transformers, f"{family}ForCausalLM")(config).eval()


def compare(name: str, threads: int, length: int, count: int) -> Record:
    """The median seconds of prompts and of decode steps of all sides, and whether their tokens are equal."""
    import torch

    torch._dynamo.reset()
    torch.set_num_threads(threads)
    network = network_of(name, length + count)
    prompt = torch.randint(2, VOCABULARY, (1, length))
    sides = {side: Side(side, network) for side in SIDES}
    tokens = {side: each.generate(prompt, count)[0] for side, each in sides.items()}
    prompts: dict[str, list[float]] = {side: [] for side in SIDES}
    steps: dict[str, list[float]] = {side: [] for side in SIDES}
    gc.collect()
    for _ in range(ROUNDS):
        for side, each in sides.items():
            _, of_prompt, of_step = each.generate(prompt, count)
            prompts[side].append(of_prompt)
            steps[side].append(of_step)
    return {
        "network": name, "threads": threads,
        "right": all(each == tokens["eager"] for each in tokens.values()),
        "prompt": {side: median(each) for side, each in prompts.items()},
        "step": {side: median(each) for side, each in steps.items()},
        "own": _own(lambda: sides["dlc"].generate(prompt, count), count),
    }  # fmt: skip


def _own(run: Callable[[], object], count: int) -> float:
    """The seconds of a decode step that dlc takes in Python: graphs, without the calls of compiled code."""
    from dlc_frontend_torch.dynamo.graph import CompiledGraph

    from dlc_core.runtime.executable import Executable

    outer = _timed(CompiledGraph, "__call__")
    inner = _timed(Executable, "__call__")
    try:
        run()
    finally:
        CompiledGraph.__call__, Executable.__call__ = outer.original, inner.original  # type: ignore[method-assign]
    return (sum(outer.seconds[1:]) - sum(inner.seconds[1:])) / (count - 1)


class _timed:  # noqa: N801  (used as a function)
    """Replaces a method by one that notes the seconds of its calls."""

    def __init__(self, owner: type, name: str) -> None:
        self.original = original = getattr(owner, name)
        self.seconds = seconds = list[float]()

        def call(*arguments: Any, **options: Any) -> Any:
            begun = time.perf_counter()
            try:
                return original(*arguments, **options)
            finally:
                seconds.append(time.perf_counter() - begun)

        setattr(owner, name, call)


def ratio(times: dict[str, float]) -> float:
    """dlc's time divided by that of the faster of the others."""
    return times["dlc"] / min(seconds for side, seconds in times.items() if side != "dlc")


def main(arguments: Sequence[str] | None = None) -> int:
    """The command line. Returns 1 if tokens differ from those of eager."""
    parser = _parser()
    options = parser.parse_args(arguments)
    networks = chosen_networks(parser, options.networks, NETWORKS)
    facts = machine()
    records = [
        compare(name, threads, options.prompt, options.tokens)
        for name in networks
        for threads in map(int, options.threads.split(","))
    ]
    print(f"{facts['processor']}, {facts['cores']} cores; load {facts['load']:.1f}\n")
    titles = (
        "network", "threads", *(f"{side} tokens/s" for side in SIDES), "/ best",
        *(f"{side} prompt ms" for side in SIDES), "/ best", "own us",
    )  # fmt: skip
    rows = [
        [
            each["network"], str(each["threads"]),
            *(f"{1 / each['step'][side]:.0f}" for side in SIDES), f"{ratio(each['step']):.2f}",
            *(f"{each['prompt'][side] * 1e3:.1f}" for side in SIDES), f"{ratio(each['prompt']):.2f}",
            f"{each['own'] * 1e6:.0f}",
        ]
        for each in records
    ]  # fmt: skip
    print_table(titles, rows, markdown=options.markdown)
    print(f"\ngeometric mean of decode steps: {geometric_mean([ratio(r['step']) for r in records]):.2f}")
    wrong = [each["network"] for each in records if not each["right"]]
    for name in wrong:
        print(f"{name}: tokens differ from those of eager", file=sys.stderr)
    return int(bool(wrong))


def _parser() -> argparse.ArgumentParser:
    text = (__doc__ or "").split("\n", 1)[0]
    made = argparse.ArgumentParser(prog="python -m benchmarks.torch_generation", description=text)
    made.add_argument("networks", nargs="*", help=f"of {', '.join(NETWORKS)}; all of them by default")
    made.add_argument("--threads", default="1,2", help="numbers of threads (default: 1,2)")
    made.add_argument("--prompt", type=int, default=64, help="tokens of a prompt (default: 64)")
    made.add_argument("--tokens", type=int, default=64, help="tokens of a run (default: 64)")
    made.add_argument("--markdown", action="store_true")
    return made


if __name__ == "__main__":
    sys.exit(main())
