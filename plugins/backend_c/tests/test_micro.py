"""Sessions with an emulated microcontroller: memory, calls, the queue, and errors."""

from __future__ import annotations

import os
import signal
import struct
import threading
import time
import zlib

import numpy as np
import pytest
from dlc_backend_c import boards
from dlc_backend_c.micro import Emulated, Session
from dlc_backend_c.micro.protocol import Command, Status, frame, read_answer

import dlc_core as dlc
from dlc_core.diag import RuntimeFailure, UsageError
from dlc_core.testing import networks

needs_board = pytest.mark.skipif(boards.problem() is not None, reason=str(boards.problem()))


@pytest.fixture(scope="module")
def mlp():
    module = networks.mlp()
    return module, dlc.compile(module, "c -mcpu=cortex-m4", cache=False)


def expected(module, x):
    return dlc.compile(module, "reference", cache=False)(x)


@needs_board
def test_arrays_stay_on_the_board(mlp):
    module, exe = mlp
    feeds = [networks.feed(module, seed) for seed in (1, 2)]
    with Session(exe, "mps2-an386") as board:
        x, y = board.array(feeds[0]), board.empty((1, 10))
        np.testing.assert_array_equal(x.numpy(), feeds[0])
        board.call([x], [y])
        np.testing.assert_allclose(y.numpy(), expected(module, feeds[0]), 1e-4, 1e-6)
        first = board.cycles
        assert first > 64 * 32
        x.write(feeds[1])
        board.call([x], [y])
        np.testing.assert_allclose(y.numpy(), expected(module, feeds[1]), 1e-4, 1e-6)
        assert abs(board.cycles - first) < first // 2
        np.testing.assert_allclose(board.run(feeds[0]), expected(module, feeds[0]), 1e-4, 1e-6)


@needs_board
@pytest.mark.parametrize("queued", [True, False])
def test_calls_are_answered_in_order(mlp, queued):
    module, exe = mlp
    feeds = [networks.feed(module, seed) for seed in range(12)]
    with Session(exe, "mps2-an500", queued=queued) as board:
        outputs = []
        for value in feeds:
            outputs.append(board.empty((1, 10)))
            board.call([board.array(value)], [outputs[-1]])
        for value, output in zip(feeds, outputs, strict=True):
            np.testing.assert_allclose(output.numpy(), expected(module, value), 1e-4, 1e-6)


@needs_board
@pytest.mark.parametrize("where", ["mps2-an386", "mps2-an500"])
def test_several_models_are_loaded_at_once(where):
    cpu = boards.board(where).cpu
    made = {name: networks.NETWORKS[name]() for name in ("mlp", "keywords")}
    with Session(where, memory=1 << 18) as board:
        loaded = {
            name: board.load(dlc.compile(module, f"c -mcpu={cpu} -opt-for=size", cache=False))
            for name, module in made.items()
        }
        for seed in (1, 2):
            for name, module in made.items():
                x = networks.feed(module, seed)
                np.testing.assert_allclose(loaded[name].run(x), expected(module, x), 1e-4, 1e-6)
                assert board.cycles > 64 * 32
        taken = loaded["mlp"].address
        loaded["mlp"].free()
        assert board.alloc(64) == taken


@needs_board
def test_invalid_models_are_not_called(mlp):
    _, exe = mlp
    with Session("mps2-an386", memory=8192) as board:
        with pytest.raises(UsageError, match="has no model"):
            board.run(np.zeros((1, 64), np.float32))
        with pytest.raises(RuntimeFailure, match="refused CALL"):
            board.transact(Command.CALL, b"", size=12)
        with pytest.raises(RuntimeFailure, match="8192 bytes for arrays are in use"):
            board.load(exe)
        held = board.array(np.zeros(64, np.uint8)).address
        for address in (held, held + 4, 8192, 0xFFFFFFC0):
            with pytest.raises(RuntimeFailure, match="refused INVOKE"):
                board.transact(Command.INVOKE, struct.pack("<3I", address, held, held), size=12)
        assert board.alloc(64) == held + 64
    with pytest.raises(UsageError, match="needs a board"):
        Session(exe)


@needs_board
def test_array_addresses_outside_of_the_memory_are_refused(mlp):
    _, exe = mlp
    with Session("mps2-an386", memory=1 << 16) as board:
        model = board.load(exe)
        x, y = board.empty((1, 64)), board.empty((1, 10))
        with pytest.raises(UsageError, match="2 inputs given"):
            model.call([x, x], [y])
        y.address = (1 << 16) - 8
        model.call([x], [y])
        with pytest.raises(RuntimeFailure, match="bad address"):
            board.sync()


@needs_board
def test_memory_is_freed_and_limited(mlp):
    _, exe = mlp
    with Session(exe, "mps2-an386", memory=4096) as board:
        assert board.memory == 4096
        blocks = [board.alloc(1000) for _ in range(4)]
        assert len(set(blocks)) == 4
        with pytest.raises(RuntimeFailure, match="4096 bytes for arrays are in use"):
            board.alloc(1000)
        board.request(Command.FREE, struct.pack("<I", blocks[1]))
        assert board.alloc(900) == blocks[1]
        board.clear()
        assert board.alloc(4096) == 0


