"""Random changes of scripts: each is compiled and run, or refused by an error of dlc. Nothing may crash.

    python -m tests.script.fuzz --count 10000

The texts are those of random mixed modules and of random tensor programs. A change replaces, removes or
swaps tokens or lines. Programs run with `check_bounds`, because a changed program may leave its buffers.
The work is done in a process of its own; if it dies, the seed that killed it is reported.
"""

from __future__ import annotations

import argparse
import io
import math
import mmap
import os
import random
import re
import resource
import signal
import sys
import time
import tokenize
from collections import Counter
from collections.abc import Callable, Sequence

import numpy as np

import dlc_core as dlc
from dlc_core.arith import eval_expr
from dlc_core.config import config
from dlc_core.diag import DlcError, PassError, ScriptError
from dlc_core.ir.dtype import STRING
from dlc_core.script import parse, to_script
from dlc_core.testing.mixed_modules import mixed_module
from dlc_core.testing.strategies import DTYPES, random_graph
from dlc_core.testing.te_programs import random_te_program
from dlc_core.tir.stmt import PrimFunc

SECONDS = 20
"""The time limit of one text. A program may loop for a long time; that is no failure."""
ADDRESS_SPACE = 8 << 30
MAX_ELEMENTS = 1 << 24
"""The most elements of an input of a text that is run."""
NUMBERS = ("0", "1", "2", "3", "4", "7", "16", "33", "-1", "1000", "1 << 40", "0.5", "True", "n")
DTYPE_WORDS = ('"float32"', '"int8"', '"int64"', '"bool"', '"float64"', '"string"', '"float33"')
Token = tokenize.TokenInfo


