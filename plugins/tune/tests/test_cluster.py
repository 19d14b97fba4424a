"""Measuring on a cluster: Dask schedulers and workers on the loopback interface. Most workers only wait."""

from __future__ import annotations

import gc
import re
import shutil
import signal
import subprocess
import sys
import time
import warnings
from dataclasses import replace
from pathlib import Path

import pytest
from dlc_tune.measuring.announced import Meaning, announce, differences
from dlc_tune.measuring.cluster import ClusterMeasurer, measurer_for
from dlc_tune.measuring.cluster_bench import LocalBench
from dlc_tune.measuring.cluster_connecting import connect, security_of
from dlc_tune.measuring.cluster_tasks import dask_settings, pack
from dlc_tune.measuring.job import CRASH, LOST, OK, WRONG, Comparison, Job, Outcome
from dlc_tune.measuring.waiting import DEADLY, WaitingBench

import dlc_core as dlc
from dlc_core import te
from dlc_core.cli.main import main
from dlc_core.diag import RuntimeFailure, TargetError, UsageError
from dlc_core.target import Target

distributed = pytest.importorskip("distributed", reason="clusters need the package distributed")
psutil = pytest.importorskip("psutil", reason="it comes with distributed")
dask = pytest.importorskip("dask", reason="it comes with distributed")

C, ZEN, SKYLAKE = (
    "c -mcpu=cortex-a72",
    "llvm -mcpu=znver4 -num-threads=1",
    "llvm -mcpu=skylake -num-threads=1",
)


@pytest.fixture(autouse=True)
def sockets():
    """Dask leaves the sockets of broken connections to the garbage collector, which warns of them."""
    yield
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ResourceWarning)
        gc.collect()


@pytest.fixture
def scheduler():
    """A scheduler in this process, which gives a task up after it has ended two workers."""
    with (
        dask.config.set({"distributed.scheduler.allowed-failures": 1}),
        distributed.LocalCluster(
            n_workers=0, processes=False, protocol="tcp://", host="127.0.0.1", dashboard_address="127.0.0.1:0"
        ) as cluster,
    ):
        yield cluster


@pytest.fixture
def start(scheduler):
    """`start(name, target, ...)`: a waiting worker in this process."""
    workers = []

    def begin(name, *targets, bench=WaitingBench, seconds=0.02, builders=1, **changes):
        announced = replace(announce(targets, builders=builders, runs=bool(targets)), **changes)
        settings = dask_settings(bench(name, announced, seconds / 2, seconds))

        async def make():
            return await distributed.Worker(scheduler.scheduler_address, name=name, **settings)

        workers.append(scheduler.sync(make))
        return workers[-1]

    yield begin
    for worker in workers:
        scheduler.sync(worker.close, timeout=1)


@pytest.fixture
def spawn(scheduler):
    """`spawn(name, target)`: a waiting worker in a process of its own."""
    processes = []

    def begin(name, target):
        command = [sys.executable, "-m", "dlc_tune.measuring.waiting", scheduler.scheduler_address]
        processes.append(subprocess.Popen([*command, name, target, "0.02", "0.04"]))
        return processes[-1]

    yield begin
    for process in processes:
        process.kill()
        process.wait()


@pytest.fixture
def measurer(scheduler):
    with ClusterMeasurer(scheduler.scheduler_address, wait=30.0) as found:
        yield found


def jobs_for(task, target, count):
    """Jobs whose costs are their numbers."""
    return [Job(task.func, target, trace=str(number)) for number in range(count)]


def check(outcomes, count):
    """All outcomes have arrived, each with the cost of its job."""
    assert sorted(number for number, _ in outcomes) == list(range(count))
    assert all(outcome.state == OK and outcome.seconds == (number,) for number, outcome in outcomes)