@needs_board
def test_the_board_refuses_addresses_outside_of_its_memory(mlp):
    _, exe = mlp
    with Session(exe, "mps2-an386", memory=4096) as board:
        for work in (
            lambda: board.read(4090, 16),
            lambda: board.transact(Command.WRITE, struct.pack("<I", 4095) + b"ab"),
            lambda: board.transact(Command.FREE, struct.pack("<I", 64)),
            lambda: board.transact(Command.CALL, struct.pack("<II", 0, 4090)),
        ):
            with pytest.raises(RuntimeFailure, match="bad address"):
                work()
        assert len(board.read(0, 4096)) == 4096


@needs_board
def test_damaged_frames_and_noise_are_ignored(mlp):
    _, exe = mlp
    with Session(exe, "mps2-an386") as board:
        transport = board._transport
        good = frame(7, Command.ALLOC, struct.pack("<I", 64))
        transport.send(good[:-1] + bytes([good[-1] ^ 1]))
        assert read_answer(transport).status is Status.BAD_CHECKSUM
        transport.send(b"noise L" + frame(8, Command.HELLO))
        answer = read_answer(transport)
        assert (answer.sequence, answer.status) == (8, Status.OK)
        transport.send(frame(9, 77))
        assert read_answer(transport).status is Status.BAD_COMMAND
        assert board.alloc(64) == 0


@needs_board
def test_arrays_that_do_not_match_the_model_are_refused(mlp):
    _, exe = mlp
    with Session(exe, "mps2-an386") as board:
        x, y = board.empty((1, 64)), board.empty((1, 10))
        with pytest.raises(UsageError, match=r"0 inputs given, 1 needed"):
            board.call([], [y])
        with pytest.raises(UsageError, match=r"output 'y' is float32\[1, 64\]"):
            board.call([x], [x])
        with pytest.raises(UsageError, match=r"int32\[2\] to float32\[1, 64\]"):
            x.write(np.int32([1, 2]))


@needs_board
def test_a_board_that_stops_answering_is_an_error(mlp):
    _, exe = mlp
    board = Session(exe, "mps2-an386", seconds=10)
    board.transact(Command.END)
    with pytest.raises(RuntimeFailure, match="the board"):
        board.alloc(64)
    board.close()


class Recorded:
    """A transport that returns given bytes."""

    def __init__(self, data):
        self.data = data
        self.sent = b""

    def send(self, data):
        self.sent += data

    def receive(self, size):
        taken, self.data = self.data[:size], self.data[size:]
        if len(taken) < size:
            raise RuntimeFailure("nothing comes")
        return taken

    def close(self):
        pass


def test_other_firmware_is_an_error(mlp):
    _, exe = mlp
    line = Recorded(frame(1, Status.OK, struct.pack("<5I", 1, 4096, 4096, 5, 0)))
    with pytest.raises(RuntimeFailure, match="does not match this session"):
        Session(exe, line)
    assert line.sent.startswith(frame(1, Command.HELLO))


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"\0" * 20, "invalid answer"),
        (frame(1, 99), "invalid answer"),
        (frame(1, Status.OK, b"1234")[:-1] + b"\0", "damaged"),
        (frame(1, Status.OK, b"1234")[:-6], "nothing comes"),
    ],
)
def test_malformed_answers_are_errors(data, message):
    with pytest.raises(RuntimeFailure, match=message):
        read_answer(Recorded(data))