def original(rng: random.Random, seed: int) -> tuple[str, dict[str, object]]:
    """The text of a random module or program, with its metadata."""
    if seed % 2:
        made = random_te_program(rng).func
        return to_script(made)
    graph = random_graph(rng, DTYPES[seed // 2 % len(DTYPES)], symbolic=seed % 8 >= 4)
    return to_script(mixed_module(graph.function, rng))


def changed(text: str, rng: random.Random) -> str:
    """The text after a few random changes."""
    for _ in range(rng.choice((1, 1, 1, 2, 3))):
        change: Callable[[str, random.Random], str] = rng.choice((*[_tokens] * 5, _lines))
        text = change(text, rng)
    return text


def _tokens(text: str, rng: random.Random) -> str:
    try:
        tokens = list(tokenize.generate_tokens(io.StringIO(text).readline))
    except (tokenize.TokenError, IndentationError, SyntaxError):
        return _lines(text, rng)
    kinds = (tokenize.NAME, tokenize.NUMBER, tokenize.OP, tokenize.STRING)
    places = [t for t in tokens if t.type in kinds]
    if not places:
        return text
    numbers = [t for t in places if t.type == tokenize.NUMBER]
    names = [t for t in places if t.type == tokenize.NAME and re.search(r"\d", t.string)]
    token = rng.choice(rng.choice([kind for kind in (places, numbers, numbers, names) if kind]))
    other = rng.choice([t for t in places if t.type == token.type])
    new = other.string
    if token.type == tokenize.NUMBER:
        new = rng.choice((*NUMBERS, other.string))
    elif token.type == tokenize.STRING:
        new = rng.choice((*DTYPE_WORDS, other.string))
    elif token in names:
        new = rng.choice(names).string
    if rng.random() < 0.05:
        new = ""
    return _replaced(text, token, new)


def _replaced(text: str, token: Token, new: str) -> str:
    lines = text.splitlines(keepends=True)
    (first, begin), (last, end) = token.start, token.end
    if first != last:
        return text
    line = lines[first - 1]
    lines[first - 1] = line[:begin] + new + line[end:]
    return "".join(lines)


def _lines(text: str, rng: random.Random) -> str:
    lines = text.splitlines(keepends=True)
    if not lines:
        return text
    a, b = rng.randrange(len(lines)), rng.randrange(len(lines))
    action = rng.randrange(4)
    if action == 0:
        del lines[a]
    elif action == 1:
        lines.insert(a, lines[b])
    elif action == 2:
        lines[a], lines[b] = lines[b], lines[a]
    else:
        indent = len(lines[b]) - len(lines[b].lstrip())
        lines[a] = " " * indent + lines[a].lstrip()
    return "".join(lines)


def attempt(seed: int, target: str) -> str:
    """Try one text. Returns what happened; raises an exception that is no error of dlc, or a PassError."""
    rng = random.Random(seed)
    text, metadata = original(rng, seed)
    text = changed(text, rng)
    try:
        found = parse(text, metadata, verify=True)
    except ScriptError:
        return "not parsed"
    try:
        exe = (
            dlc.build(found, target=target)
            if isinstance(found, PrimFunc)
            else dlc.compile(found, target=target, cache=False)
        )
    except PassError:
        raise
    except DlcError:
        return "not compiled"
    generator = np.random.default_rng(seed)
    sizes = {v: rng.choice((1, 2, 5)) for v in exe.signature.symbols}
    arrays = []
    for value in exe.signature.inputs:
        shape = [d if isinstance(d, int) else _size(d, sizes) for d in value.type.shape]
        if (
            math.prod(map(abs, shape)) > MAX_ELEMENTS
            or min(shape, default=0) < 0
            or value.type.dtype is STRING
        ):
            return "too large"
        arrays.append(generator.integers(0, 3, shape).astype(value.type.dtype.numpy))
    try:
        exe(*arrays)
    except DlcError:
        return "not run"
    return "run"


def _size(formula: object, sizes: dict[object, int]) -> int:
    return max(0, eval_expr(formula, sizes))  # type: ignore[arg-type]


def _work(seeds: Sequence[int], current: mmap.mmap, results: int, target: str) -> None:
    resource.setrlimit(resource.RLIMIT_AS, (ADDRESS_SPACE, ADDRESS_SPACE))
    with config.override(check_bounds=True), os.fdopen(results, "w", buffering=1) as out:
        for seed in seeds:
            current[:8] = seed.to_bytes(8, "little")
            signal.alarm(SECONDS)
            try:
                out.write(f"={attempt(seed, target)}\n")
            except Exception as error:  # noqa: BLE001 (all of them are findings)
                out.write(f"{seed}: {type(error).__name__}: {' '.join(str(error).split())[:300]}\n")
            signal.alarm(0)
    os._exit(0)


def search(first: int, count: int, target: str = "llvm") -> tuple[list[str], Counter[str]]:
    """Try `count` texts. Returns the failures and the number of each outcome."""
    failures: list[str] = []
    counts: Counter[str] = Counter()
    seeds = list(range(first, first + count))
    current = mmap.mmap(-1, 8)
    while seeds:
        readable, writable = os.pipe()
        child = os.fork()
        if child == 0:
            os.close(readable)
            _work(seeds, current, writable, target)
        os.close(writable)
        with os.fdopen(readable) as lines:
            for line in lines:
                if line.startswith("="):
                    counts[line[1:].strip()] += 1
                else:
                    failures.append(line.strip())
        _, status = os.waitpid(child, 0)
        if status == 0:
            break
        seed = int.from_bytes(current[:8], "little")
        number = os.WTERMSIG(status) if os.WIFSIGNALED(status) else 0
        counts["dead" if number != signal.SIGALRM else "too long"] += 1
        if number != signal.SIGALRM:
            failures.append(
                f"{seed}: the process ended with {signal.Signals(number).name if number else status}"
            )
        seeds = seeds[seeds.index(seed) + 1 :]
    return failures, counts


def main() -> int:
    """Search, print the failures, and return their number."""
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    options.add_argument("--count", type=int, default=1000)
    options.add_argument("--first", type=int, default=0)
    options.add_argument("--target", default="llvm")
    options.add_argument("--show", type=int, help="print the text of this seed")
    given = options.parse_args()
    if given.show is not None:
        rng = random.Random(given.show)
        text, _ = original(rng, given.show)
        print(changed(text, rng))
        return 0
    start = time.perf_counter()
    failures, counts = search(given.first, given.count, given.target)
    print("\n".join(failures))
    seconds = time.perf_counter() - start
    print(f"{given.count} texts in {seconds:.0f} s: {dict(counts)}; {len(failures)} failures")
    return len(failures)


if __name__ == "__main__":
    sys.exit(min(main(), 100))