def test_outcomes_arrive_in_the_order_in_which_they_end(task, start, measurer):
    start("one", C)
    jobs = jobs_for(task, C, 6)
    outcomes = list(measurer.measure(jobs))
    check(outcomes, 6)
    assert {outcome.where for _, outcome in outcomes} == {"one"}
    found = measurer.compare(jobs[1], jobs[2])
    assert (found.ratio, found.same_results, found.is_faster) == (0.5, True, True)


def test_each_target_has_its_workers(task, start, measurer):
    start("board", C)
    start("zen", ZEN)
    start("skylake", SKYLAKE)
    targets = [C, ZEN, SKYLAKE] * 4
    jobs = [Job(task.func, target, trace=str(number)) for number, target in enumerate(targets)]
    outcomes = list(measurer.measure(jobs))
    check(outcomes, 12)
    names = {C: "board", ZEN: "zen", SKYLAKE: "skylake"}
    assert all(outcome.where == names[targets[number]] for number, outcome in outcomes)


def test_a_target_without_worker_is_an_error_at_once(task, start, scheduler):
    start("board", C)
    with pytest.raises(TargetError, match="no worker of the cluster runs the target llvm") as error:
        ClusterMeasurer(scheduler.scheduler_address, ZEN)
    assert C in str(error.value)
    with ClusterMeasurer(scheduler.scheduler_address) as found, pytest.raises(TargetError, match="runs the"):
        list(found.measure(jobs_for(task, ZEN, 1)))


def test_workers_are_waited_for(task, spawn, measurer):
    spawn("later", C)
    check(list(measurer.measure(jobs_for(task, C, 2))), 2)


def test_a_worker_that_joins_late_gets_work(task, start, measurer):
    start("early", C, seconds=0.1)  # it has work for six seconds
    outcomes = []
    for outcome in measurer.measure(jobs_for(task, C, 60)):
        outcomes.append(outcome)
        if len(outcomes) == 4:
            start("late", C)
    check(outcomes, 60)
    assert sum(outcome.where == "late" for _, outcome in outcomes) > 0


def test_nothing_is_lost_with_a_worker(task, spawn, measurer):
    workers = {name: spawn(name, C) for name in ("one", "two")}
    measurer._client.wait_for_workers(2)
    outcomes = []
    for outcome in measurer.measure(jobs_for(task, C, 40)):
        outcomes.append(outcome)
        if len(outcomes) == 8:
            workers["one"].send_signal(signal.SIGKILL)
    check(outcomes, 40)
    assert sum(outcome.where == "two" for _, outcome in outcomes) >= 20


def test_a_job_that_ends_workers_is_given_up(task, spawn, start, measurer):
    jobs = jobs_for(task, C, 1)
    deadly = replace(jobs[0], trace=DEADLY)
    for name in ("one", "two"):
        spawn(name, C)
    measurer._client.wait_for_workers(2)
    ((_, outcome),) = measurer.measure([deadly])
    assert outcome.state == CRASH
    assert "2 workers ended while they worked on it" in outcome.why
    start("three", C)
    check(list(measurer.measure(jobs)), 1)


def test_jobs_are_lost_if_all_workers_stay_away(task, start, scheduler):
    worker = start("one", C)
    with ClusterMeasurer(scheduler.scheduler_address, C, patience=0.5) as found:
        outcomes = found.measure(jobs_for(task, C, 40))
        next(outcomes)
        scheduler.sync(worker.close)
        rest = list(outcomes)
    assert len(rest) == 39
    assert {outcome.state for _, outcome in rest} <= {OK, LOST}
    assert "no worker of the cluster runs c -mcpu=cortex-a72 any more" in rest[-1][1].why


@pytest.mark.filterwarnings("ignore::ResourceWarning")
def test_jobs_go_on_after_a_broken_connection(task, start, measurer):
    start("one", C)
    for _ in range(3):
        outcomes = []
        for outcome in measurer.measure(jobs_for(task, C, 30)):
            outcomes.append(outcome)
            if len(outcomes) == 5:
                client = measurer._client
                client.loop.add_callback(client.scheduler_comm.comm.abort)
        check(outcomes, 30)


