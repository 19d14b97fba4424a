"""The figures for flash, memory and stack of an exported folder, compared with compilers, linker maps and
boards.
"""

from __future__ import annotations

import re
import shutil
import subprocess
import sys

import numpy as np
import pytest
from dlc_backend_c import boards, bounds

import dlc_core as dlc
from dlc_core.testing import networks

COMPILERS = [name for name in ("gcc", "clang") if shutil.which(name)]
STRICT = ["-std=gnu99", "-Wall", "-Wextra", "-pedantic", "-Werror"]
needs_board = pytest.mark.skipif(boards.problem() is not None, reason=str(boards.problem()))


def quantized(name):
    module = networks.NETWORKS[name]()
    return dlc.quantize(module, [{"x": networks.feed(module, seed)} for seed in range(4)])


def read_reported(folder):
    """The numbers in the README's table, by the first words of the rows."""
    rows = re.findall(
        r"^\| (\w+) \| ([\w ]+)[^|]*\| (\d+) \|$", (folder / "README.md").read_text(), re.MULTILINE
    )
    return {f"{where} {what.split()[0]}": int(size) for where, what, size in rows}


def sections(file):
    """The bytes of the sections of an object or program."""
    listed = subprocess.run(["size", "-A", str(file)], capture_output=True, text=True, check=True)
    rows = (line.split() for line in listed.stdout.splitlines() if line.startswith("."))
    return {row[0]: int(row[1]) for row in rows}


MAIN = """#include <stdio.h>
#include <stdint.h>
#include "net.h"
extern uint32_t __stack[];
static const float x[NET_INPUT0_SIZE] = {%s};
static float y[NET_OUTPUT0_SIZE];
static __attribute__((noinline)) unsigned painted(int count)
{
    volatile uint8_t room[4096];
    unsigned untouched = 0;
    if (count == 0)
        for (unsigned i = 0; i < sizeof room; ++i)
            room[i] = 0xA5;
    else
        while (untouched < sizeof room && room[untouched] == 0xA5)
            ++untouched;
    return untouched;
}
int main(void)
{
    int status;
    unsigned untouched;
    painted(0);
    status = net_run(x, y, NULL);
    untouched = painted(1);
    printf("%%d %%u\\n", status, 4096 - untouched);
    for (int i = 0; i < NET_OUTPUT0_SIZE; ++i)
        printf("%%.9g\\n", (double)y[i]);
    return status;
}
"""


@needs_board
@pytest.mark.parametrize("form", ["float32", "int8"])
@pytest.mark.parametrize(
    ("name", "where"), [("mlp", "mps2-an386"), ("cifar", "mps2-an500"), ("keywords", "mps2-an386")]
)
def test_reported_memory_and_stack_suffice_on_boards(tmp_path, name, where, form):
    board = boards.board(where)
    module = networks.NETWORKS[name]() if form == "float32" else quantized(name)
    x = networks.feed(networks.NETWORKS[name]())
    dlc.compile(module, f"c -mcpu={board.cpu}", cache=False).export(tmp_path / "net")
    reported = read_reported(tmp_path / "net")
    values = ", ".join(f"{v!r}f" for v in x.ravel().tolist())
    (tmp_path / "main.c").write_text(MAIN % values)
    elf, listing = tmp_path / "fw.elf", tmp_path / "fw.map"
    flags = ["-O2", f"-I{tmp_path / 'net'}", f"-Wl,-Map={listing}"]
    boards.build_firmware(board, [tmp_path / "main.c", tmp_path / "net" / "net.c"], elf, flags=flags)
    (_, used), found = _printed(boards.emulate(board, elf))
    assert 0 < used <= reported["stack of"]
    reference = dlc.compile(module, "reference", cache=False)(x).ravel()
    np.testing.assert_allclose(found, reference, 1e-4, 1e-5)
    symbols = _symbols(elf)
    assert symbols.get("net_arena", 0) == reported["memory the"]
    assert symbols["net_weights"] == reported["flash weights"]
    own = _of_object(listing.read_text())
    assert sum(own) <= reported["flash weights"] + reported["flash code"] + 16 * len(own)


