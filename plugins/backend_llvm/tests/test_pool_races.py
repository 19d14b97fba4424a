"""The thread pool under clang's thread sanitizer: the text that runs, with every access watched."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from dlc_backend_llvm.host import host_cpu
from dlc_backend_llvm.pool_text import pool_ir

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="the pool is serial elsewhere")

TURNS = os.environ.get("DLC_RACE_TURNS", "400")

HARNESS = r"""
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

typedef void Body(void *closure, int64_t begin, int64_t end);
int32_t dlc_parallel_for(Body *body, void *closure, int64_t n, int32_t threads);
void dlc_pool_set_num_threads(int32_t n);

enum { ITEMS = 64, CALLERS = 3 };
static int turns, pause_us;

static void increment(void *closure, int64_t begin, int64_t end) {
    int64_t *counts = closure;
    if (pause_us) usleep(pause_us);
    for (int64_t i = begin; i < end; i++) counts[i]++;
}

static void nested(void *closure, int64_t begin, int64_t end) {
    int64_t *counts = closure;
    for (int64_t i = begin; i < end; i++) dlc_parallel_for(increment, counts + 8 * i, 8, 2);
}

static void *caller(void *argument) {
    unsigned seed = (unsigned)(intptr_t)argument;
    int64_t counts[ITEMS] = {0};
    for (int turn = 0; turn < turns; turn++) {
        int threads = 1 + rand_r(&seed) % 4;
        if (turn % 3) dlc_parallel_for(increment, counts, ITEMS, threads);
        else dlc_parallel_for(nested, counts, ITEMS / 8, threads);
        for (int i = 0; i < ITEMS; i++)
            if (counts[i] != turn + 1) abort();
        if (turn % 50 == 0) usleep(rand_r(&seed) % 400);
        if (turn % 97 == 0) dlc_pool_set_num_threads(rand_r(&seed) % 4);
    }
    return NULL;
}

int main(int argc, char **argv) {
    pthread_t callers[CALLERS];
    turns = atoi(argv[1]);
    pause_us = atoi(argv[2]);
    for (intptr_t i = 0; i < CALLERS; i++) pthread_create(&callers[i], NULL, caller, (void *)(i + 1));
    for (int i = 0; i < CALLERS; i++) pthread_join(callers[i], NULL);
    puts("done");
    return 0;
}
"""


def watched(text: str) -> str:
    """The module with every function instrumented, and with declarations that old versions of LLVM want."""
    declared = {}
    for type_, name, arguments in re.findall(r"call (\w+) @(llvm\.[\w.]+)\(([^)]*)\)", text):
        types = ", ".join(argument.split()[0] for argument in arguments.split(", ") if argument)
        declared[name] = f"declare {type_} @{name}({types})"
    return "\n".join([*declared.values(), text.replace(" nounwind {", " nounwind sanitize_thread {")])


def build(folder: Path, text: str) -> Path:
    """A program of the pool and the harness; skips where there is nothing to build it with."""
    clang = shutil.which("clang")
    if clang is None:
        pytest.skip("there is no clang, whose thread sanitizer this needs")
    (folder / "pool.ll").write_text(watched(text))
    (folder / "main.c").write_text(HARNESS)
    flags = ["-fsanitize=thread", "-g", "-O1", "-Wno-override-module"]
    program = folder / "race"
    for pointers in ([], ["-mllvm", "-opaque-pointers"]):  # what LLVM 14 has to be told
        commands = (
            [clang, *flags, *pointers, "-c", "pool.ll", "-o", "pool.o"],
            [clang, *flags, "-c", "main.c", "-o", "main.o"],
            [clang, *flags, "pool.o", "main.o", "-o", program.name, "-lpthread"],
        )
        for command in commands:
            done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
            if done.returncode:
                break
        else:
            return program
    pytest.skip(f"clang cannot build it here: {done.stderr.strip().splitlines()[0]}")


def run(program: Path, pause_us: int = 0) -> subprocess.CompletedProcess[str]:
    """The program under the sanitizer, whose memory map needs plain addresses.

    Ranges that sleep for `pause_us` microseconds leave the others to the workers, on a single core too.
    """
    command = [str(program), TURNS, str(pause_us)]
    plain = shutil.which("setarch")
    if plain is not None:
        command = [plain, "-R", *command]
    done = subprocess.run(command, capture_output=True, text=True, timeout=3000, check=False)
    if "unexpected memory mapping" in done.stderr:
        pytest.skip("the sanitizer does not run under this kernel")
    return done


def test_no_races(tmp_path: Path) -> None:
    done = run(build(tmp_path, pool_ir(host_cpu().triple)))
    assert "ThreadSanitizer" not in done.stderr, done.stderr[:4000]
    assert (done.returncode, done.stdout) == (0, "done\n")


def test_a_race_would_be_found(tmp_path: Path) -> None:
    """Where the count of finished ranges no longer orders the workers' writes before the caller's reads."""
    text = pool_ir(host_cpu().triple)
    weaker = text.replace("@done, i32 %did seq_cst", "@done, i32 %did monotonic")
    weaker = weaker.replace("@done acquire", "@done monotonic").replace("@done seq_cst", "@done monotonic")
    assert weaker != text
    done = run(build(tmp_path, weaker), pause_us=50)
    assert "data race" in done.stderr
