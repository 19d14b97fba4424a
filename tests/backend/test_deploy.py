"""Models with regions on devices as C programs: numbers, memory, errors of devices, threads, no Python."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import dlc_core as dlc
from dlc_core.backend.deploy import HEADERS, DeviceRuntime
from dlc_core.diag import DlcError, RuntimeFailure, UnsupportedError
from dlc_core.graph.node import Function, constant, make_tuple, param
from dlc_core.hooks import hookimpl
from dlc_core.ir.expr import Var, const
from dlc_core.ir.module import IRModule
from dlc_core.ir.types import tensor_type
from dlc_core.op import declare
from dlc_core.plugin.registry import fresh_registry, registry
from dlc_core.runtime.executable import Executable
from dlc_core.runtime.interface.signature import Signature
from dlc_core.target import Artifact, Target, TargetKind
from dlc_core.testing.card import CardPlugin
from tests.backend.card_runtime import RUNTIME, SOURCE, DeployedCard

CC = shutil.which("cc")
pytestmark = pytest.mark.skipif(CC is None, reason="there is no C compiler `cc` here")
RNG = np.random.default_rng(5)
WEIGHTS = [RNG.standard_normal((8, 8)).astype(np.float32) / 4 for _ in range(4)]
BIAS = RNG.standard_normal(8).astype(np.float32)
X = RNG.standard_normal((6, 8)).astype(np.float32)
SANITIZED = ("-O1", "-g", "-fsanitize=address,undefined", "-fno-sanitize-recover=all")

DRIVER = r"""
#include "net.h"
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static char *read_all(size_t size) {
  char *data = malloc(size + 1);
  if (fread(data, 1, size, stdin) != size) exit(9);
  return data;
}

static char *x;
static int calls, threads;

static void *call(void *given) {
  char *y = malloc(NET_OUTPUT0_BYTES + 1), *work = malloc(net_workspace_size() + 65);
  const void *inputs[] = {x};
  void *outputs[] = {y};
  int i, status = 0;
  for (i = 0; i < calls && !status; i++) {
    memset(y, 0xff, NET_OUTPUT0_BYTES);
    status = net_run(inputs, outputs, (void *)(((size_t)work + 63) / 64 * 64), 1);
  }
  if (status) fprintf(stderr, "status %d: %s\n", status, net_error());
  memcpy(given, y, NET_OUTPUT0_BYTES);
  free(y);
  free(work);
  return status ? given : NULL;
}