@pytest.mark.filterwarnings("ignore::ResourceWarning")
def test_a_scheduler_that_vanishes(task, start, scheduler):
    start("one", C)
    client = connect(scheduler.scheduler_address, None, seconds=0.5)
    measurer = ClusterMeasurer(client, C)
    outcomes = measurer.measure(jobs_for(task, C, 40))
    next(outcomes)

    async def reconnect_elsewhere():
        client.scheduler.addr = "tcp://127.0.0.1:1"
        client.scheduler_comm.comm.abort()

    client.sync(reconnect_elsewhere)
    states = {outcome.state for _, outcome in outcomes}
    assert states <= {OK, LOST}
    assert LOST in states
    with pytest.raises(RuntimeFailure, match="the scheduler of the cluster vanished"):
        next(measurer.measure(jobs_for(task, C, 1)))


def test_measuring_that_stops_early_leaves_no_task(task, start, scheduler, measurer):
    start("one", C)
    outcomes = measurer.measure(jobs_for(task, C, 100))
    next(outcomes)
    outcomes.close()
    end = time.monotonic() + 10
    while scheduler.scheduler.tasks and time.monotonic() < end:
        time.sleep(0.05)
    assert not scheduler.scheduler.tasks


def test_another_compiler_is_refused(task, start, scheduler):
    parts = dict(announce([C], builders=1).compiler)
    start("old", C, compiler={**parts, "core": "dlc-core 0.0.1"})
    start("patched", C, compiler={**parts, "code": "0"})
    start("bare", C, compiler={name: value for name, value in parts.items() if name != "tune"})
    with pytest.raises(TargetError) as error:
        ClusterMeasurer(scheduler.scheduler_address, C)
    text = str(error.value)
    assert "another compiler: core: dlc-core" in text
    assert "the versions are equal, but the source files differ" in text
    assert "tune: dlc-tune" in text
    assert "missing there" in text


def test_other_dask_workers_are_named(scheduler):
    async def make():
        return await distributed.Worker(scheduler.scheduler_address, nthreads=1, dashboard=False)

    worker = scheduler.sync(make)
    with pytest.raises(TargetError, match="a Dask worker that `dlc worker` has not started"):
        ClusterMeasurer(scheduler.scheduler_address, C)
    scheduler.sync(worker.close)


def test_different_machines_are_not_mixed(task, start, scheduler):
    start(
        "small",
        C,
        machine="Small, 2 cores",
        places=(replace(announce([C], builders=1).places[0], stamp="0"),),
    )
    start("large", C, machine="Large, 8 cores")
    with pytest.raises(TargetError, match="different machines of the cluster") as error:
        ClusterMeasurer(scheduler.scheduler_address, C)
    assert "Small, 2 cores" in str(error.value)
    with ClusterMeasurer(scheduler.scheduler_address, C, machine="Large") as found:
        outcomes = list(found.measure(jobs_for(task, C, 4)))
    assert {outcome.where for _, outcome in outcomes} == {"large"}


class OtherMachine(WaitingBench):
    """A builder on another machine."""

    def build(self, job):
        raise AssertionError("built for another machine")


def test_builders_of_other_machines_build_only_what_means_the_same(task, start, measurer, monkeypatch):
    start("farm", bench=OtherMachine, builders=4)
    start("one", C)
    of = Meaning.of

    def other_meaning(target):
        here = distributed.get_worker().name if hasattr(distributed.worker.thread_state, "key") else ""
        return Meaning("another processor", "") if here == "farm" else of(target)

    monkeypatch.setattr(Meaning, "of", staticmethod(other_meaning))
    check(list(measurer.measure(jobs_for(task, C, 12))), 12)


