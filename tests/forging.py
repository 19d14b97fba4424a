"""Forged headers of artefacts with right checksums, each opened with `trust=True` and called in a worker.

    python -m tests.forging --runs 100000 --seed 0 [--target llvm] [--contract]

A worker that dies is counted and replaced. `--contract` makes the contract right, too, as if the author of
the code had lied about it.
"""

from __future__ import annotations

import argparse
import copy
import os
import random
import tempfile
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np

import dlc_core as dlc
from dlc_core.diag import DlcError
from dlc_core.testing.networks import mlp
from tests.forged import forged

VALUES: tuple[Any, ...] = (
    0, 1, -1, 2, 63, 64, 65, 4096, 1 << 20, 1 << 31, (1 << 31) - 1, 1 << 40, 1 << 62, 1 << 63, 1e99,
    "", "main", "float64", "int8", "float32", "../x", "/etc/hostname", None, True, [], {}, [0], {"expr": 0},
)  # fmt: skip
BATCH = 500


def places(node: Any, found: list[tuple[Any, Any]]) -> list[tuple[Any, Any]]:
    """All containers of a tree of JSON data with their keys."""
    items = node.items() if isinstance(node, dict) else enumerate(node) if isinstance(node, list) else ()
    for key, value in items:
        found.append((node, key))
        places(value, found)
    return found


def mutate(rng: random.Random, header: dict[str, Any]) -> None:
    """Change some fields of a header in place."""
    for _ in range(rng.choice((1, 1, 1, 2, 3))):
        found = places(header, [])
        node, key = rng.choice(found)
        kind, value = rng.randrange(6), node[key]
        if kind == 0:
            del node[key]
        elif kind == 1 and isinstance(value, int):
            node[key] = value + rng.choice((-64, -1, 1, 64, value, 1 << 20))
        elif kind == 2:
            other, at = rng.choice(found)
            node[key] = copy.deepcopy(other[at])
        elif kind == 3 and isinstance(node, list):
            node.insert(rng.randrange(len(node) + 1), copy.deepcopy(value))
        elif kind == 4 and isinstance(node, list):
            rng.shuffle(node)
        else:
            node[key] = copy.deepcopy(rng.choice(VALUES))


def attempt(data: bytes, path: Path, rng: random.Random, x: Any, contract: bool) -> str:
    """Open and call one forged file; the outcome in a word."""
    path.write_bytes(forged(data, lambda header: mutate(rng, header), contract=contract))
    try:
        exe = dlc.open(path, trust=True, num_threads=1)
        exe(x)
    except DlcError as error:
        return type(error).__name__
    return "called"


def _rng(seed: int, number: int) -> random.Random:
    return random.Random(f"{seed} {number}")


def run(runs: int, seed: int, target: str, contract: bool = False) -> Counter[str]:
    """Counts of outcomes: kinds of errors, "called", and "died" with the signal's number."""
    x = np.linspace(-1, 1, 64, dtype=np.float32).reshape(1, 64)
    total: Counter[str] = Counter()
    with tempfile.TemporaryDirectory() as name:
        path = Path(name, "good.dlc")
        dlc.compile(mlp(), target, cache=False).save(path)
        data = path.read_bytes()
        for first in range(0, runs, BATCH):
            reader, writer = os.pipe()
            child = os.fork()
            if not child:
                for number in range(first, min(first + BATCH, runs)):
                    try:
                        word = attempt(
                            data, Path(name, "bad.dlc"), random.Random(f"{seed} {number}"), x, contract
                        )
                    except BaseException as error:  # noqa: BLE001
                        word = f"unexpected {type(error).__name__}"
                    os.write(writer, f"{word}\n".encode())
                os._exit(0)
            os.close(writer)
            with open(reader) as lines:  # noqa: PTH123
                total.update(line.strip() for line in lines)
            status = os.waitpid(child, 0)[1]
            if status:
                total[f"died {status}"] += 1
    return total


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=1000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--target", default="llvm")
    parser.add_argument("--contract", action="store_true")
    given = parser.parse_args()
    print(dict(run(given.runs, given.seed, given.target, given.contract)))
