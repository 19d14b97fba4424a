"""Random targets: each describes a machine and compiles, or is refused by an error that says why."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from dlc_backend_llvm.trial import known_names

import dlc_core as dlc
from dlc_core.diag import TargetError

WORKER = Path(__file__).with_name("random_targets.py")


def outcomes_of(seed: int, count: int) -> dict[str, int]:
    done = subprocess.run(
        [sys.executable, str(WORKER), str(seed), str(count)],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
        capture_output=True,
        text=True,
        check=False,
    )
    lines = done.stdout.splitlines()
    assert done.returncode == 0, (lines[-1:], done.stderr[-2000:])
    found: dict[str, int] = json.loads(lines[-1])
    return found


@pytest.mark.parametrize("seed", range(100, 108))
def test_some_random_targets(seed: int) -> None:
    found = outcomes_of(seed, 30)
    assert found["compiled"] + found["refused"] == 30
    assert found["compiled"] > 3
    assert found["triple"] > 3


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(1, 11))
def test_ten_thousand_random_targets(seed: int) -> None:
    found = outcomes_of(seed, 1000)
    assert found["compiled"] + found["refused"] == 1000


@pytest.mark.parametrize(
    ("target", "words"),
    [
        (
            "llvm -mtriple=aarch64-linux-gnu -mcpu=cortex-a72x",
            "processor 'cortex-a72x'.*did you mean cortex-a72",
        ),
        ("llvm -mtriple=aarch64-linux-gnu -mattr=+neonn", r"feature '\+neonn'.*did you mean neon"),
        ("llvm -mtriple=x86_64-linux-gnu -mcpu=help", "processor 'help'"),
        ("llvm -mtriple=x86_64-linux-gnu -mattr=+help", r"feature '\+help'"),
        ("llvm -opt=4", "-opt=4.*from 0 to 3"),
        ("llvm -num-threads=-1", "-num-threads=-1.*from 0 to"),
        ("wasm32 -mcpu=foo", "processor 'foo'"),
    ],
)
def test_wrong_options_are_refused_when_the_machine_is_described(target: str, words: str) -> None:
    with pytest.raises(TargetError, match=f"(?s){words}"):
        dlc.Target(target).describe()


def test_names_that_llvm_knows() -> None:
    found = known_names("aarch64-unknown-linux-gnu")
    assert {"cortex-a72", "neoverse-n1"} <= set(found["processor"])
    assert {"neon", "sve"} <= set(found["feature"])
