"""Properties of processors: of this machine, and of others by their names."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from dlc_backend_llvm.host import describe, host_cpu
from dlc_backend_llvm.triples import normal_arch

from dlc_core.diag import TargetError
from dlc_core.runtime.machine.cores import cgroup_quota, usable_cores

X86 = "x86_64-unknown-linux-gnu"


def test_this_machine() -> None:
    cpu = host_cpu()
    assert cpu.arch == normal_arch(cpu.triple)
    assert cpu.vector_bits in (0, 128, 256, 512)
    assert 4096 <= cpu.l1d <= cpu.l2 <= cpu.l3
    assert 1 <= cpu.cores <= (os.cpu_count() or 1)
    if cpu.arch == "x86_64":
        assert cpu.cpu.startswith("x86-64")
        assert cpu.has("sse2")
        assert cpu.fma == cpu.has("fma")
        assert (cpu.vector_bits == 512) == cpu.has("avx512f")


@pytest.mark.parametrize(
    ("triple", "cpu", "features", "bits", "registers", "fma"),
    [
        (X86, "", "", 128, 16, False),
        (X86, "", "+avx2,+fma", 256, 16, True),
        (X86, "", "+avx2", 256, 16, False),
        (X86, "", "+avx512f,+avx512vl", 512, 32, True),
        (X86, "skylake-avx512", "", 512, 32, True),
        (X86, "znver3", "", 256, 16, True),
        ("aarch64-linux-gnu", "", "", 128, 32, True),
        ("arm64-apple-darwin", "apple-m1", "", 128, 32, True),
        ("riscv64-linux-gnu", "", "", 0, 32, True),
        ("riscv64-linux-gnu", "", "+v", 128, 32, True),
        ("riscv64-linux-gnu", "", "+v,+zvl256b", 256, 32, True),
    ],
)
def test_machines_from_text(
    triple: str, cpu: str, features: str, bits: int, registers: int, fma: bool
) -> None:
    known = describe(triple, cpu, features, cores=3)
    assert (known.vector_bits, known.vector_registers, known.fma, known.cores) == (bits, registers, fma, 3)
    assert known.lanes(32) == max(1, bits // 32)


def test_vector_registers_wider_than_the_units() -> None:
    assert describe(X86, "znver4").vector_units == 1
    assert describe(X86, "znver4", "-avx512f").vector_units == 2
    assert describe(X86, "skylake-avx512").vector_units == 2
    assert describe("aarch64-linux-gnu").vector_units == 2


def test_rounding_and_float16_are_detected() -> None:
    assert not describe(X86).rounding
    assert describe(X86, features="+sse4.1").rounding
    assert not describe(X86, features="+avx2").float16
    assert describe(X86, "x86-64-v3").float16
    assert describe("aarch64-linux-gnu").float16


def test_the_last_sign_of_a_feature_counts() -> None:
    assert not describe(X86, features="+avx2,-avx2").has("avx2")
    assert describe(X86, "x86-64-v3").has("avx2")
    assert not describe(X86, "x86-64-v2").has("avx2")


@pytest.mark.parametrize(
    ("triple", "cpu", "features", "named"),
    [
        ("nowhere-at-all", "", "", "nowhere-at-all"),
        (X86, "pentium9", "", "pentium9"),
        (X86, "", "+warp", "warp"),
        (X86, "", "avx2", "avx2"),
        ("riscv64-linux-gnu", "generic-rv32", "", "rv32"),
    ],
)
def test_unknown_names_are_errors(triple: str, cpu: str, features: str, named: str) -> None:
    with pytest.raises(TargetError, match=named):
        describe(triple, cpu, features)


def _cgroup(root: Path, line: str, files: dict[str, str]) -> None:
    (root / "proc/self").mkdir(parents=True)
    (root / "proc/self/cgroup").write_text(line + "\n")
    for name, text in files.items():
        path = root / "sys/fs/cgroup" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)


def test_quota_of_cgroup_2_is_the_tightest_of_the_ancestors(tmp_path: Path) -> None:
    _cgroup(
        tmp_path,
        "0::/outer/inner",
        {
            "outer/inner/cpu.max": "max 100000\n",
            "outer/cpu.max": "150000 100000\n",
            "cpu.max": "800000 100000\n",
        },
    )
    assert cgroup_quota(tmp_path) == 1.5
    assert usable_cores(tmp_path) == min(2, usable_cores(tmp_path / "none"))


def test_quota_of_cgroup_1(tmp_path: Path) -> None:
    _cgroup(
        tmp_path,
        "4:cpu,cpuacct:/box",
        {
            "cpu,cpuacct/box/cpu.cfs_quota_us": "50000\n",
            "cpu,cpuacct/box/cpu.cfs_period_us": "100000\n",
        },
    )
    assert cgroup_quota(tmp_path) == 0.5
    assert usable_cores(tmp_path) == 1


def test_no_quota(tmp_path: Path) -> None:
    assert cgroup_quota(tmp_path) is None
    _cgroup(tmp_path, "4:cpu:/", {"cpu/cpu.cfs_quota_us": "-1\n", "cpu/cpu.cfs_period_us": "100000\n"})
    assert cgroup_quota(tmp_path) is None
