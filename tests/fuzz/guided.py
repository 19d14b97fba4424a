"""A target guided by coverage, with Atheris: inputs that reach new code are kept and changed further.

    python -m tests.fuzz.guided scripts --runs 100000 [--corpus FOLDER]

It runs in one process: the first finding ends it, and libFuzzer writes the input as `crash-…`.
"""

from __future__ import annotations

import argparse
import random
import sys
from pathlib import Path

from tests.fuzz import worker
from tests.fuzz.mutations import change_bytes


def main() -> None:
    options = argparse.ArgumentParser(prog="python -m tests.fuzz.guided")
    options.add_argument("target", choices=worker.names())
    options.add_argument("--runs", type=int, default=100_000)
    options.add_argument("--seed", type=int, default=1)
    options.add_argument("--corpus", type=Path, default=Path("build/fuzz/guided"))
    given = options.parse_args()
    try:
        import atheris
    except ImportError:
        sys.exit("Atheris is not installed: pip install atheris, or use python -m tests.fuzz")
    folder = given.corpus / given.target
    folder.mkdir(parents=True, exist_ok=True)
    with atheris.instrument_imports(include=["dlc_core", "dlc_frontend_onnx", "dlc_tune"]):
        inputs = worker.inputs_of(given.target)
    for number, data in enumerate(inputs):
        (folder / f"seed-{number:04}").write_bytes(data)
    mutate = getattr(worker.target_of(given.target), "mutate", change_bytes)
    limit = 2 * max(map(len, inputs))

    def change(data: bytes, most: int, seed: int) -> bytes:
        return mutate(random.Random(seed), bytes(data), inputs)[:most]

    def check(data: bytes) -> None:
        found = worker.attempt(given.target, bytes(data), "guided")
        if found["outcome"] == "finding":
            raise RuntimeError(f"{found['place']}\n{found['text']}")

    flags = [f"-runs={given.runs}", f"-seed={given.seed}", f"-max_len={limit}", "-timeout=120"]
    atheris.Setup([sys.argv[0], *flags, str(folder)], check, custom_mutator=change)
    atheris.Fuzz()


if __name__ == "__main__":
    main()