int main(int count, char **words) {
  pthread_t workers[16];
  char *results;
  int i, k, failed = 0;
  calls = count > 1 ? atoi(words[1]) : 1;
  threads = count > 2 ? atoi(words[2]) : 1;
  x = read_all(NET_INPUT0_BYTES);
  results = malloc(threads * NET_OUTPUT0_BYTES + 1);
  for (k = 0; k < 2; k++) { /* twice: closed and opened again */
    if (k == 1 && net_open() != 0) fprintf(stderr, "open: %s\n", net_error());
    for (i = 0; i < threads; i++)
      pthread_create(workers + i, NULL, call, results + i * NET_OUTPUT0_BYTES);
    for (i = 0; i < threads; i++) {
      void *bad;
      pthread_join(workers[i], &bad);
      failed |= bad != NULL;
    }
    net_close();
    net_close();
  }
  for (i = 1; i < threads; i++)
    if (memcmp(results, results + i * NET_OUTPUT0_BYTES, NET_OUTPUT0_BYTES)) return 8;
  fwrite(results, 1, NET_OUTPUT0_BYTES, stdout);
  free(x);
  free(results);
  return failed;
}
"""


IN_PYTHON = declare.op(
    "sum_in_python",
    "x + 1",
    ["x"],
    kind="opaque",
    infer=lambda types, attrs: types[0],
    reference=lambda x: x + 1,
)
"""An op without native code."""


class Ops:
    @hookimpl
    def dlc_ops(self):
        return [IN_PYTHON]


def registered(name: str, host: Any) -> Any:
    """A registry with three cards and a host. The third card has another runtime."""
    cards = {card: DeployedCard(card) for card in ("card", "other", "third")}
    return fresh_registry({**cards, "ops": Ops(), name: host})


def op(name: str, *args: Any, **attrs: Any) -> Any:
    return registry().ops[name].build(*args, **attrs)


def dense(x: Any, number: int = 0) -> Any:
    return op("relu", op("add", op("matmul", x, constant(WEIGHTS[number])), constant(BIAS)))


def module(x: Any, *results: Any) -> IRModule:
    body = results[0] if len(results) == 1 else make_tuple(results)
    attrs = {"inputs": ("x",), "outputs": tuple(f"y{i}" for i in range(len(results)))}
    return IRModule({"main": Function("main", (x,), body, attrs)})


def model(rows: Any = 6) -> IRModule:
    """Dense layers, with a softmax between the second and the third."""
    x = param("x", tensor_type((rows, 8)))
    return module(x, dense(op("softmax", dense(dense(x), 1)), 2))


@pytest.fixture(params=["c", "llvm"])
def host(request: pytest.FixtureRequest) -> Any:
    """A host target, in a registry with two cards."""
    plugin = pytest.importorskip(f"dlc_backend_{request.param}.plugin")
    with registered(request.param, plugin):
        yield request.param


@pytest.fixture
def llvm() -> Any:
    plugin = pytest.importorskip("dlc_backend_llvm.plugin")
    with registered("llvm", plugin):
        yield "llvm"


def sanitizers(folder: Path) -> tuple[str, ...]:
    """The flags of the sanitizers, if this compiler has them."""
    probe = folder / "probe.c"
    probe.write_text("int main(void) { return 0; }")
    made = subprocess.run([CC, *SANITIZED, probe, "-o", folder / "probe"], capture_output=True, check=False)
    if made.returncode:
        pytest.skip("the compiler has no sanitizers")
    return SANITIZED


def build(folder: Path, exe: Any, flags: tuple[str, ...] = (), driver: str = DRIVER) -> Path:
    """Export objects and link them to a program."""
    exe.export(folder / "net")
    (folder / "net" / "driver.c").write_text(driver)
    sources = sorted(p.name for p in (folder / "net").glob("*.c") if p.name != "net_main.c")
    objects = sorted(p.name for p in (folder / "net").glob("*.o"))
    words = [CC, "-std=gnu99", "-Wall", "-Wextra", "-Werror", *flags, "-I.", *sources, *objects]
    libraries = ["-lm", "-lpthread", "-ldl"]
    done = subprocess.run(
        [*words, *libraries, "-o", "driver"], cwd=folder / "net", capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    return folder / "net" / "driver"


def run(program: Path, *words: object, data: bytes = X.tobytes(), **environment: str) -> Any:
    env = {k: v for k, v in os.environ.items() if not k.startswith("PYTHON")} | environment
    return subprocess.run(
        [program, *map(str, words)], input=data, capture_output=True, env=env, cwd=program.parent, check=False
    )


def numbers(done: Any, *shape: int) -> np.ndarray[Any, Any]:
    assert done.returncode == 0, done.stderr.decode()
    assert not done.stderr, done.stderr.decode()
    return np.frombuffer(done.stdout, np.float32).reshape(shape)


def test_programs_of_c_sources_compute_what_python_computes(tmp_path):
    with registered("c", pytest.importorskip("dlc_backend_c.plugin")):
        exe = dlc.compile(model(), targets=["card", "c"], cache=False)
        assert len(exe.regions) == 2
        exe.export(tmp_path / "net")
    flags = " ".join(sanitizers(tmp_path))
    words = ["make", "-s", f"CC={CC}", f"CFLAGS={flags} -Werror", f"LDFLAGS={flags}"]
    made = subprocess.run(words, cwd=tmp_path / "net", capture_output=True, text=True, check=False)
    assert made.returncode == 0, made.stderr
    got = numbers(run(tmp_path / "net" / "net"), 6, 8)
    np.testing.assert_allclose(got, exe(X), 1e-5, 1e-6)


def test_programs_of_objects_compute_what_python_computes(llvm, tmp_path):
    exe = dlc.compile(model(), targets=["card", "llvm"], cache=False)
    program = build(tmp_path, exe, sanitizers(tmp_path))
    done = run(program, 3, 4)
    np.testing.assert_allclose(numbers(done, 6, 8), exe(X), 1e-5, 1e-6)
    linked = subprocess.run(["ldd", program], capture_output=True, text=True, check=False).stdout
    assert "libpython" not in linked


def test_libraries_open_in_python_and_call_no_python(llvm, tmp_path):
    exe = dlc.compile(model(), targets=["card", "llvm"], cache=False)
    exe.export(tmp_path / "net.so")
    lib = dlc.load_library(tmp_path / "net.so")
    np.testing.assert_allclose(lib(X), exe(X), 1e-5, 1e-6)
    maps = r"""