def _printed(text):
    first, *rest = text.decode().splitlines()
    return tuple(map(int, first.split())), np.array([float(line) for line in rest])


def _symbols(elf):
    listed = subprocess.run(["arm-none-eabi-nm", "-S", str(elf)], capture_output=True, text=True, check=True)
    rows = (line.split() for line in listed.stdout.splitlines())
    return {row[3]: int(row[1], 16) for row in rows if len(row) == 4}


def _of_object(listing):
    """The bytes of flash sections in the linker map for the object of the model."""
    kept = listing.partition("Linker script and memory map")[2]
    rows = re.findall(r"^ \.(?:text|rodata)\S*\s+0x[0-9a-f]+\s+(0x[0-9a-f]+) (\S+\.o)$", kept, re.MULTILINE)
    objects = {}
    for size, file in rows:
        objects.setdefault(file, []).append(int(size, 16))
    return max((sizes for file, sizes in objects.items() if "lib" not in file), key=sum)


@pytest.mark.parametrize("cc", COMPILERS)
@pytest.mark.parametrize("name", ["mlp", pytest.param("cifar", marks=pytest.mark.slow)])
def test_without_a_compiler_the_stack_is_an_upper_bound(tmp_path, cc, name):
    exe = dlc.compile(networks.NETWORKS[name](), "c -mcpu=rv64gc", cache=False)
    exe.export(tmp_path / "net")
    reported = read_reported(tmp_path / "net")
    assert "not measured" in (tmp_path / "net" / "README.md").read_text()
    for level in ("-O0", "-O2", "-O3"):
        command = [cc, level, "-fstack-usage", "-c", "net.c", "-o", "net.o"]
        done = subprocess.run(command, cwd=tmp_path / "net", check=False, capture_output=True)
        usage = tmp_path / "net" / "net.su"
        if done.returncode or not usage.is_file():
            pytest.skip(f"{cc} has no -fstack-usage")
        assert stack(tmp_path / "net") <= reported["stack of"], level


def stack(folder):
    """The stack of a call, from the `-fstack-usage` files of the compiler."""
    frames = bounds.frames_of((folder / "net.su").read_text())
    return bounds.stack_of(frames, bounds.calls_of((folder / "net.c").read_text()), "net")


SOURCES = """
static inline int small(int a)
{
    return a;
}

static DLC_NOINLINE void kernel(const int *restrict p0,
        int *restrict p1)
{
    p1[0] = small(p0[0]);
}

static void large(int *restrict p0)
{
    p0[0] = 0;
}

static void main_loop_body(const int *p0, int *p1)
{
    for (;;)
        kernel(p0, p1);
}

static void model(const int *p0, int *p1)
{
    large(p1);
    main_loop_body(p0, p1);
}

int net_run(const int *x, int *y)
{
    model(x, y);
    return 0;
}
"""


def test_the_stack_is_that_of_the_deepest_call_chain():
    calls = bounds.calls_of(SOURCES)
    assert calls["main_loop_body"] == {"kernel"}
    assert calls["model"] == {"large", "main_loop_body"}
    sizes = {"small": 8, "kernel.constprop.0": 100, "large": 120, "main_loop_body": 40, "net_run": 16}
    text = "".join(f"net.c:1:5:{function}\t{size}\tstatic\n" for function, size in sizes.items())
    assert bounds.stack_of(bounds.frames_of(text), calls, "net") == 16 + 40 + 100 + 8 + bounds.LIBRARY
    assert set(bounds.stated_frames(SOURCES)) == set(calls)


