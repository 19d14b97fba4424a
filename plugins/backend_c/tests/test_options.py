"""Options of the target (code size, vector width, threads), with each installed compiler."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from dlc_backend_c import boards

import dlc_core as dlc
from dlc_core.backend import compiler as toolchain
from dlc_core.diag import CodegenError, TargetError, UnsupportedError
from dlc_core.ir.expr import const_value
from dlc_core.testing import networks

COMPILERS = [name for name in ("gcc", "clang") if shutil.which(name)]
needs_board = pytest.mark.skipif(boards.problem() is not None, reason=str(boards.problem()))


@pytest.fixture
def compiler(monkeypatch: pytest.MonkeyPatch) -> Iterator[pytest.MonkeyPatch]:
    """The environment, in which tests set another compiler. Cached results of the search for compilers are
    cleared.
    """

    def forget() -> None:
        toolchain.compiler.cache_clear()
        toolchain.compiler_version.cache_clear()

    forget()
    yield monkeypatch
    monkeypatch.undo()
    forget()


def text_bytes(folder: Path, cc: str, flags: list[str], target: str, net: str) -> int:
    """The bytes of code of an exported network."""
    size = "arm-none-eabi-size" if cc.startswith("arm") else "size"
    dlc.compile(networks.NETWORKS[net](), target, cache=False).export(folder / "net.c")
    subprocess.run([cc, *flags, "-Os", "-std=c99", "-c", "net.c"], cwd=folder, check=True)
    listing = subprocess.run([size, "-A", "net.o"], cwd=folder, check=True, capture_output=True, text=True)
    return sum(int(line.split()[1]) for line in listing.stdout.splitlines() if line.startswith(".text"))


@pytest.mark.parametrize("where", ["host", pytest.param("cortex-m4", marks=needs_board)])
def test_opt_for_size_makes_smaller_code(tmp_path: Path, where: str) -> None:
    if where == "host":
        cc, flags, target = COMPILERS[0], [], "c"
    else:
        cc, flags, target = boards.COMPILER, list(boards.board("mps2-an386").flags), f"c -mcpu={where}"
    for net in ("cifar", "keywords"):
        fast = text_bytes(tmp_path, cc, flags, target, net)
        small = text_bytes(tmp_path, cc, flags, f"{target} -opt-for=size", net)
        assert small < 0.55 * fast, net


def test_opt_for_size_makes_no_padded_copies() -> None:
    """With small code, windows test whether they are inside of the image instead of padding it. The arena
    then has only two neighbouring values.
    """
    exe = dlc.compile(networks.cifar(), "c -mcpu=cortex-m4 -opt-for=size", cache=False)
    assert const_value(exe.signature.arena_size) == 4 * (16 * 32 * 32 + 16 * 16 * 16)


@pytest.mark.parametrize("net", sorted(networks.NETWORKS))
def test_opt_for_size_computes_the_same(net: str) -> None:
    module = networks.NETWORKS[net]()
    x = networks.feed(module)
    exe = dlc.compile(module, "c -opt-for=size", cache=False)
    np.testing.assert_allclose(exe(x), dlc.compile(module, "reference", cache=False)(x), 1e-4, 1e-5)


def test_an_unknown_opt_for_is_refused() -> None:
    with pytest.raises(dlc.DlcError, match=r"opt-for=fast.*speed or size"):
        dlc.compile(networks.mlp(), "c -opt-for=fast", cache=False)


@pytest.mark.parametrize(
    ("option", "hint"),
    [
        ("vector-bits=100", "one of -1, 0, 64"),
        ("vector-bits=-2", "one of -1, 0, 64"),
        ("vector-bits=4096", "one of -1, 0, 64"),
        ("stream-rows=-1", "0 or more"),
        ("num-threads=-1", "0 or more"),
        ("mcpu=cortex-m99", "cortex-m4"),
    ],
)
def test_invalid_option_values_are_refused_before_anything_runs(option: str, hint: str) -> None:
    with pytest.raises(TargetError, match=hint) as raised:
        dlc.compile(networks.mlp(), f"c -{option}", cache=False)
    assert "pass" not in str(raised.value)


@pytest.mark.parametrize("cc", COMPILERS)
def test_vector_bits_determine_the_vector_types(cc: str, compiler: pytest.MonkeyPatch) -> None:
    compiler.setenv("CC", cc)
    module = networks.keywords()
    x = networks.feed(module)
    expected = dlc.compile(module, "reference", cache=False)(x)
    for bits in (0, 64, 128, 256, 512):
        exe = dlc.compile(module, f"c -vector-bits={bits}", cache=False)
        assert ("vector_size" in exe.source("c")) is (bits > 0)
        np.testing.assert_allclose(exe(x), expected, 1e-4, 1e-6, err_msg=str(bits))


@pytest.mark.parametrize("cc", COMPILERS)
def test_threads_by_openmp(cc: str, compiler: pytest.MonkeyPatch) -> None:
    compiler.setenv("CC", cc)
    module = networks.cifar()
    x = networks.feed(module)
    exe = dlc.compile(module, "c -num-threads=2 -vector-bits=128", cache=False)
    assert "#pragma omp parallel for" in exe.source("c")
    alone = dlc.compile(module, "c -vector-bits=128", cache=False)
    assert "#pragma" not in alone.source("c")
    try:
        found = exe(x)
    except CodegenError as error:
        if toolchain.NO_OPENMP in str(error):
            pytest.skip(f"{cc} has no library of OpenMP here")
        raise
    np.testing.assert_allclose(found, alone(x), 1e-6, 1e-7)
    np.testing.assert_array_equal(exe.with_threads(1)(x), found)


@pytest.mark.parametrize("cc", COMPILERS)
def test_sources_with_pragmas_compile_without_openmp(tmp_path: Path, cc: str) -> None:
    dlc.compile(networks.cifar(), "c -num-threads=2", cache=False).export(tmp_path / "net.c")
    flags = ["-std=c99", "-Wall", "-Wextra", "-pedantic", "-Werror", "-c"]
    made = subprocess.run([cc, *flags, "net.c"], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert made.returncode == 0, made.stderr


def test_without_a_compiler_there_is_one_clear_error(compiler: pytest.MonkeyPatch, tmp_path: Path) -> None:
    compiler.delenv("CC", raising=False)
    compiler.setenv("PATH", str(tmp_path))
    compiler.setattr(toolchain, "find_spec", lambda name: None)
    assert "pip install ziglang" in str(toolchain.compiler_problem())
    exe = dlc.compile(networks.mlp(), "c", cache=False)
    with pytest.raises(UnsupportedError, match="there is no C compiler") as raised:
        exe(networks.feed(networks.mlp()))
    assert "pip install ziglang" in str(raised.value)
    exe.export(tmp_path / "net.c")
    assert (tmp_path / "net.c").stat().st_size > 1000


def test_a_missing_compiler_named_by_cc_is_an_error(compiler: pytest.MonkeyPatch) -> None:
    compiler.setenv("CC", "no-such-compiler -m64")
    with pytest.raises(UnsupportedError, match="CC names no-such-compiler, which is not installed"):
        dlc.compile(networks.mlp(), "c", cache=False)(networks.feed(networks.mlp()))


def test_the_ziglang_wheel_is_the_fallback_compiler(compiler: pytest.MonkeyPatch, tmp_path: Path) -> None:
    compiler.delenv("CC", raising=False)
    compiler.setenv("PATH", str(tmp_path))
    compiler.setattr(toolchain, "find_spec", lambda name: object() if name == "ziglang" else None)
    command = toolchain.compiler()
    assert command is not None
    assert command[1:] == ("-m", "ziglang", "cc")


def test_the_only_installed_backend_is_the_default_target() -> None:
    text = "import dlc_core as dlc, dlc_core.testing.networks as n; print(dlc.compile(n.mlp()).target)"
    environment = os.environ | {"DLC_PLUGINS": "c"}
    done = subprocess.run(
        [sys.executable, "-c", text], env=environment, capture_output=True, text=True, check=False
    )
    assert (done.stdout, done.returncode) == ("c\n", 0), done.stderr
