"""Sessions with a microcontroller: its memory and a model on it, controlled from Python.

    exe = dlc.compile(model, "c -mcpu=cortex-m4")
    with Session(exe, "mps2-an386") as board:
        x, y = board.array(image), board.empty((1, 10), "float32")
        board.call([x], [y])                 the arrays stay on the board between calls
        print(y.numpy(), board.cycles)
        other = board.load(exe2)             loads another model into the board's memory
        print(other.run(image))

The firmware consists of the model's C, a loop that answers frames (`server.c`), and a small port to the
board. A real board needs its own port, a firmware built by `build_session`, and a `Transport` for its serial
line.
"""

from __future__ import annotations

from dlc_backend_c.micro.firmware import build_session
from dlc_backend_c.micro.protocol import Command, Status, Transport
from dlc_backend_c.micro.session import BoardArray, Module, Session
from dlc_backend_c.micro.transport import Emulated

__all__ = ["BoardArray", "Command", "Emulated", "Module", "Session", "Status", "Transport", "build_session"]