@pytest.mark.parametrize("cc", COMPILERS)
def test_reported_memory_suffices_on_the_host(tmp_path, cc):
    exe = dlc.compile(networks.mlp(), "c", cache=False)
    exe.export(tmp_path / "net")
    reported = read_reported(tmp_path / "net")
    subprocess.run([cc, "-O2", "-c", "net.c", "-o", "net.o"], cwd=tmp_path / "net", check=True)
    listed = subprocess.run(
        ["size", "-A", "net.o"], cwd=tmp_path / "net", capture_output=True, text=True, check=True
    )
    sizes = {
        line.split()[0]: int(line.split()[1]) for line in listed.stdout.splitlines() if line.startswith(".")
    }
    assert sizes[".bss"] == reported["memory the"] == exe.signature.arena_size.value
    assert sizes.get(".data", 0) == 0
    if cc == "gcc":
        assert sizes[".text"] + sizes[".rodata"] <= reported["flash code"] + reported["flash weights"]


@pytest.mark.parametrize("cc", COMPILERS)
@pytest.mark.parametrize("section", ["", ".other_flash"])
def test_weights_in_an_object_file(tmp_path, cc, section):
    module = networks.mlp()
    x = networks.feed(module)
    dlc.compile(module, "c -weights=object", cache=False).export(tmp_path / "net")
    define = [f'-DNET_WEIGHTS_SECTION="{section}"'] if section else []
    sources = ["main.c", "net.c", "net_weights.S"]
    made = [cc, *STRICT, *define, *sources, "-lm", "-o", "net"]
    subprocess.run(made, cwd=tmp_path / "net", check=True)
    done = subprocess.run(["./net"], cwd=tmp_path / "net", input=x.tobytes(), capture_output=True, check=True)
    expected = dlc.compile(module, "reference", cache=False)(x)
    np.testing.assert_allclose(np.frombuffer(done.stdout, np.float32), expected.ravel(), 1e-4, 1e-5)
    if section:
        listed = subprocess.run(
            ["size", "-A", "net"], cwd=tmp_path / "net", capture_output=True, text=True, check=True
        )
        assert section in listed.stdout


@pytest.mark.parametrize("cc", COMPILERS)
def test_constants_in_a_section(tmp_path, cc):
    exe = dlc.compile(networks.mlp(), "c", cache=False)
    exe.export(tmp_path / "net.h")
    (tmp_path / "one.c").write_text('#define NET_IMPLEMENTATION\n#include "net.h"\n')
    made = [cc, *STRICT, '-DNET_WEIGHTS_SECTION=".other_flash"', "-c", "one.c", "-o", "one.o"]
    subprocess.run(made, cwd=tmp_path, check=True)
    assert sections(tmp_path / "one.o")[".other_flash"] == exe.signature.weights_size


def test_makefile_and_cmake_link_the_object(tmp_path):
    module = networks.mlp()
    dlc.compile(module, "c -weights=object", cache=False).export(tmp_path / "net")
    subprocess.run(["make", "-s"], cwd=tmp_path / "net", check=True, capture_output=True)
    assert "net_weights.S" in (tmp_path / "net" / "CMakeLists.txt").read_text()
    assert "C ASM" in (tmp_path / "net" / "CMakeLists.txt").read_text()


def test_two_processes_write_the_same_bytes(tmp_path):
    program = (
        "import sys, dlc_core as dlc\n"
        "from dlc_core.testing import networks\n"
        "target = 'c -mcpu=cortex-m4 -weights=object -stream-rows=2'\n"
        "dlc.compile(networks.mlp(), target, cache=False).export(sys.argv[1])\n"
    )
    for folder in ("a", "b"):
        (tmp_path / folder).mkdir()
        subprocess.run([sys.executable, "-c", program, str(tmp_path / folder / "net")], check=True)
    files = sorted(path.name for path in (tmp_path / "a" / "net").iterdir())
    assert "net_weights.S" in files
    for name in files:
        assert (tmp_path / "a" / "net" / name).read_bytes() == (tmp_path / "b" / "net" / name).read_bytes()
