"""`python -m tests.forging`; see the package."""

from __future__ import annotations

import argparse

from tests.forging.models import COMPILED, GRAPHS
from tests.forging.workers import run

parser = argparse.ArgumentParser(description="Open and call forged files with right checksums.")
parser.add_argument("--runs", type=int, default=1000)
parser.add_argument("--seed", type=int, default=0)
parser.add_argument("--target", default="llvm")
parser.add_argument("--contract", action="store_true", help="make the contract right, too")
parser.add_argument("--portable", action="store_true", help="forge portable models")
parser.add_argument("--models", default="", help=f"of {', '.join(COMPILED)}; by default all")
given = parser.parse_args()
chosen = given.models.split(",") if given.models else list(GRAPHS if given.portable else COMPILED)
print(
    dict(
        run(
            given.runs,
            given.seed,
            given.target,
            given.contract,
            chosen,
            given.portable,
            lambda word, number: print(f"case {number}: {word}", flush=True),
        )
    )
)
