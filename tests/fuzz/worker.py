"""The process that runs cases: it says which it begins, and how each ended.

python -m tests.fuzz.worker TARGET FILES... < lines of JSON       one file for each line
run_cases(target, seed, first, last, out)                         cases by number
"""

from __future__ import annotations

import faulthandler
import importlib
import json
import random
import signal
import sys
import traceback
import warnings
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import IO

from dlc_core.diag import DlcError
from tests.fuzz.mutations import change_bytes

HERE = Path(__file__).parent
CORPUS = HERE / "corpus"
ADDRESS_SPACE = 6 << 30
FRAMES = 3


def target_of(name: str) -> ModuleType:
    """The module of a target."""
    return importlib.import_module(f"tests.fuzz.targets.{name}")


def names() -> list[str]:
    """The names of all targets."""
    return sorted(path.stem for path in (HERE / "targets").glob("[a-z]*.py"))


def corpus_of(name: str) -> list[Path]:
    """The stored inputs of a target."""
    return sorted(path for path in (CORPUS / name).glob("*") if path.is_file())


def inputs_of(name: str) -> list[bytes]:
    """The inputs that are changed."""
    return [*target_of(name).seeds(), *(path.read_bytes() for path in corpus_of(name))]


def case_of(name: str, inputs: list[bytes], seed: int, number: int) -> bytes:
    """The case of a number; equal seeds give equal cases."""
    rng = random.Random(f"{name}:{seed}:{number}")
    # The smaller of two inputs: large ones take most of the time, and reach little that small ones do not.
    data = min((inputs[rng.randrange(len(inputs))] for _ in range(2)), key=len)
    mutate = getattr(target_of(name), "mutate", change_bytes)
    for _ in range(rng.choice((1, 1, 1, 2, 3, 5))):
        data = mutate(rng, data, inputs)
    return data


def attempt(name: str, data: bytes, seed: str) -> dict[str, str]:
    """The outcome of an input: `outcome`, and for a finding its `place` and `text`."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return {"outcome": target_of(name).check(data, random.Random(seed))}
    except DlcError as error:
        text = str(error)
        if len(text) > 20_000 or not all(line.isprintable() for line in text.split("\n")):
            return {"outcome": "finding", "place": "an unreadable message", "text": text[:2000]}
        return {"outcome": "refused"}
    except BaseException as error:  # noqa: BLE001 (all of them are findings)
        frames = [f for f in traceback.extract_tb(error.__traceback__) if "dlc_" in f.filename] or [
            *traceback.extract_tb(error.__traceback__)
        ]
        where = " < ".join(f"{Path(f.filename).name}:{f.name}" for f in reversed(frames[-FRAMES:]))
        text = "".join(traceback.format_exception(error))[-6000:]
        return {"outcome": "finding", "place": f"{type(error).__name__} in {where}", "text": text}


def limit_memory() -> None:
    """Limit the address space, so that a bomb is an exception of this process."""
    try:
        import resource
    except ImportError:  # the system has no such limits
        return
    resource.setrlimit(resource.RLIMIT_AS, (ADDRESS_SPACE, resource.getrlimit(resource.RLIMIT_AS)[1]))


def limit_time(seconds: float) -> None:
    """End this process after so many more seconds of processor time, with its stack in the standard error."""
    if hasattr(signal, "setitimer"):
        signal.setitimer(signal.ITIMER_PROF, seconds)


def serve(out: IO[str], begin: Callable[[], object] = lambda: None) -> None:
    """Run the cases that lines of the standard input name."""
    name = sys.argv[1]
    faulthandler.enable()
    if hasattr(signal, "SIGPROF"):
        faulthandler.register(signal.SIGPROF, chain=True)
    limit_memory()
    begin()
    inputs = inputs_of(name)
    print(json.dumps({"ready": len(inputs)}), file=out, flush=True)
    for line in sys.stdin:
        task = json.loads(line)
        first, last, seed = task.get("first", 0), task.get("last", 1), task.get("seed", 0)
        for number in range(first, last):
            print(json.dumps({"begin": number}), file=out, flush=True)
            path = task.get("path")
            data = Path(path).read_bytes() if path else case_of(name, inputs, seed, number)
            rng = task.get("rng") or f"{name}:{seed}:{number}:check"
            limit_time(target_of(name).SECONDS)
            print(json.dumps({"end": number, **attempt(name, data, rng)}), file=out, flush=True)


if __name__ == "__main__":
    import os

    # What targets print goes elsewhere.
    channel = os.fdopen(os.dup(1), "w")
    null = os.open(os.devnull, os.O_WRONLY)
    os.dup2(null, 1)
    serve(channel)