def test_an_announcement_has_resources():
    announced = announce([C, ZEN], builders=3)
    assert announced.resources["dlc-run"] == 1
    runs = {name.partition("@")[0]: count for name, count in announced.resources.items()}
    assert runs == {"dlc-build": 3, "dlc-run": 1} | {
        f"{what}:{kind}": count
        for kind in ("c", "llvm")
        for what, count in (("dlc-run", 1), ("dlc-build", 3))
    }
    assert list(announce((), builders=1, runs=False).resources) == [next(iter(announced.resources))]
    assert any(Target(place.target).kind.name == "llvm" for place in announce(builders=0).places)
    named = announce([f"{C} -model=one"], builders=1)
    assert named.places[0].stamp != announced.places[0].stamp
    assert differences(announced.compiler, announced.compiler) == []


def test_a_kernel_is_small(task):
    assert len(pack(Job(task.func, C, trace="x" * 10000))) < 2000


def test_workers_share_the_jobs(task, start, measurer):
    for name in ("one", "two"):
        start(name, C)
    outcomes = list(measurer.measure(jobs_for(task, C, 40)))
    check(outcomes, 40)
    assert 12 <= sum(outcome.where == "one" for _, outcome in outcomes) <= 28


@pytest.fixture(scope="module")
def certificates(tmp_path_factory):
    """Certificates that are their own authority, each with its key: one of a cluster, and another one."""
    if shutil.which("openssl") is None:
        pytest.skip("openssl, which makes the certificates, is not installed")
    folder, made = tmp_path_factory.mktemp("certificates"), []
    for name in ("own", "other"):
        cert, key = folder / f"{name}.pem", folder / f"{name}.key"
        words = ["req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "1", "-subj", "/CN=localhost"]
        subprocess.run(["openssl", *words, "-keyout", key, "-out", cert], check=True, capture_output=True)
        made.append((cert, key))
    return made


@pytest.fixture
def encrypted(certificates):
    """The address of a scheduler that takes encrypted connections only, with one worker."""
    (cert, key), _ = certificates
    files = {
        f"tls_{name}_{part}": str(path)
        for name in ("scheduler", "worker", "client")
        for part, path in (("cert", cert), ("key", key))
    }
    security = distributed.Security(tls_ca_file=str(cert), require_encryption=True, **files)
    bench = WaitingBench("one", announce([C], builders=1), 0.01, 0.01)
    with distributed.LocalCluster(
        n_workers=0,
        processes=False,
        protocol="tls://",
        host="127.0.0.1",
        dashboard_address="127.0.0.1:0",
        security=security,
    ) as cluster:
        address = cluster.scheduler_address
        assert address.startswith("tls://")
        own = security_of(address, cert, cert, key)

        async def make():
            return await distributed.Worker(address, security=own, **dask_settings(bench))

        worker = cluster.sync(make)
        yield address
        cluster.sync(worker.close, timeout=1)


def test_connections_are_encrypted(task, encrypted, certificates):
    (cert, key), (other, other_key) = certificates
    with measurer_for(encrypted, C, tls_ca=cert, tls_cert=cert, tls_key=key) as found:
        check(list(found.measure(jobs_for(task, C, 4))), 4)
    with pytest.raises(UsageError, match="cannot be used"):
        measurer_for(encrypted, C, tls_ca=cert, tls_cert=cert, tls_key=other_key)
    with pytest.raises(UsageError, match="no Dask scheduler answers at tls://") as error:
        connect(encrypted, security_of(encrypted, other, other, other_key), seconds=1.0)
    assert "certificate" in error.value.why
    assert "one authority" in error.value.hint


def test_the_commands_take_certificates(encrypted, certificates, capsys, tmp_path):
    """A tuner that is accepted gets as far as the question for the target; others learn the reason."""
    (cert, key), (other, other_key) = certificates
    script = tmp_path / "model.onnx"
    script.touch()

    def run(*words, ca, cert, key):
        files = ("--tls-ca", str(ca), "--tls-cert", str(cert), "--tls-key", str(key))
        assert main([*words, *files]) in (1, 2)
        return capsys.readouterr().err

    tune = ("tune", str(script), "-t", ZEN, "--cluster", encrypted, "-d", str(tmp_path / "records.db"))
    text = run(*tune, ca=cert, cert=cert, key=key)
    assert f"no worker of the cluster runs the target {ZEN}" in text
    assert f"runs {C}; 1 builders" in text
    assert "cannot be used" in run(*tune, ca=cert, cert=cert, key=other_key)
    worker = ("worker", encrypted, "-t", C, "--reconnect", "0.5")
    assert "no Dask scheduler answers" in run(*worker, ca=other, cert=other, key=other_key)
    assert main(["tune", str(script), "--tls-ca", str(cert)]) == 2
    assert "certificates without a cluster" in capsys.readouterr().err


def test_tuning_on_a_cluster_is_used_by_compiles(scheduler, start, records_path):
    """The search finds the targets of its arguments, and its records are those of this machine."""

    class Faster(WaitingBench):
        def run(self, job, built, default):
            return Outcome(OK, (2.0 if job.trace is None else 1.0,))

        def compare(self, jobs, built):
            return Comparison(OK, (1.0,), (2.0,), 0.5, 0.01, same_results=True)

    target = "llvm -num-threads=1"
    start("one", target, bench=Faster)
    x = te.placeholder((64, 64), name="x")
    func = te.create_prim_func([x], [te.compute((64, 64), lambda i, j: x[i, j] * 2.0, "y")], "double")
    options = {"space": "decisions", "trials": 2, "cluster": scheduler.scheduler_address}
    result = dlc.tune(func, target, **options)
    assert (result.trials, result.failed) == (2, 0)
    assert result.chosen is not None
    assert dlc.build(func, target).explain().kernels[0].origin.startswith("records.db: 1 s, default 2 s")
    with pytest.raises(TargetError, match="runs the target llvm -mcpu=skylake"):
        dlc.tune("model.onnx", targets=[SKYLAKE], cluster=scheduler.scheduler_address, keep=False)


@pytest.mark.slow
def test_the_document_runs():
    """The Python blocks of the document."""
    text = Path(__file__).parents[3].joinpath("docs", "tuning-cluster.md").read_text(encoding="utf-8")
    blocks = re.findall(r"```python\n(.*?)```", text, re.DOTALL)
    assert blocks
    subprocess.run([sys.executable, "-c", "\n".join(blocks)], check=True, capture_output=True, timeout=120)


def test_wrong_use(tmp_path, monkeypatch):
    with pytest.raises(UsageError, match=r"no Dask scheduler answers at tcp://127.0.0.1:1"):
        connect("tcp://127.0.0.1:1", None, seconds=0.2)
    with pytest.raises(UsageError, match="needs certificates"):
        measurer_for("tls://127.0.0.1:1")
    file = tmp_path / "ca.pem"
    with pytest.raises(UsageError, match="there is no file"):
        security_of("tls://127.0.0.1:1", file, file, file)
    file.write_text("")
    with pytest.raises(UsageError, match="uses no certificates"):
        security_of("tcp://127.0.0.1:1", file, file, file)
    monkeypatch.setitem(sys.modules, "distributed", None)
    with pytest.raises(UsageError, match=r'pip install "dlc-tune\[cluster\]"'):
        measurer_for("tcp://127.0.0.1:1")


FAULTY = """
import asyncio, sys
from dlc_tune.measuring.announced import announce
from dlc_tune.measuring.cluster_bench import LocalBench
from dlc_tune.measuring.waiting import serve
from dlc_tune.testing import faults

with LocalBench(announce([sys.argv[2]], builders=1), timeout=20.0, setup=faults) as bench:
    asyncio.run(serve(sys.argv[1], "faulty", bench))
"""


def test_a_kernel_that_crashes_ends_no_worker(scheduler, measurer):
    """Builds, runs and comparisons of kernels, by the processes of a worker."""
    target = "llvm -num-threads=1"
    a, b = te.placeholder((16, 16), name="a"), te.placeholder((16, 16), name="b")
    func = te.create_prim_func([a, b], [te.compute((16, 16), lambda i, j: a[i, j] + b[i, j], "c")], "add")
    jobs = [Job(replace(func, name=name), target) for name in ("run_segfault", "add", "build_segfault")]
    jobs.append(replace(jobs[1], trace="[]"))
    with subprocess.Popen([sys.executable, "-c", FAULTY, scheduler.scheduler_address, target]) as process:
        try:
            outcomes = dict(measurer.measure(jobs))
            assert [outcomes[number].state for number in range(3)] == [CRASH, OK, CRASH]
            assert "SIGSEGV" in outcomes[0].why
            assert outcomes[1].best > 0
            assert measurer.compare(jobs[1], jobs[1]).same_results
            assert measurer.compare(jobs[1], jobs[0]).state == CRASH
            assert process.poll() is None
        finally:
            process.kill()


class Differs(WaitingBench):
    """Finds that the results of all candidates differ from those of the default schedule."""

    def run(self, job, built, default):
        assert default.artefact == b""
        return Outcome(OK if job.trace is None else WRONG)


def test_workers_get_the_default_schedule_with_each_candidate(task, start, measurer):
    start("one", C, bench=Differs)
    jobs = [Job(task.func, C), *jobs_for(task, C, 3)]
    for _ in range(2):
        assert [outcome.state for _, outcome in sorted(measurer.measure(jobs))] == [OK, WRONG, WRONG, WRONG]
    assert len(measurer._defaults) == 1


def test_a_candidate_with_other_results_is_wrong_at_once():
    """On each worker, also if it has not measured the default schedule."""
    target = "llvm -num-threads=1"
    a, b = te.placeholder((16, 16), name="a"), te.placeholder((16, 16), name="b")
    add, subtract = (
        Job(te.create_prim_func([a, b], [te.compute((16, 16), each, "c")], "kernel"), target)
        for each in (lambda i, j: a[i, j] + b[i, j], lambda i, j: a[i, j] - b[i, j])
    )
    candidate = replace(add, trace="[]")
    with LocalBench(announce([target], builders=1)) as bench:
        default, other = bench.build(add), bench.build(subtract)
        outcome = bench.run(candidate, other, default)
        assert (outcome.state, outcome.seconds) == (WRONG, ())
        assert "differ" in outcome.why
        assert bench.run(candidate, default, default).state == OK
        assert bench.run(add, default, default).state == OK
        assert bench.run(candidate, other, None).state == WRONG  # the results are kept


def test_an_interrupted_worker_leaves_no_process(task, scheduler, measurer):
    target = "llvm -num-threads=1"
    command = [sys.executable, "-m", "dlc_core", "worker", scheduler.scheduler_address, "--target", target]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as process:
        assert "runs llvm -num-threads=1; 1 builders" in process.stderr.readline()
        outcomes = measurer.measure([replace(job, trace=None) for job in jobs_for(task, target, 20)])
        assert next(outcomes)[1].state == OK
        descendants = psutil.Process(process.pid).children(recursive=True)
        assert len(descendants) >= 2
        process.send_signal(signal.SIGINT)
        assert process.wait(60) == 0
        outcomes.close()
    assert psutil.wait_procs(descendants, 10)[1] == []


def test_the_worker_command_refuses(scheduler):
    def run(*arguments):
        command = [sys.executable, "-m", "dlc_core", "worker", *arguments]
        return subprocess.run(command, capture_output=True, text=True)

    found = run(scheduler.scheduler_address, "--no-runs", "--target", C)
    assert found.returncode == 2
    assert "--no-runs with --target" in found.stderr
    found = run("tcp://127.0.0.1:1", "--target", C, "--reconnect", "0.2")
    assert found.returncode == 2
    assert "no Dask scheduler answers at tcp://127.0.0.1:1" in found.stderr
