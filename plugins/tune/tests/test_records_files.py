"""Records in files and packages, and the command `dlc records`."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import replace

import pytest
from dlc_tune.records.database import Database
from dlc_tune.records.decision import SPACE, decision_key
from dlc_tune.records.lines import MAX_LINE, of_line, to_line
from dlc_tune.records.pack import write_package
from dlc_tune.records.record import TRIED
from dlc_tune.records.samples import TARGET, by_hand, double, record_of
from dlc_tune.records.transfer import export_lines, import_lines

from dlc_core.cli.main import main
from dlc_core.diag import UsageError

GOOD = record_of(double(), notes={"ratios": [0.7, 0.8]}, noise=0.01)


def changed(**fields) -> str:
    """A line of JSON with other values."""
    return json.dumps({**json.loads(to_line(GOOD)), **fields})


HOSTILE = {
    "no JSON": ("{", "no JSON"),
    "no object": ("[1, 2]", "no schema"),
    "another schema": ('{"schema": "dlc-ir"}', "no schema"),
    "a newer version": (changed(version=2), "version 2"),
    "nested deep": ('{"a":' * 100_000, "no JSON"),
    "nested deep in a list": ("[" * 100_000, "no JSON"),
    "deep notes": (
        changed()[:-1].replace('"notes": {', '"notes": {"a": ' + "[" * 5000 + "]" * 5000 + ", ") + "}",
        "no",
    ),
    "a huge number": (changed(threads=0)[:-1] + ', "time": ' + "9" * 5000 + "}", "no JSON"),
    "an infinite time": (changed(time=1.0).replace('"time": 1.0', '"time": 1e999'), "time is illegal"),
    "not a number": (changed(time=1.0).replace('"time": 1.0', '"time": NaN'), "time is illegal"),
    "an unknown field": (changed(code="import os"), "unknown field 'code'"),
    "a missing field": (changed().replace('"kernel"', '"name2"'), "unknown field"),
    "a number as name": (changed(name=3), "name is illegal"),
    "a hash of another form": (changed(kernel="../../etc/passwd"), "kernel is illegal"),
    "negative seconds": (changed(seconds=-1), "seconds is illegal"),
    "a truth value": (changed(seconds=True), "seconds is illegal"),
    "an unknown state": (changed(state="best"), "state is illegal"),
    "a list as state": (changed(state=["chosen"]), "state is illegal"),
    "huge extents": (changed(extents=[1 << 80]), "extents is illegal"),
    "many extents": (changed(extents=[1] * 100_000), "extents is illegal"),
    "a point of numbers": (changed(point={"tile": 4}), "point is illegal"),
    "a crash that is chosen": (changed(outcome="crash"), "chosen"),
    "no text": (b"\xff\xfe{}", "no JSON"),
    "a long line": (changed(trace="x" * MAX_LINE), "bytes"),
    "a trace that is none": (changed(trace="import os; os.abort()"), "no JSON"),
    "a trace of another kind": (changed(trace='{"schema": "dlc-ir", "version": 1}'), "no trace"),
}


@pytest.mark.parametrize(("line", "why"), HOSTILE.values(), ids=HOSTILE)
def test_hostile_lines_are_refused_with_their_numbers_and_reasons(tmp_path, line, why):
    path = tmp_path / "records.jsonl"
    data = line if isinstance(line, bytes) else line.encode()
    path.write_bytes(to_line(GOOD).encode() + b"\n\n" + data + b"\n" + changed(name="last").encode())
    with Database(tmp_path / "records.db") as database:
        done = import_lines(path, database)
        assert [each.number for each in done.refused] == [3]
        assert why in done.refused[0].why
        assert len(done.refused[0].why) < 1000
        assert (done.added, done.known) == (2, 0)
        assert database.find() == [GOOD, replace(GOOD, name="last")]


def test_a_line_of_a_hundred_megabytes_takes_little_memory(tmp_path):
    path = tmp_path / "records.jsonl"
    with path.open("wb") as file:
        for _ in range(100):
            file.write(b"[" * (1 << 20))
        file.write(b"\n" + to_line(GOOD).encode())
    code = (
        "import resource, sys\nfrom pathlib import Path\n"
        "from dlc_tune.records.database import Database\nfrom dlc_tune.records.transfer import import_lines\n"
        "before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss\n"
        "done = import_lines(Path(sys.argv[1]), Database(sys.argv[2]))\n"
        "print(done.added, done.refused[0].number, done.refused[0].why)\n"
        "assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 64 << 10\n"
    )
    words = [sys.executable, "-c", code, str(path), str(tmp_path / "records.db")]
    run = subprocess.run(words, capture_output=True, text=True, timeout=120)
    assert run.returncode == 0, run.stderr
    assert run.stdout.startswith("1 1 a line of more than")


def test_files_keep_all_of_a_record(tmp_path):
    path = tmp_path / "records.jsonl"
    records = [GOOD, replace(GOOD, state=TRIED, outcome="timeout", seconds=None, trace="")]
    assert export_lines(path, records) == 2
    assert [of_line(line) for line in path.read_text().splitlines()] == records
    with Database(tmp_path / "records.db") as database:
        assert import_lines(path, database).added == 2
        again = import_lines(path, database)
        assert (again.added, again.known, again.refused) == (0, 2, ())


def run(capsys, *words: str) -> str:
    assert main(["records", *words]) == 0
    return str(capsys.readouterr().out)


def test_the_command_lists_and_moves_records(records_path, tmp_path, capsys):
    better = replace(GOOD, seconds=1e-6, trace=by_hand(double(), 4).to_json())
    other = record_of(double(48), state=TRIED, outcome="timeout", name="other", target="llvm")
    with Database() as database:
        database.add_all([GOOD, better, other])
    assert "2 of 2 records" in run(capsys, "list")
    assert "1 of 1 records" in run(capsys, "list", "--state", "all", "--kernel", "other")
    (row,) = json.loads(run(capsys, "best", "--json"))
    assert (row["kernel"], row["cost"], row["default"], row["gain"]) == ("double", "1 µs", "2 µs", "50.0%")
    shown = run(capsys, "show", "double")
    assert "by hand" in shown
    assert "sch.unroll(" in shown
    assert json.loads(run(capsys, "show", GOOD.kernel[:8], "--json"))[0]["seconds"] == 1e-6
    assert "3 records in" in run(capsys, "stats")
    file = tmp_path / "out.jsonl"
    assert "3 records" in run(capsys, "export", str(file))
    copy = str(tmp_path / "copy.db")
    assert "3 new, 0 known, 0 refused" in run(capsys, "import", str(file), "-d", copy)
    file.write_text("{}\n" + to_line(GOOD))
    assert main(["records", "import", str(file), "-d", copy]) == 1
    output = capsys.readouterr().out
    assert f"{file}:1: a line that is no record: it has no schema" in output
    assert "0 new, 1 known, 1 refused" in output
    assert "2 records removed" in run(capsys, "forget", "--kernel", "double")
    assert "0 of 0 records" in run(capsys, "list")


@pytest.mark.parametrize(
    ("content", "count", "reason"),
    [
        (b"\x89PNG\r\n\x1a\n" + bytes(range(256)) * 40, 43, "no JSON"),
        (b"kernel,seconds\n" + b"conv,1e-6\n" * 400, 401, "no JSON"),
        (b'{"a": 1}\n', 1, "no schema"),
    ],
    ids=["a picture", "a table", "other JSON"],
)
def test_a_file_of_something_else_is_refused_in_a_few_lines(
    records_path, tmp_path, capsys, content, count, reason
):
    file = tmp_path / "other.jsonl"
    file.write_bytes(content)
    assert main(["records", "import", str(file)]) == 1
    *lines, counts, last = capsys.readouterr().out.splitlines()
    assert len(lines) == min(count, 6)
    assert all(line.startswith(f"{file}:") for line in lines)
    assert reason in lines[0]
    assert count <= 6 or f"{count - 5} more lines are refused" in lines[-1]
    assert counts == f"{file}: 0 new, 0 known, {count} refused"
    assert last == f"{file} is no file of records: `dlc records export` writes such files"


def test_a_file_with_some_records_is_one(records_path, tmp_path, capsys):
    file = tmp_path / "some.jsonl"
    file.write_text("{}\n" * 200 + to_line(GOOD))
    for counts in ("1 new, 0 known, 200 refused", "0 new, 1 known, 200 refused"):
        assert main(["records", "import", str(file)]) == 1
        assert capsys.readouterr().out.splitlines()[-1] == f"{file}: {counts}"


def test_records_that_were_tried_are_shown(records_path, capsys):
    tried = [
        replace(GOOD, state=TRIED, seconds=seconds, trace=by_hand(double(), factor).to_json())
        for seconds, factor in ((3e-6, 2), (2.5e-6, 4), (None, 6), (4e-6, 8))
    ]
    with Database() as database:
        database.add_all(tried)
    assert main(["records", "show", "double"]) == 2
    assert "`--state all` shows its 4 other records" in capsys.readouterr().err
    found = json.loads(run(capsys, "show", "double", "--state", "tried", "--json"))
    assert [one["seconds"] for one in found] == [2.5e-6, 3e-6, 4e-6]
    shown = run(capsys, "show", "double", "--state", "tried", "--limit", "1")
    assert "[None, 4]" in shown
    assert "the fastest 1 of 4 records" in shown
    rows = json.loads(run(capsys, "list", "--state", "tried", "--json"))
    (slow,) = (row["id"] for row in rows if row["cost"] == "4 µs")
    (one,) = json.loads(run(capsys, "show", slow[:6], "--json"))
    assert one["seconds"] == 4e-6
    with Database() as database:
        database.add(GOOD)
    assert json.loads(run(capsys, "show", "double", "--json"))[0]["state"] == "chosen"
    assert len(json.loads(run(capsys, "show", "double", "--state", "all", "--limit", "9", "--json"))) == 5


def test_decisions_of_graph_passes_are_records_too(records_path, tmp_path, capsys):
    decided = replace(GOOD, kernel=decision_key("fuse.max"), space=SPACE, point={"fuse.max": "4"}, trace="")
    with Database() as database:
        database.add(decided)
    assert "fuse.max" in run(capsys, "show", decided.kernel)
    file, copy = tmp_path / "out.jsonl", str(tmp_path / "copy.db")
    run(capsys, "export", str(file))
    assert "1 new, 0 known, 0 refused" in run(capsys, "import", str(file), "-d", copy)


@pytest.mark.parametrize(
    ("words", "code", "message"),
    [
        (["list"], 1, "there are no records in"),
        (["show", "double", "-d", "sqlite://"], 2, "no chosen record is of the kernel"),
        (["forget", "-d", "sqlite://"], 2, "needs a kernel, a target or a state"),
        (["import", "missing.jsonl", "-d", "sqlite://"], 2, "cannot be read"),
        (["pack", "a", "--out", "x", "-d", "sqlite://"], 2, "no records to pack"),
        (["list", "-d", "nonsense://x"], 2, "no database of records can be opened"),
    ],
    ids=lambda value: value[0] if isinstance(value, list) else "",
)
def test_wrong_uses_of_the_command_say_so(records_path, capsys, words, code, message):
    assert main(["records", *words]) == code
    assert message in " ".join(capsys.readouterr().err.split())
    assert not records_path.exists()


@pytest.mark.parametrize(
    "fields", [{"name": "../x"}, {"name": "a b"}, {"name": "1-2"}, {"version": "1;x"}, {"licence": 'MIT"\n'}]
)
def test_packages_have_legal_names_versions_and_licences(tmp_path, fields):
    given = {"name": "acme-records", "version": "1.0", "licence": "MIT", **fields}
    with pytest.raises(UsageError):
        write_package(given.pop("name"), [GOOD], tmp_path, **given)
    assert list(tmp_path.iterdir()) == []


COMPILE = """
import numpy as np, sys
import dlc_core as dlc
from dlc_tune.records.samples import TARGET, double
exe = dlc.build(double(), TARGET)
assert (exe(np.ones(24, np.float32)) == 2).all()
(kernel,) = exe.explain().kernels
print(kernel.rule, kernel.origin, sep="|")
"""


def test_an_installed_package_gives_records_to_compiles(records_path, tmp_path, capsys):
    for name in ("hatchling", "pip"):
        pytest.importorskip(name, reason=f"the package {name} is missing")
    with Database() as database:
        database.add_all([GOOD, replace(GOOD, seconds=1e-6), replace(GOOD, state=TRIED, seconds=5e-7)])
    out = tmp_path / "dist"
    words = [
        "pack",
        "acme-records",
        "--out",
        str(out),
        "--target",
        TARGET,
        "--version",
        "1.2",
        "--license",
        "MIT",
    ]
    assert "1 records in" in run(capsys, *words)
    project = (out / "acme-records" / "pyproject.toml").read_text()
    assert all(
        f"\n{line}\n" in project for line in ('name = "acme-records"', 'version = "1.2"', 'license = "MIT"')
    )
    readme = (out / "acme-records" / "README.md").read_text()
    assert f"- `{TARGET}`" in readme
    assert "| double |" in readme
    assert "ratios" not in (out / "acme-records" / "acme_records" / "records.jsonl").read_text()
    pip = [sys.executable, "-m", "pip", "--disable-pip-version-check"]
    build = [
        *pip,
        "wheel",
        "--no-deps",
        "--no-build-isolation",
        "-q",
        "-w",
        str(tmp_path),
        str(out / "acme-records"),
    ]
    done = subprocess.run(build, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    (wheel,) = tmp_path.glob("acme_records-1.2-*.whl")
    site = tmp_path / "site"
    subprocess.run([*pip, "install", "--no-deps", "-q", "-t", str(site), str(wheel)], check=True, timeout=300)
    environment = {**os.environ, "DLC_RECORDS_URL": str(tmp_path / "none.db")}
    environment["PYTHONPATH"] = os.pathsep.join([str(site), *filter(None, [os.environ.get("PYTHONPATH")])])

    def compiled(**more: str) -> list[str]:
        ran = subprocess.run(
            [sys.executable, "-c", COMPILE], capture_output=True, text=True, env={**environment, **more}
        )
        assert ran.returncode == 0, ran.stderr
        return ran.stdout.strip().split("|")

    assert compiled() == ["tuned", "acme-records 1.2: 1 µs, default 2 µs, space by hand, 2023-11-14"]
    with Database(tmp_path / "own.db") as database:  # one's own come first
        database.add(replace(GOOD, seconds=1.9e-6))
    rule, origin = compiled(DLC_RECORDS_URL=str(tmp_path / "own.db"))
    assert (rule, origin.partition(",")[0]) == ("tuned", "own.db: 1.9 µs")
