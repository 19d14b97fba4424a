"""torch.compile and threads: calls at the same time, numbers of threads, forked processes, memory."""

import os
import threading
import time

import pytest
import torch
from dlc_frontend_torch.dynamo.part import Part

import dlc_core as dlc


@pytest.fixture(autouse=True)
def fresh():
    torch.manual_seed(0)
    torch._dynamo.reset()
    threads = torch.get_num_threads()
    yield
    torch.set_num_threads(threads)


def network():
    return torch.nn.Sequential(torch.nn.Linear(64, 128), torch.nn.GELU(), torch.nn.Linear(128, 8)).eval()


def test_eight_threads_call_at_once():
    model = network()
    compiled = torch.compile(model, backend="dlc")
    right = []

    def work():
        with torch.no_grad():  # a setting of the thread
            for _ in range(20):
                x = torch.randn(16, 64)
                right.append(torch.allclose(compiled(x), model(x), atol=1e-5))

    workers = [threading.Thread(target=work) for _ in range(8)]
    for each in workers:
        each.start()
    for each in workers:
        each.join()
    assert right == [True] * 160


@pytest.mark.parametrize("options", [{}, {"num_threads": 1}])
def test_the_number_of_threads_is_that_of_torch_at_each_call(options, monkeypatch):
    seen, own = [], Part._with_threads

    def recorded(self, exe):
        found = own(self, exe)
        seen.append(found.num_threads)
        return found

    monkeypatch.setattr(Part, "_with_threads", recorded)
    compiled, x = torch.compile(lambda x: x * 2 + 1, backend="dlc", options=options), torch.randn(64, 64)
    for count in (2, 1, 2):
        torch.set_num_threads(count)
        torch.testing.assert_close(compiled(x), x * 2 + 1)
    assert seen == ([1, 1, 1] if options else [2, 1, 2])


@pytest.mark.skipif(not hasattr(os, "fork"), reason="the system has no fork")
@pytest.mark.filterwarnings("ignore:This process .* is multi-threaded:DeprecationWarning")
def test_a_forked_process_calls():
    compiled, x = torch.compile(network(), backend="dlc"), torch.randn(16, 64)
    with torch.no_grad():
        expected = compiled(x)
        child = os.fork()
        if child == 0:
            os._exit(0 if torch.allclose(compiled(x), expected) else 3)
    for _ in range(300):
        ended, status = os.waitpid(child, os.WNOHANG)
        if ended:
            break
        time.sleep(0.1)
    else:
        os.kill(child, 9)
        os.waitpid(child, 0)
        pytest.fail("the forked process does not end")
    assert status == 0


def test_calls_keep_no_memory():
    psutil = pytest.importorskip("psutil", reason="psutil measures the memory of the process")
    compiled, x = torch.compile(network(), backend="dlc"), torch.randn(256, 64)
    own = psutil.Process()
    with torch.no_grad():
        for _ in range(200):
            compiled(x)
        before = own.memory_info().rss
        for _ in range(1000):
            compiled(x)
    assert own.memory_info().rss - before < 4 << 20
    assert dlc.torch.report().graphs
