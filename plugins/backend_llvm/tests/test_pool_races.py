"""The source of the thread pool: no races under the thread sanitizer, and the IR files are up to date."""

from __future__ import annotations

import os
import runpy
import shutil
import subprocess
import sys
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

import pytest
from dlc_backend_llvm.pool_text import architectures, pool_ir

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="the pool is serial elsewhere")

TOOL = Path(__file__).resolve().parents[1] / "tools" / "make_pool_ir.py"
POOL = (TOOL.parents[1] / "dlc_backend_llvm" / "pool_source" / "pool.c").read_text()
MADE_BY = "0.17.1"
"""The version of the package ziglang whose clang compiled the IR files."""
REPEATS = os.environ.get("DLC_RACE_REPEATS", "400")

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
static int repeats, pause_us;

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
    for (int repeat = 0; repeat < repeats; repeat++) {
        int threads = 1 + rand_r(&seed) % 4;
        if (repeat % 3) dlc_parallel_for(increment, counts, ITEMS, threads);
        else dlc_parallel_for(nested, counts, ITEMS / 8, threads);
        for (int i = 0; i < ITEMS; i++)
            if (counts[i] != repeat + 1) abort();
        if (repeat % 50 == 0) usleep(rand_r(&seed) % 400);
        if (repeat % 97 == 0) dlc_pool_set_num_threads(rand_r(&seed) % 4);
    }
    return NULL;
}

int main(int argc, char **argv) {
    pthread_t callers[CALLERS];
    repeats = atoi(argv[1]);
    pause_us = atoi(argv[2]);
    for (intptr_t i = 0; i < CALLERS; i++) pthread_create(&callers[i], NULL, caller, (void *)(i + 1));
    for (int i = 0; i < CALLERS; i++) pthread_join(callers[i], NULL);
    puts("done");
    return 0;
}
"""


def build(folder: Path, source: str) -> Path:
    """A program of the pool and the harness. The test is skipped if no compiler is installed."""
    compiler = shutil.which("clang") or shutil.which("gcc")
    if compiler is None:
        pytest.skip("there is no clang or gcc, whose thread sanitizer this needs")
    (folder / "pool.c").write_text(source)
    (folder / "main.c").write_text(HARNESS)
    command = [compiler, "-fsanitize=thread", "-g", "-O1", "pool.c", "main.c", "-o", "race", "-lpthread"]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    if done.returncode:
        pytest.skip(f"{Path(compiler).name} cannot build it here: {done.stderr.strip().splitlines()[0]}")
    return folder / "race"


def run(program: Path, pause_us: int = 0) -> subprocess.CompletedProcess[str]:
    """Run the program under the sanitizer, which needs address space randomisation to be off.

    Ranges that sleep for `pause_us` microseconds leave the others to the workers, on a single core too.
    """
    command = [str(program), REPEATS, str(pause_us)]
    plain = shutil.which("setarch")
    if plain is not None:
        command = [plain, "-R", *command]
    done = subprocess.run(command, capture_output=True, text=True, timeout=3000, check=False)
    if "unexpected memory mapping" in done.stderr:
        pytest.skip("the sanitizer does not run under this kernel")
    return done


def test_no_races(tmp_path: Path) -> None:
    done = run(build(tmp_path, POOL))
    assert "ThreadSanitizer" not in done.stderr, done.stderr[:4000]
    assert (done.returncode, done.stdout) == (0, "done\n")


def test_a_removed_ordering_is_found(tmp_path: Path) -> None:
    """The sanitizer detects a pool in which the count of finished ranges does not order writes
    before reads.
    """
    weaker = POOL.replace("ADD(done, finished)", "__atomic_fetch_add(&done, finished, __ATOMIC_RELAXED)")
    weaker = weaker.replace("LOAD(done, ACQUIRE)", "LOAD(done, RELAXED)")
    weaker = weaker.replace("LOAD(done, SEQ_CST)", "LOAD(done, RELAXED)")
    assert weaker.count("RELAXED") == POOL.count("RELAXED") + 3
    done = run(build(tmp_path, weaker), pause_us=50)
    assert "data race" in done.stderr


@pytest.mark.parametrize("architecture", architectures())
def test_ir_files_are_up_to_date(architecture: str) -> None:
    try:
        installed = version("ziglang")
    except PackageNotFoundError:
        installed = "none"
    if installed != MADE_BY:
        pytest.skip(f"the text was made by the clang of ziglang {MADE_BY}; installed: {installed}")
    made = runpy.run_path(str(TOOL))["compiled"](architecture)
    assert made == pool_ir(f"{architecture}-linux-gnu")