class Line:
    """A simulated board that answers all requests without errors. `spoil` changes the bytes of
    its answers.
    """

    def __init__(self):
        self.answered = b""
        self.spoil = lambda data: data
        self.waits = 0
        self.closed = 0

    def send(self, data):
        _, sequence, command, size = struct.unpack("<HBBI", data[:8])
        words = struct.unpack(f"<{size // 4}I", data[8 : 8 + size // 4 * 4])
        answers = {
            Command.HELLO: struct.pack("<5I", 2, 4096, 256, 2, 0),
            Command.ALLOC: struct.pack("<I", 64),
            Command.READ: bytes(words[1]) if command == Command.READ else b"",
            Command.CALL: struct.pack("<3I", 0, 77, 0),
        }
        self.answered += self.spoil(frame(sequence, Status.OK, answers.get(Command(command), b"")))

    def receive(self, size):
        if len(self.answered) < size:
            self.waits += 1
            raise RuntimeFailure("the board did not answer in 0 seconds")
        taken, self.answered = self.answered[:size], self.answered[size:]
        return taken

    def close(self):
        self.closed += 1


WORKS = {
    "alloc": lambda board: board.alloc(64),
    "read": lambda board: board.read(0, 600),
    "write": lambda board: (board.write(0, bytes(600)), board.sync()),
    "call": lambda board: (board.request(Command.CALL, bytes(8), board.called, size=12), board.sync()),
}


def loses(exe, spoil, work, message):
    """Check that a damaged answer raises an error, that later requests fail at once with the same reason, and
    that `close` returns.
    """
    line = Line()
    board = Session(exe, line)
    line.spoil = spoil
    with pytest.raises(RuntimeFailure, match=message):
        work(board)
    line.spoil = lambda data: data
    waits = line.waits
    with pytest.raises(RuntimeFailure, match="connection to the board is lost"):
        board.alloc(64)
    board.sync()
    board.close()
    board.close()
    assert line.closed == 1
    assert line.waits == waits
    return waits


@pytest.mark.parametrize("name", WORKS)
def test_each_flipped_bit_of_an_answer_is_detected_at_once(mlp, name):
    _, exe = mlp
    for bit in range(8 * 12):  # the header, and four bytes of payload or checksum

        def flipped(data, bit=bit):
            return data[: bit // 8] + bytes([data[bit // 8] ^ 1 << bit % 8]) + data[bit // 8 + 1 :]

        assert loses(exe, flipped, WORKS[name], "invalid answer|damaged") == 0


@pytest.mark.parametrize("name", WORKS)
def test_truncated_and_missing_answers_are_errors(mlp, name):
    _, exe = mlp
    for kept in (0, 1, 7, 8, 11):
        message = "invalid answer|did not|damaged"
        assert loses(exe, lambda data, kept=kept: data[:kept], WORKS[name], message) <= 1


def test_answers_of_the_wrong_length_or_request_are_errors(mlp):
    _, exe = mlp
    loses(exe, lambda data: frame(data[2], Status.OK, b"ab"), WORKS["alloc"], "4 bytes are expected")
    loses(exe, lambda data: frame(data[2], Status.OK, bytes(99)), WORKS["alloc"], "invalid answer")
    loses(
        exe, lambda data: frame(data[2] + 1, Status.OK, bytes(4)), WORKS["alloc"], "answers request 3, not 2"
    )


def test_failures_and_short_reads_of_a_transport_are_errors(mlp):
    _, exe = mlp

    class Broken(Line):
        failing = False

        def receive(self, size):
            if self.failing:
                return b"LD"
            return super().receive(size)

        def send(self, data):
            if self.failing is None:
                raise OSError("unplugged")
            super().send(data)

    for failing, message in ((True, "2 of 8 bytes"), (None, "unplugged")):
        line = Broken()
        board = Session(exe, line)
        line.failing = failing
        with pytest.raises(RuntimeFailure, match=message):
            board.alloc(64)
        board.close()
        assert line.closed == 1
        with pytest.raises(RuntimeFailure, match="connection to the board is lost"):
            board.clear()


def test_an_invalid_hello_is_an_error(mlp):
    _, exe = mlp
    for payload, message in (
        (b"1234", "20 bytes are expected"),
        (struct.pack("<5I", 2, 64, 4, 2, 0), "frames of 4 bytes"),
    ):
        with pytest.raises(RuntimeFailure, match=message):
            Session(exe, Recorded(frame(1, Status.OK, payload)))


def test_requests_queued_after_a_refused_one_are_answered(mlp):
    _, exe = mlp
    line = Line()
    with Session(exe, line) as board:
        line.spoil = lambda data: frame(data[2], Status.BAD_ADDRESS)
        board.request(Command.FREE, bytes(4))
        line.spoil = lambda data: data
        board.write(0, bytes(600))
        with pytest.raises(RuntimeFailure, match="refused FREE"):
            board.sync()
        assert board.alloc(8) == 64
    with pytest.raises(RuntimeFailure, match="it is closed"):
        board.alloc(8)


@needs_board
def test_a_board_killed_during_a_call_is_an_error(mlp):
    module, exe = mlp
    board = Session(exe, "mps2-an386", seconds=20)
    x, y = board.array(networks.feed(module, 1)), board.empty((1, 10))
    kill = threading.Timer(0.2, os.kill, (board._transport._process.pid, signal.SIGKILL))
    kill.start()
    begin = time.monotonic()

    def call_on():
        while time.monotonic() < begin + 10:
            board.call([x], [y])

    with pytest.raises(RuntimeFailure, match="the board"):
        call_on()
    with pytest.raises(RuntimeFailure, match="connection to the board is lost"):
        board.call([x], [y])
    board.close()
    kill.join()
    assert time.monotonic() < begin + 8


@needs_board
def test_an_emulator_that_does_not_start_is_an_error_at_once(tmp_path, monkeypatch):
    monkeypatch.setattr("dlc_backend_c.micro.transport.EMULATOR", "false")
    begin = time.monotonic()
    with pytest.raises(RuntimeFailure, match="does not start") as caught:
        Emulated(boards.board("mps2-an386"), tmp_path / "none.elf", seconds=20)
    assert "status 1" in str(caught.value)
    assert time.monotonic() < begin + 8


def test_frames_match_the_documentation():
    made = frame(258, Command.FREE, b"abc")
    assert made[:8] == b"LD\x02\x03\x03\x00\x00\x00"
    assert made[8:11] == b"abc"
    assert made[11:] == struct.pack("<I", zlib.crc32(made[:11]))
