"""The fuzzers: a few cases of each target, all stored inputs, and the driver itself."""

from __future__ import annotations

import json
import os
import random
import signal
from types import ModuleType

import pytest

from dlc_core.diag import DlcError
from tests.fuzz import driver, worker
from tests.fuzz.mutations import change_bytes, change_json, parts_of_bytes

pytestmark = pytest.mark.skipif(os.name != "posix", reason="the driver needs POSIX signals")

NEEDED = {
    "artefact_bytes": (),
    "commands": ("onnx",),
    "models": ("onnx", "dlc_frontend_onnx", "dlc_backend_llvm"),
    "records": ("dlc_tune", "dlc_backend_llvm"),
    "scripts": ("dlc_backend_llvm",),
}
"""The packages that a target needs."""
RUNS = {"artefact_bytes": 200, "commands": 12, "models": 8, "records": 60, "scripts": 30}


@pytest.fixture(autouse=True)
def few_operators(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DLC_FUZZ_OPERATORS", "gather slice resize where concat if_ loop")


def needed(name: str) -> None:
    for package in NEEDED[name]:
        pytest.importorskip(package, reason=f"the target needs {package}")


@pytest.mark.parametrize("name", worker.names())
def test_a_few_cases(name: str) -> None:
    needed(name)
    report = driver.run(name, RUNS[name], seed=0, shrink=False)
    assert not report.findings, "\n".join(
        f"{f.number}: {f.place}\n{f.text}" for f in report.findings.values()
    )
    assert sum(report.outcomes.values()) == RUNS[name]
    assert len(report.outcomes) > 1, "all cases have the same outcome"


@pytest.mark.slow
@pytest.mark.parametrize("name", worker.names())
def test_many_cases(name: str) -> None:
    needed(name)
    report = driver.run(name, 20 * RUNS[name], seed=1, shrink=False)
    assert not report.findings, "\n".join(
        f"{f.number}: {f.place}\n{f.text}" for f in report.findings.values()
    )


REPEATS = 2
"""The runs of each stored input, with other random numbers."""
STORED = [(name, path.name) for name in worker.names() for path in worker.corpus_of(name)]


@pytest.mark.parametrize("name", worker.names())
def test_stored_inputs(name: str) -> None:
    needed(name)
    files = [path for path in worker.corpus_of(name) for _ in range(REPEATS)]
    tasks = [(path.read_bytes(), f"stored {number}") for number, path in enumerate(files)]
    for path, found in zip(files, driver.replays(name, tasks), strict=True):
        assert found is None, f"{path.name}: {found.place}\n{found.text}"


def test_stored_inputs_are_few_and_small() -> None:
    assert {name for name, _ in STORED} == set(worker.names()), "a target without stored inputs"
    assert len(STORED) <= 60
    assert max((worker.CORPUS / name / file).stat().st_size for name, file in STORED) <= 4096


def test_cases_depend_on_the_seed_only() -> None:
    inputs = worker.inputs_of("artefact_bytes")
    cases = [worker.case_of("artefact_bytes", inputs, 3, number) for number in range(20)]
    assert cases == [worker.case_of("artefact_bytes", inputs, 3, number) for number in range(20)]
    assert cases != [worker.case_of("artefact_bytes", inputs, 4, number) for number in range(20)]


CASES, SEED = 40, 37
"""Few cases, among which are one death, one exception, one that waits and one that computes without end."""
DEFECTS = """
import os, random, signal, sys, time
from dlc_core.diag import DlcError
SECONDS = 0.3
def seeds():
    return [b"0123456789abcdef"]
def mutate(rng, data, inputs):
    return bytes([rng.randrange(40)]) + data
def check(data, rng):
    if data[0] == 1:
        os.kill(os.getpid(), signal.SIGSEGV)
    if data[0] == 2:
        time.sleep(60)
    if data[0] == 4:
        while True:
            pass
    if data[0] == 3:
        raise KeyError("a defect")
    if data[0] % 2:
        raise DlcError("a reason")
    return "used"
"""


@pytest.fixture
def defects(monkeypatch: pytest.MonkeyPatch) -> str:
    """A target with a death, a hang and an exception, here and in workers."""
    module = ModuleType("defects")
    exec(DEFECTS, module.__dict__)  # noqa: S102 (the text above)
    monkeypatch.setattr(worker, "target_of", lambda name: module)
    monkeypatch.setattr(driver, "target_of", lambda name: module)
    program = (
        f"import sys\nfrom types import ModuleType\nfrom tests.fuzz import worker\nmodule = ModuleType('d')\n"
        f"exec({DEFECTS!r}, module.__dict__)\nworker.target_of = lambda name: module\n"
        "sys.argv[1:] = ['defects']\nworker.serve(sys.stdout)\n"
    )
    monkeypatch.setattr(driver, "COMMAND", ("-c", program))
    monkeypatch.setattr(driver, "PATIENCE", 20.0)
    monkeypatch.setattr(driver, "PER_WORKER", 15)
    return "defects"


def test_deaths_hangs_and_exceptions_are_found(defects: str, tmp_path) -> None:
    inputs = worker.inputs_of(defects)
    first = [worker.case_of(defects, inputs, SEED, number)[0] for number in range(CASES)]
    assert {1, 2, 3, 4} <= set(first)
    report = driver.run(defects, CASES, seed=SEED, out=tmp_path, shrink=False)
    kinds = {place.split(" ")[0] for place in report.findings}
    assert kinds == {"death:", "hang", "KeyError"}
    hangs = {place for place in report.findings if place.startswith("hang")}
    assert hangs == {"hang of more than 6 s", "hang of more than 0.3 s of processor time in <string>:check"}
    (death,) = [f for f in report.findings.values() if f.place.startswith("death")]
    assert signal.Signals.SIGSEGV.name in death.place
    assert (death.data[0], first[death.number]) == (1, 1)
    assert report.outcomes["refused"] + report.outcomes["used"] == CASES - sum(
        one in (1, 2, 3, 4) for one in first
    )
    assert len([*tmp_path.glob("*.txt")]) == 4


def test_a_run_ends_after_its_time(defects: str) -> None:
    report = driver.run(defects, 10**9, seed=2, shrink=False, seconds=3.0)
    assert 0 < sum(report.outcomes.values()) < 10**9
    assert report.seconds < 60


def test_findings_are_shrunk(defects: str) -> None:
    found = driver.replay(defects, b"\3 and more")
    assert found is not None
    assert found.place.startswith("KeyError")
    assert driver.replay(defects, b"\6") is None
    found.data, found.rng = b"\3 and more", "r"
    driver.shrunk(defects, found)
    assert found.data == b"\3"


def test_unreadable_messages_are_findings(monkeypatch: pytest.MonkeyPatch) -> None:
    module = ModuleType("loud")
    monkeypatch.setattr(worker, "target_of", lambda name: module)

    def check(data: bytes, rng: random.Random) -> str:
        raise DlcError("x" * 30_000)

    module.check = check  # type: ignore[attr-defined]
    assert worker.attempt("loud", b"", "")["place"] == "an unreadable message"
    assert str(DlcError("a\x1b[31m", why="\0\n\t")) == "a\\x1b[31m\n  because \\x00\n\\t"


def test_changes_reach_nested_data() -> None:
    text = json.dumps({"a": [1, {"b": "[1, 2]"}], "c": {"d": 2}})
    changed = {json.dumps(change_json(random.Random(n), json.loads(text))) for n in range(300)}
    assert len(changed) > 60
    assert any('"b": "[1' in each and each != text for each in changed)
    data = bytes(range(40))
    assert len({change_bytes(random.Random(n), data, [b"other"]) for n in range(200)}) > 120
    assert min(map(len, parts_of_bytes(data))) == 20
    assert data[1:] in set(parts_of_bytes(data))
