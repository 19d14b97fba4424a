"""Names of usual boards and machines with a CPU, as targets of the kind `llvm`.

Cores, caches and clocks are those of the manufacturers' documents: the processors' pages of the Raspberry Pi
documentation, the data brief of the JH7110, the technical reference manuals of Arm's cores, the pages of EC2
instance types.  What they do not state is left to the kind's usual values.
"""

from __future__ import annotations

from dlc_core.target import TargetTag

_ARM64, _ARM, _RISCV = "aarch64-linux-gnu", "armv7l-linux-gnueabihf", "riscv64-linux-gnu"


def _board(
    name: str, doc: str, triple: str, cpu: str, cores: int, caches: str = "", frequency: str = ""
) -> TargetTag:
    words = [f"llvm -mtriple={triple} -mcpu={cpu} -num-threads={cores}"]
    words += [f"-target.caches={caches}"] * bool(caches) + [f"-target.frequency={frequency}"] * bool(
        frequency
    )
    key = "arm_cpu" if triple.startswith(("aarch64", "arm")) else triple.split("-")[0]
    words += [f"-keys={key}", f"-model={name.partition('/')[2]}"]
    return TargetTag(name, " ".join(words), doc)


_BOARDS = (
    _board(
        "raspberry-pi/zero",
        "BCM2835: one ARM1176, 1 GHz",
        "armv6-linux-gnueabihf",
        "arm1176jzf-s",
        1,
        "16384",
        "1e9",
    ),
    _board(
        "raspberry-pi/zero-2w",
        "BCM2710A1: 4 Cortex-A53, 1 GHz",
        _ARM64,
        "cortex-a53",
        4,
        "32768,524288",
        "1e9",
    ),
    _board(
        "raspberry-pi/3b", "BCM2837: 4 Cortex-A53, 1.2 GHz", _ARM64, "cortex-a53", 4, "32768,524288", "1.2e9"
    ),
    _board(
        "raspberry-pi/4b", "BCM2711: 4 Cortex-A72, 1.5 GHz", _ARM64, "cortex-a72", 4, "32768,1048576", "1.5e9"
    ),
    _board(
        "raspberry-pi/5",
        "BCM2712: 4 Cortex-A76, 2.4 GHz",
        _ARM64,
        "cortex-a76",
        4,
        "65536,524288,2097152",
        "2.4e9",
    ),
    _board(
        "raspberry-pi/3b-armv7",
        "raspberry-pi/3b with a 32-bit system",
        _ARM,
        "cortex-a53",
        4,
        "32768,524288",
        "1.2e9",
    ),
    _board(
        "raspberry-pi/4b-armv7",
        "raspberry-pi/4b with a 32-bit system",
        _ARM,
        "cortex-a72",
        4,
        "32768,1048576",
        "1.5e9",
    ),
    _board(
        "starfive/visionfive-2", "JH7110: 4 U74, 1.5 GHz", _RISCV, "sifive-u74", 4, "32768,2097152", "1.5e9"
    ),
    _board("banana-pi/bpi-f3", "K1: 8 X60 with vectors", _RISCV, "spacemit-x60", 8),
    _board(
        "apple/m1",
        "M1: 4 performance cores, 3.2 GHz",
        "arm64-apple-darwin",
        "apple-m1",
        4,
        "131072,12582912",
        "3.2e9",
    ),
)

_SIZES = {"large": 1, "xlarge": 2, "2xlarge": 4, "4xlarge": 8, "9xlarge": 18, "18xlarge": 36}
"""Cores of the sizes of c5; two virtual processors are threads of one core."""
_ARM_SIZES = {
    "medium": 1,
    "large": 2,
    "xlarge": 4,
    "2xlarge": 8,
    "4xlarge": 16,
    "8xlarge": 32,
    "16xlarge": 64,
}
"""Cores of the sizes of c6g and c7g; a virtual processor is a core."""

_CLOUD = (
    *(
        _board(f"aws/cpu/c5.{size}", f"Xeon Platinum, {n} cores", "x86_64-linux-gnu", "skylake-avx512", n)
        for size, n in _SIZES.items()
    ),
    *(
        _board(f"aws/cpu/{family}.{size}", f"{name}, {n} cores", _ARM64, cpu, n, caches)
        for family, name, cpu, caches in (
            ("c6g", "Graviton2", "neoverse-n1", "65536,1048576,33554432"),
            ("c7g", "Graviton3", "neoverse-v1", "65536,1048576,33554432"),
        )
        for size, n in _ARM_SIZES.items()
    ),
)

TAGS = (*_BOARDS, *_CLOUD)

__all__ = ["TAGS"]
