"""Models on emulated microcontrollers without an operating system: results, and the stated memory."""

from __future__ import annotations

import re
import subprocess

import numpy as np
import pytest
from dlc_backend_c import boards

import dlc_core as dlc
from dlc_core.diag import CodegenError, RuntimeFailure, UnsupportedError
from dlc_core.testing import networks

needs_board = pytest.mark.skipif(boards.problem() is not None, reason=str(boards.problem()))

MAIN = """#include <stdio.h>
#include "net.h"
static const float x[NET_INPUT0_SIZE] = {%s};
static float y[NET_OUTPUT0_SIZE];
int main(void)
{
    int status = net_run(x, y, NULL);
    printf("%%d\\n", status);
    for (int i = 0; i < NET_OUTPUT0_SIZE; ++i)
        printf("%%.9g\\n", (double)y[i]);
    return status;
}
"""


@needs_board
@pytest.mark.parametrize("name", sorted(networks.NETWORKS))
@pytest.mark.parametrize("where", ["mps2-an386", "mps2-an500"])
def test_boards_compute_the_reference_results(tmp_path, name, where):
    board = boards.board(where)
    module = networks.NETWORKS[name]()
    x = networks.feed(module)
    exe = dlc.compile(module, f"c -mcpu={board.cpu}", cache=False)
    exe.export(tmp_path / "net.c")
    values = ", ".join(f"{v!r}f" for v in x.ravel().tolist())
    (tmp_path / "main.c").write_text(MAIN % values)
    boards.build_firmware(board, [tmp_path / "main.c", tmp_path / "net.c"], tmp_path / "fw.elf")
    status, *found = boards.emulate(board, tmp_path / "fw.elf").split()
    assert int(status) == 0
    expected = dlc.compile(module, "reference", cache=False)(x).ravel()
    np.testing.assert_allclose(np.array([float(v) for v in found]), expected, 1e-4, 1e-5)


@needs_board
@pytest.mark.parametrize("name", sorted(networks.NETWORKS))
def test_memory_equals_the_macros_of_the_header(tmp_path, name):
    board = boards.board("mps2-an386")
    exe = dlc.compile(networks.NETWORKS[name](), f"c -mcpu={board.cpu}", cache=False)
    exe.export(tmp_path / "net.c")
    macros = dict(
        re.findall(r"#define NET_(ARENA_NEEDED|WEIGHTS_BYTES) (\d+)", (tmp_path / "net.h").read_text())
    )
    flags = [*board.flags, "-O2", "-std=c99", "-Wall", "-Wextra", "-pedantic", "-Werror", "-fstack-usage"]
    subprocess.run(
        [boards.COMPILER, *flags, "-c", "net.c", "-o", "net.o"], cwd=tmp_path, check=True, capture_output=True
    )
    sizes = subprocess.run(
        ["arm-none-eabi-size", "-A", "net.o"], cwd=tmp_path, check=True, capture_output=True, text=True
    ).stdout
    sections = {line.split()[0]: int(line.split()[1]) for line in sizes.splitlines() if line.startswith(".")}
    assert sections[".bss"] == int(macros["ARENA_NEEDED"])
    assert sections[".data"] == 0
    assert sections[".rodata"] >= int(macros["WEIGHTS_BYTES"])
    frames = [int(line.split("\t")[1]) for line in (tmp_path / "net.su").read_text().splitlines()]
    assert max(frames) < 2048


@needs_board
def test_failing_firmware_reports_its_error(tmp_path):
    board = boards.board("mps2-an386")
    (tmp_path / "main.c").write_text("int main(void)\n{\n    return 3;\n}\n")
    boards.build_firmware(board, [tmp_path / "main.c"], tmp_path / "fw.elf")
    with pytest.raises(RuntimeFailure, match="status 3"):
        boards.emulate(board, tmp_path / "fw.elf")
    (tmp_path / "main.c").write_text("int main(void)\n{\n    for (;;)\n        ;\n}\n")
    boards.build_firmware(board, [tmp_path / "main.c"], tmp_path / "fw.elf")
    with pytest.raises(RuntimeFailure, match="did not end in 1 seconds"):
        boards.emulate(board, tmp_path / "fw.elf", seconds=1)


@needs_board
def test_a_program_too_large_for_the_board_is_refused(tmp_path):
    board = boards.board("mps2-an386")
    (tmp_path / "main.c").write_text(
        "static volatile char big[5 << 20];\nint main(void)\n{\n    return big[7];\n}\n"
    )
    with pytest.raises(CodegenError, match="cannot be built"):
        boards.build_firmware(board, [tmp_path / "main.c"], tmp_path / "fw.elf")


def test_an_unknown_board_is_refused():
    with pytest.raises(UnsupportedError, match="unknown board 'x'"):
        boards.board("x")
