"""Sessions with an emulated microcontroller: memory, calls, the queue, and what goes wrong."""

from __future__ import annotations

import struct
import zlib

import numpy as np
import pytest
from dlc_backend_c import boards
from dlc_backend_c.micro import Session
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
def test_memory_is_given_back_and_bounded(mlp):
    _, exe = mlp
    with Session(exe, "mps2-an386", memory=4096) as board:
        assert board.memory == 4096
        blocks = [board.alloc(1000) for _ in range(4)]
        assert len(set(blocks)) == 4
        with pytest.raises(RuntimeFailure, match="4096 bytes for arrays are taken"):
            board.alloc(1000)
        board.request(Command.FREE, struct.pack("<I", blocks[1]))
        assert board.alloc(900) == blocks[1]
        board.clear()
        assert board.alloc(4096) == 0


@needs_board
def test_the_board_refuses_what_is_outside(mlp):
    _, exe = mlp
    with Session(exe, "mps2-an386", memory=4096) as board:
        for work in (
            lambda: board.read(4090, 16),
            lambda: board.ask(Command.WRITE, struct.pack("<I", 4095) + b"ab"),
            lambda: board.ask(Command.FREE, struct.pack("<I", 64)),
            lambda: board.ask(Command.CALL, struct.pack("<II", 0, 4090)),
        ):
            with pytest.raises(RuntimeFailure, match="bad address"):
                work()
        assert len(board.read(0, 4096)) == 4096


@needs_board
def test_damaged_frames_and_noise_do_nothing(mlp):
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
def test_arrays_that_do_not_fit_the_model(mlp):
    _, exe = mlp
    with Session(exe, "mps2-an386") as board:
        x, y = board.empty((1, 64)), board.empty((1, 10))
        with pytest.raises(UsageError, match=r"0 inputs given, 1 needed"):
            board.call([], [y])
        with pytest.raises(UsageError, match=r"output 'y' is float32\[1, 64\]"):
            board.call([x], [x])
        with pytest.raises(UsageError, match=r"int32\[2\] written to float32\[1, 64\]"):
            x.write(np.int32([1, 2]))


@needs_board
def test_a_board_that_stops(mlp):
    _, exe = mlp
    board = Session(exe, "mps2-an386", seconds=10)
    board.ask(Command.END)
    with pytest.raises(RuntimeFailure, match="the board"):
        board.alloc(64)
    board.close()


class Recorded:
    """A transport that answers with given bytes."""

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


def test_other_firmware_is_noticed(mlp):
    _, exe = mlp
    line = Recorded(frame(1, Status.OK, struct.pack("<4I", 1, 4096, 4096, 5)))
    with pytest.raises(RuntimeFailure, match="another firmware"):
        Session(exe, line)
    assert line.sent.startswith(frame(1, Command.HELLO))


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"\0" * 20, "no answer"),
        (frame(1, 99), "no answer"),
        (frame(1, Status.OK, b"1234")[:-1] + b"\0", "damaged"),
        (frame(1, Status.OK, b"1234")[:-6], "nothing comes"),
    ],
)
def test_answers_that_are_none(data, message):
    with pytest.raises(RuntimeFailure, match=message):
        read_answer(Recorded(data))


def test_frames_are_as_documented():
    made = frame(258, Command.FREE, b"abc")
    assert made[:8] == b"LD\x02\x03\x03\x00\x00\x00"
    assert made[8:11] == b"abc"
    assert made[11:] == struct.pack("<I", zlib.crc32(made[:11]))
