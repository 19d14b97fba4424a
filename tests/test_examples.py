"""Every example runs in a separate process, with warnings as errors."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import threading
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
from dlc_backend_llvm.wasm.linking import find_linker

from dlc_core.diag import UnsupportedError

ROOT = Path(__file__).resolve().parents[1]
EXAMPLES = ROOT / "examples"

SCRIPTS = (
    "quick_start.py",
    "symbolic_shapes.py",
    "save_and_open.py",
    "te_vector_add.py",
    "te_loop_kinds.py",
    "te_matmul.py",
    "te_conv2d.py",
    "te_softmax_rfactor.py",
    "te_stages.py",
    "te_topi_mlp.py",
    "te_recurrence.py",
    "script_matmul.py",
    "tensorize_mma.py",
    "export_add_one.py",
    "nn_mlp.py",
    "custom_schedule.py",
    "external_codegen.py",
    "c_program/build_and_run.py",
    "wasm/build_and_run.py",
    "op_plugin/use_it.py",
    "dtypes/posit8.py",
    "dtypes/mx_block.py",
    "classic/tvmscript_add_one.py",
    "classic/tvmscript_mlp.py",
    "classic/vector_add.py",
    "classic/matmul_schedule.py",
    "classic/call_tir_scheduled.py",
    "classic/byoc_library.py",
    "classic/cross_compile_raspberry_pi.py",
    "classic/micro_session.py",
    "classic/graph_executor.py",
    "classic/time_evaluator.py",
)
LINKING = ("c_program", "export_add_one")
"""Examples that need a C compiler, which links."""
COMPILERS = {"c": ("CC", "cc"), "c++": ("CXX", "c++"), "rust": ("RUSTC", "rustc")}
"""The languages of `runtime_c`, each with the variable that names its compiler, and the usual name."""
RUNTIME = ("runtime_c/build_and_run.py",)
SLOW = ("demo_resnet50.py",)
PACKAGED = ("accelerators",)
"""Folders of packages, whose own tests run them."""


@pytest.fixture(scope="module")
def cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("cache")


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder in which the example plugin is installed."""
    folder = tmp_path_factory.mktemp("site")
    shutil.copy(EXAMPLES / "op_plugin" / "dlc_example_ops.py", folder)
    info = folder / "dlc_example_ops-0.1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: dlc-example-ops\nVersion: 0.1.0\n")
    (info / "entry_points.txt").write_text("[dlc]\nexample-ops = dlc_example_ops\n")
    return folder


def run(script: str, cache: Path, *arguments: str, site: Path | None = None) -> str:
    paths = [str(site)] if site is not None else []
    paths += [path for path in os.environ.get("PYTHONPATH", "").split(os.pathsep) if path]
    environment = {k: v for k, v in os.environ.items() if not k.startswith("DLC_")}
    environment |= {
        "DLC_CACHE_DIR": str(cache),
        "DLC_RECORDS": "off",
        "PYTHONPATH": os.pathsep.join(paths),
        "NO_COLOR": "1",
    }
    done = subprocess.run(
        [sys.executable, "-W", "error", str(EXAMPLES / script), *arguments],
        env=environment,
        capture_output=True,
        text=True,
        stdin=subprocess.DEVNULL,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


class QuietHandler(SimpleHTTPRequestHandler):
    """Serves files without printing requests."""

    def log_message(self, *args: object) -> None:  # type: ignore[override]
        """Print nothing."""


def need_wasm_linker() -> None:
    """Skip the test if WebAssembly modules cannot be linked."""
    try:
        find_linker()
    except UnsupportedError as error:
        pytest.skip(error.what)


@pytest.mark.parametrize("script", SCRIPTS)
def test_example_runs(script: str, cache: Path, site: Path) -> None:
    if script.startswith("wasm"):
        need_wasm_linker()
    if script.startswith(LINKING) and shutil.which(os.environ.get("CC", "cc")) is None:
        pytest.skip("no C compiler")
    printed = run(script, cache, site=site if script.startswith("op_plugin") else None)
    assert printed.strip()


@pytest.mark.parametrize("language", COMPILERS)
def test_resnet50_runs_without_python(language: str, cache: Path) -> None:
    for each in {"c", language}:
        variable, usual = COMPILERS[each]
        if shutil.which(os.environ.get(variable, usual)) is None:
            pytest.skip(f"no compiler for {each}: {variable} or {usual}")
    printed = run(*RUNTIME, cache, language)
    assert f"{language}: class " in printed


@pytest.fixture(scope="module")
def page(cache: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of the WebAssembly example."""
    need_wasm_linker()
    folder = tmp_path_factory.mktemp("page")
    printed = run("wasm/build_and_run.py", cache, str(folder))
    assert "Wasmtime: right" in printed or "pip install wasmtime" in printed
    assert "right: class" in printed or "there is no Node.js" in printed
    return folder


def test_a_browser_runs_the_module(page: Path, tmp_path: Path) -> None:
    names = ("chromium", "chromium-browser", "google-chrome", "chrome")
    browser = next(filter(None, map(shutil.which, names)), None)
    if browser is None:
        pytest.skip("there is no Chromium")
    handler = partial(QuietHandler, directory=str(page))
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            words = [browser, "--headless", "--no-sandbox", "--disable-gpu", f"--user-data-dir={tmp_path}"]
            words += ["--virtual-time-budget=60000", "--dump-dom"]
            words += [f"http://127.0.0.1:{server.server_port}/index.html"]
            done = subprocess.run(words, capture_output=True, text=True, timeout=120, check=False)
        finally:
            server.shutdown()
            thread.join()
    result = done.stdout.partition('id="result">')[2].partition("<")[0]
    assert result.startswith("right: class"), done.stdout + done.stderr


@pytest.mark.slow
def test_the_demo_runs_and_checks_its_results(cache: Path) -> None:
    printed = run("demo_resnet50.py", cache, "--threads", "1")
    assert printed.count("fits") == 2
    assert "WRONG" not in printed
    assert "cold" in printed
    assert "from the cache" in printed


def test_every_example_is_run_and_listed_in_the_readme() -> None:
    scripts = {path.relative_to(EXAMPLES).as_posix() for path in EXAMPLES.rglob("*.py")}
    scripts = {path for path in scripts if path.split("/")[0] not in PACKAGED}
    assert scripts - {"op_plugin/dlc_example_ops.py"} == {*SCRIPTS, *RUNTIME, *SLOW}
    listed = (EXAMPLES / "README.md").read_text(encoding="utf-8")
    for script in (*SCRIPTS, *RUNTIME, *SLOW):
        assert f"`{script.split('/')[0]}" in listed, script
