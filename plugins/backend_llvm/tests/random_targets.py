"""Random targets, for test_any_target.py.

    python random_targets.py SEED COUNT

Each target is printed before it is made, so that it is known if the process ends. The last line counts the
outcomes. Errors other than those of dlc end the process.
"""

from __future__ import annotations

import json
import random
import sys
from collections import Counter
from typing import Any

import dlc_core as dlc
from dlc_core import te
from dlc_core.diag import DlcError
from dlc_core.target.facts import NUMBERS

chosen = random.Random(0)
pick = chosen.choice

ARCHES = (
    "x86_64", "aarch64", "arm", "armv7l", "armv6", "riscv64", "wasm32", "wasm64", "i686", "powerpc64le",
    "mips", "sparc", "s390x", "nvptx64", "amdgcn", "hexagon", "avr", "bpf", "thumbv7m", "armeb",
    "aarch64_be", "riscv32", "foo", "",
)  # fmt: skip
VENDORS = ("", "unknown", "pc", "apple", "nvidia", "none")
SYSTEMS = (
    "linux", "none", "elf", "windows", "darwin21.1", "macosx", "freebsd", "wasi", "unknown", "cuda",
    "uefi", "",
)  # fmt: skip
ENDINGS = ("", "gnu", "gnueabihf", "musl", "msvc", "elf", "coff", "macho", "wasm", "gnux32", "eabi", "0")
CPUS = (
    "",
    "generic",
    "native",
    "help",
    "skylake",
    "x86-64-v3",
    "znver5",
    "cortex-a72",
    "cortex-a7",
    "cortex-m3",
    "rocket",
    "sifive-u74",
    "mvp",
    "foo",
    "\u00e9",
    "-",
    "a" * 300,
)
FEATURES = (
    "+avx2",
    "-sse",
    "+sve",
    "-neon",
    "+v",
    "+zfinx",
    "+simd128",
    "-simd128",
    "+relaxed-simd",
    "+foo",
    "help",
    "+help",
    "+",
    "++",
    "+fma,-fma",
    "+soft-float",
    "+thumb-mode",
    " ",
    ",",
)
VALUES = (
    "",
    "0",
    "1",
    "2",
    "-1",
    "true",
    "1e9",
    "nan",
    "9" * 30,
    "x",
    "[]",
    "None",
    "\0",
    "sm_90",
    "sm_0",
    "sm_x",
    "16",
)
KINDS = {name: kind for name, kind in dlc.targets().items() if name not in ("c_emulated", "emulated")}


def mutated(text: str) -> str:
    """The text with a character removed, added or changed."""
    at = chosen.randrange(len(text) + 1)
    return text[:at] + pick(("", "-", "0", "\u00fc", "_", "A", ".")) + text[at + pick((0, 1)) :]


def triple() -> str:
    words = [pick(ARCHES), pick(VENDORS), pick(SYSTEMS), pick(ENDINGS)]
    text = "-".join(word for word in words if word or chosen.random() < 0.1)
    return mutated(text) if chosen.random() < 0.1 else text


def target() -> Any:
    kind = pick((*KINDS, "llvm", "llvm", "llvm"))
    given: dict[str, Any] = {"kind": kind}
    if kind in ("llvm", "wasm32"):
        given["mtriple"] = triple()
        if chosen.random() < 0.3:
            given["mcpu"] = pick(CPUS)
        if chosen.random() < 0.3:
            given["mattr"] = ",".join(chosen.sample(FEATURES, pick((1, 1, 2))))
    for option in KINDS[kind].options:
        if option.name not in ("mtriple", "mcpu", "mattr") and chosen.random() < 0.08:
            given[option.name] = pick(VALUES)
    if chosen.random() < 0.05:
        given["target." + pick((*NUMBERS, "l1_bytes", "l9_bytes", "nothing"))] = pick(VALUES)
    if chosen.random() < 0.02:
        given[pick(("keys", "model", "tag", "host", "option"))] = pick(VALUES)
    if chosen.random() < 0.1:
        return mutated(" ".join([kind, *(f"-{n}={v}" for n, v in given.items() if n != "kind")]))
    return given


def main(count: int) -> None:
    x = te.placeholder((7,), "float32", "x")
    func = te.create_prim_func([x, te.compute((7,), lambda i: x[i] * x[i] + 1.0, "y")], name="square")
    outcomes: Counter[str] = Counter()
    for _ in range(count):
        given = target()
        print(json.dumps(given), flush=True)
        try:
            made = dlc.Target(given)
            assert dlc.Target(str(made)) == dlc.Target(made.to_json()) == made
            made.describe()
            if made.kind.name in ("llvm", "wasm32"):
                dlc.build(func, target=made)
            outcomes["compiled"] += 1
        except DlcError as error:
            text = str(error)
            assert text
            assert len(text) < 6000
            outcomes["refused"] += 1
            if "no code is generated for the target triple" in text:
                assert "linux is supported on aarch64, arm, riscv64, x86_64" in text
                outcomes["triple"] += 1
    print(json.dumps(outcomes))


if __name__ == "__main__":
    chosen.seed(int(sys.argv[1]))
    main(int(sys.argv[2]))
