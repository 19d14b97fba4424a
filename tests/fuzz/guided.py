"""A target guided by coverage, with Atheris: inputs that reach new code are kept and changed further.

    pip install atheris                                       # wheels for Linux
    python -m tests.fuzz.guided scripts --seconds 600         # a name of `tests/fuzz/targets`

It runs in one process, so the first finding ends it: libFuzzer writes the input as `crash-…` or `timeout-…`
in the working folder. Inputs that reach new code are in `--corpus FOLDER`.

Only modules that are imported by `instrument_imports` count, so this file imports nothing of dlc before.
"""

from __future__ import annotations

import argparse
import importlib
import random
import sys
from pathlib import Path

PACKAGES = ["dlc_core", "dlc_frontend_onnx", "dlc_tune"]
"""The packages whose coverage guides."""
TARGETS = Path(__file__).parent / "targets"


def main() -> None:
    options = argparse.ArgumentParser(prog="python -m tests.fuzz.guided")
    options.add_argument("target", choices=sorted(path.stem for path in TARGETS.glob("[a-z]*.py")))
    options.add_argument("--runs", type=int, default=100_000)
    options.add_argument("--seconds", type=int, default=600, help="the most time")
    options.add_argument("--seed", type=int, default=1)
    options.add_argument("--corpus", type=Path, default=Path("build/fuzz/guided"))
    given = options.parse_args()
    try:
        import atheris
    except ImportError:
        sys.exit("Atheris is not installed: pip install atheris, or use python -m tests.fuzz")
    folder = given.corpus / given.target
    folder.mkdir(parents=True, exist_ok=True)
    with atheris.instrument_imports(include=PACKAGES):
        worker = importlib.import_module("tests.fuzz.worker")
        mutations = importlib.import_module("tests.fuzz.mutations")
        inputs = worker.inputs_of(given.target)
    for number, data in enumerate(inputs):
        (folder / f"seed-{number:04}").write_bytes(data)
    mutate = getattr(worker.target_of(given.target), "mutate", mutations.change_bytes)
    limit = 2 * max(map(len, inputs))

    def change(data: bytes, most: int, seed: int) -> bytes:
        return mutate(random.Random(seed), bytes(data), inputs)[:most]

    def check(data: bytes) -> None:
        found = worker.attempt(given.target, bytes(data), "guided")
        if found["outcome"] == "finding":
            raise RuntimeError(f"{found['place']}\n{found['text']}")

    flags = {"runs": given.runs, "max_total_time": given.seconds, "seed": given.seed, "max_len": limit}
    words = [f"-{name}={value}" for name, value in flags.items()]
    atheris.Setup([sys.argv[0], *words, "-timeout=120", str(folder)], check, custom_mutator=change)
    atheris.Fuzz()


if __name__ == "__main__":
    main()