#include <stdio.h>
#include <string.h>
#include "net.h"
int main(void) {
  static float x[NET_INPUT0_BYTES / 4], y[NET_OUTPUT0_BYTES / 4];
  static char work[1 << 20];
  const void *inputs[] = {x};
  void *outputs[] = {y};
  char line[4096];
  FILE *file;
  if (net_workspace_size() > sizeof work || net_run(inputs, outputs, work, 1)) return 1;
  file = fopen("/proc/self/maps", "r");
  while (fgets(line, sizeof line, file))
    if (strstr(line, "libpython")) return 2;
  return 0;
}
"""
    (tmp_path / "main.c").write_text(maps)
    subprocess.run([CC, "main.c", "./net.so", "-o", "main"], cwd=tmp_path, check=True)
    done = run(tmp_path / "main", LD_LIBRARY_PATH=str(tmp_path))
    assert done.returncode == 0, done.stderr


def test_values_stay_on_devices(llvm, tmp_path):
    """Two regions of one card with another card between them: no value goes to the host in between."""
    x = param("x", tensor_type((6, 8)))
    net = module(x, dense(op("softmax", dense(dense(x), 1)), 2))
    place = {"softmax": "llvm"}
    exe = dlc.compile(net, targets=["card", "llvm"], place=place, cache=False)
    program = build(tmp_path, exe)
    log = tmp_path / "log"
    done = run(program, 1, CARD_LOG=str(log))
    np.testing.assert_allclose(numbers(done, 6, 8), exe(X), 1e-5, 1e-6)
    words = log.read_text().split()
    half = words[: words.index("close")]
    assert half.count("read") == 2, "one before the softmax, one of the result"
    assert half.count("write") == 2, "the input, and the result of the softmax"
    assert half.count("launch") == 2
    assert half.count("kernel") == 2


def two_cards() -> IRModule:
    """Layers of two cards in turn, which read a value of the first one twice."""
    x = param("x", tensor_type((6, 8)))
    a = dense(x)
    b = op("matmul", a, constant(WEIGHTS[1]))
    c = op("relu", b)
    return module(x, op("add", c, a))


def test_values_go_directly_from_one_card_to_another(llvm, tmp_path):
    place = {"matmul": "card", "relu": "other", "add": "card"}
    exe = dlc.compile(two_cards(), targets=["card", "other", "llvm"], place=place, cache=False)
    assert {str(r.target) for r in exe.regions.values()} == {"card", "other"}
    program = build(tmp_path, exe, sanitizers(tmp_path))
    log = tmp_path / "log"
    done = run(program, 2, CARD_LOG=str(log))
    np.testing.assert_allclose(numbers(done, 6, 8), exe(X), 1e-5, 1e-6)
    words = log.read_text().split()
    assert words.count("copy") >= 4
    assert words.count("read") == 4, "the results of four calls"


def test_values_go_through_the_host_between_runtimes(llvm, tmp_path):
    place = {"matmul": "card", "relu": "third", "add": "card"}
    exe = dlc.compile(two_cards(), targets=["card", "third", "llvm"], place=place, cache=False)
    assert {str(r.target) for r in exe.regions.values()} == {"card", "third"}
    program = build(tmp_path, exe, sanitizers(tmp_path))
    log = tmp_path / "log"
    done = run(program, 2, 3, CARD_LOG=str(log))
    np.testing.assert_allclose(numbers(done, 6, 8), exe(X), 1e-5, 1e-6)
    words = log.read_text().split()
    assert "copy" not in words
    assert words.count("read") > 12, "each call reads more than its result"


def test_results_may_be_inputs_constants_and_each_other(llvm, tmp_path):
    x = param("x", tensor_type((6, 8)))
    y = dense(x)
    whole = op("softmax", y)
    fixed = constant(BIAS)
    net = module(x, whole, y, x, whole, fixed, op("reshape", y, shape=(48,)), op("add", y, fixed))
    exe = dlc.compile(net, targets=["card", "llvm"], cache=False)
    assert exe.regions
    exe.export(tmp_path / "net.so")
    lib = dlc.load_library(tmp_path / "net.so")
    for got, want in zip(lib(X), exe(X), strict=True):
        np.testing.assert_allclose(got, want, 1e-5, 1e-6)


def test_dims_that_calls_determine(llvm, tmp_path):
    exe = dlc.compile(model(Var("n")), targets=["card", "llvm"], cache=False)
    assert exe.regions
    exe.export(tmp_path / "net.so")
    lib = dlc.load_library(tmp_path / "net.so")
    for rows in (1, 5, 2, 0, 64):
        x = np.resize(X, (rows, 8))
        np.testing.assert_allclose(lib(x), exe(x), 1e-5, 1e-6)


FAILURES = [
    ("open", "device card: open failed with code 1: there is no card for 'card'"),
    ("alloc:1", "device card: the allocation of 192 bytes failed with code 2: the card's memory is full"),
    ("alloc:3", "the card's memory is full"),
    ("write:2", "device card: a copy to it failed with code 3: a copy to the card was interrupted"),
    ("read:1", "device card: a copy from it failed with code 4: a copy from the card was interrupted"),
    ("load:2", "device card: the load of code failed with code 5: the code is too new"),
    (
        "entry",
        "device card: the search for an entry point failed with code 6: there is no entry point region_0",
    ),
    ("launch:2", "device card: the launch of region_1 failed with code -8: the card was removed"),
    ("kernel:2", "failed with code 7: a kernel of region_1 failed"),
    ("wait", "device card: a launch failed with code 10: the card does not answer"),
]


@pytest.fixture(scope="module")
def failing(tmp_path_factory: pytest.TempPathFactory) -> Path:
    plugin = pytest.importorskip("dlc_backend_llvm.plugin")
    folder = tmp_path_factory.mktemp("failing")
    with fresh_registry({"card": DeployedCard(), "llvm": plugin}):
        exe = dlc.compile(model(), targets=["card", "llvm"], cache=False)
        return build(folder, exe, sanitizers(folder))


@pytest.mark.parametrize(("what", "text"), FAILURES, ids=[what for what, _ in FAILURES])
def test_failures_of_a_device_are_results_with_its_text(failing, what, text):
    done = run(failing, 1, CARD_FAIL=what)
    lines = done.stderr.decode().splitlines()
    assert done.returncode == 1
    assert text in lines[0]
    assert lines[0].startswith("status 2: ")
    assert not [line for line in lines if "Sanitizer" in line or "not released" in line], "no leak"
    if ":" in what:  # the second time nothing fails, so the program ends with right numbers
        assert len(lines) == 1


def test_the_calls_after_a_failure_are_right(llvm, tmp_path, monkeypatch):
    exe = dlc.compile(model(), targets=["card", "llvm"], cache=False)
    exe.export(tmp_path / "net.so")
    lib = dlc.load_library(tmp_path / "net.so")
    np.testing.assert_allclose(lib(X), exe(X), 1e-5, 1e-6)
    monkeypatch.setenv("CARD_FAIL", "kernel")
    with pytest.raises(RuntimeFailure, match="a kernel of region_0 failed"):
        lib(X)
    monkeypatch.delenv("CARD_FAIL")
    np.testing.assert_allclose(lib(X), exe(X), 1e-5, 1e-6)


def test_calls_of_several_threads_do_not_race(llvm, tmp_path):
    flags = ("-O1", "-g", "-fsanitize=thread")
    probe = tmp_path / "probe.c"
    probe.write_text("int main(void) { return 0; }")
    made = subprocess.run([CC, *flags, probe, "-o", tmp_path / "probe"], capture_output=True, check=False)
    if made.returncode or subprocess.run([tmp_path / "probe"], capture_output=True, check=False).returncode:
        pytest.skip("the compiler has no thread sanitizer")
    exe = dlc.compile(model(), targets=["card", "llvm"], cache=False)
    done = run(build(tmp_path, exe, flags), 10, 8)
    np.testing.assert_allclose(numbers(done, 6, 8), exe(X), 1e-5, 1e-6)


def test_modules_of_webassembly_call_no_devices(llvm, tmp_path):
    exe = dlc.compile(model(), targets=["card", "wasm32"], cache=False)
    with pytest.raises(UnsupportedError, match=r"(?s)call no devices.*region_0 runs on card"):
        exe.export(tmp_path / "net.wasm")


def test_opened_files_are_exported(llvm, tmp_path):
    exe = dlc.compile(model(), targets=["card", "llvm"], cache=False)
    exe.save(tmp_path / "net.dlc")
    dlc.open(tmp_path / "net.dlc").export(tmp_path / "net.so")
    np.testing.assert_allclose(dlc.load_library(tmp_path / "net.so")(X), exe(X), 1e-5, 1e-6)


def test_a_runtime_of_another_version_is_refused(llvm, tmp_path):
    exe = dlc.compile(model(), targets=["card", "llvm"], cache=False)
    program = build(tmp_path, exe, ("-DCARD_VERSION=9",))
    done = run(program, 1)
    assert done.returncode == 1
    expected = "device card: its runtime has version 9 of dlc_device.h, the model version 1"
    assert expected in done.stderr.decode()


def test_a_runtime_that_is_not_linked_is_named_by_the_linker(llvm, tmp_path):
    exe = dlc.compile(model(), targets=["card", "llvm"], cache=False)
    kind = exe.regions["region_0"].target.kind
    lacking = DeviceRuntime("card", "card_device_api", libraries=("no_such_card",), code=RUNTIME.code)
    object.__setattr__(kind, "runtime", lacking)
    try:
        with pytest.raises(DlcError, match="no_such_card"):
            exe.export(tmp_path / "net.so")
        assert not (tmp_path / "net.so").exists()
        other = DeviceRuntime("card", "other_api", sources=(SOURCE,), code=RUNTIME.code)
        object.__setattr__(kind, "runtime", other)
        exe.export(tmp_path / "net.so")
        with pytest.raises(DlcError, match="undefined symbol: other_api"):
            dlc.load_library(tmp_path / "net.so")
    finally:
        object.__setattr__(kind, "runtime", RUNTIME)


def test_kinds_without_a_runtime_are_refused(tmp_path):
    plugin = pytest.importorskip("dlc_backend_c.plugin")
    with fresh_registry({"card": CardPlugin(), "c": plugin}):
        exe = dlc.compile(model(), targets=["card", "c"], cache=False)
        with pytest.raises(UnsupportedError, match="declares no C runtime") as caught:
            exe.export(tmp_path / "net")
    assert "region_0 runs on card" in str(caught.value)
    assert "DeviceRuntime" in str(caught.value)


def test_a_model_on_a_device_as_a_whole_needs_a_host(tmp_path):
    codegen = SimpleNamespace(name="card", kinds=("card",), format="card-graph")
    kind = TargetKind("card", "a card", codegen="card", device="card", runtime=RUNTIME)
    signature = Signature((), (), (), const(0), 0)
    artifact, weights = Artifact("card-graph", b"", "card"), np.zeros(0, np.uint8)
    exe = Executable(signature, artifact, weights, Target(kind), None, codegen=codegen)
    with pytest.raises(UnsupportedError, match="compile for the device and a host"):
        exe.export(tmp_path / "net")


def test_steps_in_python_are_refused_with_their_reasons(host, tmp_path):
    x = param("x", tensor_type((6, 8)))
    y = dense(x)
    exe = dlc.compile(module(x, dense(op("sum_in_python", y))), targets=["card", host], cache=False)
    with pytest.raises(UnsupportedError, match=r"(?s)in Python\n  sum_in_python .*the op has no lowering"):
        exe.export(tmp_path / "net")


def test_the_sources_are_strict_c(host, tmp_path):
    """All headers are C99 and C++, without warnings."""
    exe = dlc.compile(model(), targets=["card", host], cache=False)
    exe.export(tmp_path / "net")
    folder = tmp_path / "net"
    names = ["net.h", *(path.name for path in HEADERS)]
    (folder / "use.c").write_text("".join(f'#include "{name}"\n' for name in names))
    strict = ["-Wall", "-Wextra", "-Wno-unused-function", "-pedantic", "-Werror", "-fsyntax-only", "-I."]
    subprocess.run([CC, "-std=c99", *strict, "use.c"], cwd=folder, check=True)
    if shutil.which("g++"):
        subprocess.run(["g++", "-std=c++11", *strict, "-x", "c++", "use.c"], cwd=folder, check=True)
    source = next(folder / name for name in ("net_host.c", "net.c") if (folder / name).exists())
    subprocess.run([CC, "-std=gnu99", *strict, source.name], cwd=folder, check=True)
    single = ["-DDLC_HOST_SINGLE_THREAD", source.name]
    subprocess.run([CC, "-std=gnu99", *strict, *single], cwd=folder, check=True)


def test_a_single_header_may_hold_two_models(tmp_path):
    plugin = pytest.importorskip("dlc_backend_c.plugin")
    with fresh_registry({"card": DeployedCard(), "c": plugin}):
        for name, net in (("one", model()), ("two", two_cards())):
            dlc.compile(net, targets=["card", "c"], cache=False).export(tmp_path / f"{name}.h")
    text = (
        '#define ONE_IMPLEMENTATION\n#define TWO_IMPLEMENTATION\n#include "one.h"\n#include "two.h"\n'
        "int main(void)\n{\n    static float x[48], y[48];\n    int failed = one_run(x, y, NULL);\n"
        "    failed |= two_run(x, y, NULL);\n    one_close();\n    two_close();\n    return failed;\n}\n"
    )
    (tmp_path / "main.c").write_text(text)
    flags = ["-std=gnu99", "-Wall", *sanitizers(tmp_path), "-I."]
    words = [CC, *flags, "main.c", "card_device.c", "-o", "main", "-lm", "-lpthread"]
    subprocess.run(words, cwd=tmp_path, check=True)
    done = run(tmp_path / "main")
    assert (done.returncode, done.stderr) == (0, b"")


def test_the_same_model_gives_the_same_files(host, tmp_path):
    made = []
    for folder in ("a", "b"):
        exe = dlc.compile(model(), targets=["card", host], cache=False)
        (tmp_path / folder).mkdir()
        made.append({path.name: path.read_bytes() for path in exe.export(tmp_path / folder / "net")})
    assert made[0] == made[1]
