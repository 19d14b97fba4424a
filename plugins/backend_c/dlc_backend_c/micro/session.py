"""The host side of a session."""

from __future__ import annotations

import struct
import tempfile
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from types import TracebackType
from typing import Any, NamedTuple

import numpy as np

from dlc_backend_c.boards import Board, board, emulated_cycles
from dlc_backend_c.micro.firmware import build_module, build_session
from dlc_backend_c.micro.protocol import VERSION, Command, Status, Transport, frame, read_answer
from dlc_backend_c.micro.transport import Emulated
from dlc_core.diag import DlcError, RuntimeFailure, UsageError
from dlc_core.ir.dtype import DTypeLike, dtype
from dlc_core.runtime.call.arrays import contiguous
from dlc_core.runtime.executable import Executable

Array = np.ndarray[Any, Any]


class _Request(NamedTuple):
    """A request without an answer yet. The payload of the answer has `size` bytes; `then` is
    called with it.
    """

    sequence: int
    command: Command
    size: int
    then: Callable[[bytes], None] | None


class BoardArray:
    """An array in the memory of a board."""

    def __init__(self, session: Session, shape: tuple[int, ...], type_: np.dtype[Any], address: int) -> None:
        self._session = session
        self.shape = shape
        self.dtype = type_
        self.address = address

    @property
    def nbytes(self) -> int:
        return int(np.prod(self.shape, dtype=np.int64)) * self.dtype.itemsize

    def numpy(self) -> Array:
        """Copy the array to the host, after waiting for all earlier calls."""
        data = self._session.read(self.address, self.nbytes)
        values: Array = np.frombuffer(data, self.dtype).reshape(self.shape).copy()
        return values

    def write(self, values: Any) -> None:
        """Copy values of the same shape and dtype to the array."""
        array = contiguous(np.asarray(values))
        if array.shape != self.shape or array.dtype != self.dtype:
            raise UsageError(
                f"cannot copy {array.dtype}{list(array.shape)} to {self.dtype}{list(self.shape)} there"
            )
        self._session.write(self.address, array.tobytes())

    def free(self) -> None:
        """Free its memory."""
        self._session.request(Command.FREE, struct.pack("<I", self.address))


class Module:
    """A model in the memory of a board."""

    def __init__(self, session: Session, exe: Executable, address: int | None) -> None:
        self._session = session
        self.exe = exe
        self.address = address
        """The address in the board's memory; None for the model of the firmware."""

    def call(self, inputs: Sequence[BoardArray], outputs: Sequence[BoardArray]) -> None:
        """Run the model on arrays on the board. Raises UsageError if their shapes or dtypes are wrong."""
        signature = self.exe.signature
        for kind, values, arrays in (
            ("input", signature.inputs, inputs),
            ("output", signature.outputs, outputs),
        ):
            if len(values) != len(arrays):
                raise UsageError(f"{len(arrays)} {kind}s given, {len(values)} needed")
            for value, array in zip(values, arrays, strict=True):
                shape, type_ = value.type.static_shape(), value.type.dtype.numpy
                if array.shape != shape or array.dtype != type_:
                    raise UsageError(
                        f"{kind} {value.name!r} is {array.dtype}{list(array.shape)}, {value.type} is needed"
                    )
        addresses = [array.address for array in (*inputs, *outputs)]
        if self.address is not None:
            addresses.insert(0, self.address)
        command = Command.CALL if self.address is None else Command.INVOKE
        data = struct.pack(f"<{len(addresses)}I", *addresses)
        self._session.request(command, data, self._session.called, size=12)

    def run(self, *arrays: Any) -> Array | tuple[Array, ...]:
        """Run the model on host arrays, which are copied to the board. Results are copied back."""
        board = self._session
        inputs = [board.array(array) for array in arrays]
        outputs = [board.empty(v.type.static_shape() or (), v.type.dtype) for v in self.exe.outputs]
        self.call(inputs, outputs)
        results = tuple(array.numpy() for array in outputs)
        for array in (*inputs, *outputs):
            array.free()
        return results[0] if len(results) == 1 else results

    def free(self) -> None:
        """Free the memory of a loaded model."""
        if self.address is None:
            raise UsageError("the model of the firmware cannot be freed")
        self._session.request(Command.FREE, struct.pack("<I", self.address))


class Session:
    """A board and the models on it. Calls are sent without waiting for answers; reading an array waits for
    them.

    `where` is the name of a board, which is emulated, or a Transport to a board with a firmware of
    `build_session`. `Session(exe, where)` has a model in its firmware, for `call` and `run`; `Session(where)`
    has none. Both can load models. `memory` is the number of bytes for arrays and loaded models. With
    `queued=False` each call waits for its answer. Raises RuntimeFailure for error answers, and if the board
    does not answer.
    """

    def __init__(
        self,
        exe: Executable | str | Board | Transport,
        where: str | Board | Transport | None = None,
        *,
        memory: int = 1 << 20,
        queued: bool = True,
        seconds: float = 60,
    ) -> None:
        if where is None:
            if isinstance(exe, Executable):
                raise UsageError("a session needs a board", hint='Session(exe, "mps2-an386")')
            where, model = exe, None
        elif isinstance(exe, Executable):
            model = exe
        else:
            raise UsageError(f"a {type(exe).__name__} is not an executable")
        self.queued = queued
        self.cycles = 0
        """The cycles of the last call that was answered. On an emulated board these are the instructions that
        it executed (`boards.emulated_cycles`)."""
        self._model = None if model is None else Module(self, model, None)
        self._sequence = 0
        self._waiting: deque[_Request] = deque()
        self._lost: str | None = None
        """The reason why the connection is lost; None if it is not."""
        self._closed = False
        self._folder: tempfile.TemporaryDirectory[str] | None = None
        self._board: Board | None = None
        if isinstance(where, (str, Board)):
            self._folder = tempfile.TemporaryDirectory(prefix="dlc-session-")
            try:
                chosen = self._board = board(where) if isinstance(where, str) else where
                elf = build_session(model, chosen, Path(self._folder.name), memory=memory)
                self._transport: Transport = Emulated(chosen, elf, seconds)
            except BaseException:
                self._folder.cleanup()
                raise
        else:
            self._transport = where
        try:
            hello = self.transact(Command.HELLO, size=20)
            version, self.memory, self._frame, arguments, self._base = struct.unpack("<5I", hello)
            wanted = 0 if model is None else len(model.inputs) + len(model.outputs)
            if version != VERSION or arguments != wanted:
                raise RuntimeFailure(
                    "the firmware of the board does not match this session",
                    why=f"protocol {version}, {arguments} arguments; here {VERSION} and {wanted}",
                )
            if self._frame < 8:
                raise RuntimeFailure(f"frames of {self._frame} bytes are too small for a session")
        except BaseException:
            self.close()
            raise

    def __enter__(self) -> Session:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """End the board's program and close the transport. A second call has no effect."""
        if self._closed:
            return
        self._closed = True
        self._lost = self._lost or "it is closed"
        try:
            with suppress(RuntimeFailure, OSError):  # the board may have stopped already
                self._transport.send(frame(0, Command.END))
            self._transport.close()
        finally:
            if self._folder is not None:
                self._folder.cleanup()

    # Requests

    def request(
        self,
        command: Command,
        payload: bytes = b"",
        then: Callable[[bytes], None] | None = None,
        *,
        size: int = 0,
    ) -> None:
        """Send a request. Its answer is read by a later `sync`, or now if calls are not queued.

        `then` is called with the payload of the answer, which has `size` bytes.
        """
        if self._lost is not None:
            raise RuntimeFailure(
                f"{command.name} is not possible: the connection to the board is lost",
                why=self._lost,
                hint="open a session",
            )
        # The board reads a frame only after it has answered the one before. Limit the bytes in the buffers of
        # the line.
        while len(self._waiting) >= 8:
            self._next()
        self._sequence = (self._sequence + 1) & 0xFF
        with self._losing():
            self._transport.send(frame(self._sequence, command, payload))
        self._waiting.append(_Request(self._sequence, command, size, then))
        if not self.queued:
            self.sync()

    def transact(self, command: Command, payload: bytes = b"", *, size: int = 0) -> bytes:
        """Send a request, wait for all answers, and return the payload of `size` bytes of the last one."""
        found: list[bytes] = []
        self.request(command, payload, found.append, size=size)
        self.sync()
        return found[0]

    def sync(self) -> None:
        """Wait for all answers. Raises RuntimeFailure for the first error answer.

        If an answer is damaged or missing, the connection is lost, because later answers could not be
        assigned to requests. The session can then only be closed.
        """
        while self._waiting:
            self._next()

    def _next(self) -> None:
        refusal = self._answered()
        if refusal is not None:
            while self._waiting:  # requests that were sent later are answered as well
                self._answered()
            raise refusal

    def _answered(self) -> RuntimeFailure | None:
        """Receive the next answer. Returns the error if it is an error answer."""
        sequence, command, size, then = self._waiting.popleft()
        with self._losing():
            answer = read_answer(self._transport, size)
            if answer.sequence != sequence:
                raise RuntimeFailure(f"the board answers request {answer.sequence}, not {sequence}")
        if answer.status is not Status.OK:
            why = {
                Status.NO_MEMORY: f"its {getattr(self, 'memory', 0)} bytes for arrays are in use",
                Status.MODEL_FAILED: "the model returned an error",
            }.get(answer.status, answer.status.name.lower().replace("_", " "))
            return RuntimeFailure(f"the board refused {command.name}", why=why)
        if then is not None:
            then(answer.payload)
        return None

    @contextmanager
    def _losing(self) -> Iterator[None]:
        """Within this context an error loses the connection, also an interrupt in the middle of a frame."""
        try:
            yield
        except BaseException as error:
            self._waiting.clear()
            self._lost = str(error) or type(error).__name__
            if isinstance(error, OSError):
                raise RuntimeFailure("the connection to the board failed", why=str(error)) from error
            raise

    # Memory

    def alloc(self, size: int) -> int:
        """Allocate `size` bytes on the board, and return their address."""
        (address,) = struct.unpack("<I", self.transact(Command.ALLOC, struct.pack("<I", size), size=4))
        return int(address)

    def write(self, address: int, data: bytes) -> None:
        """Copy bytes to the board."""
        step = self._frame - 4
        for begin in range(0, len(data), step):
            target = struct.pack("<I", address + begin)
            self.request(Command.WRITE, target + data[begin : begin + step])

    def read(self, address: int, size: int) -> bytes:
        """Copy bytes from the board, after waiting for all earlier calls."""
        parts: list[bytes] = []
        for begin in range(0, size, self._frame):
            part = min(self._frame, size - begin)
            span = struct.pack("<II", address + begin, part)
            self.request(Command.READ, span, parts.append, size=part)
        self.sync()
        return b"".join(parts)

    def empty(self, shape: Sequence[int], type_: DTypeLike = "float32") -> BoardArray:
        """An uninitialised array on the board."""
        made = BoardArray(self, tuple(shape), dtype(type_).numpy, 0)
        made.address = self.alloc(made.nbytes)
        return made

    def array(self, values: Any) -> BoardArray:
        """Copy an array to the board."""
        given = contiguous(np.asarray(values))
        made = BoardArray(self, given.shape, given.dtype, self.alloc(given.nbytes))
        self.write(made.address, given.tobytes())
        return made

    def clear(self) -> None:
        """Free all memory. Existing arrays and loaded models must not be used any more."""
        self.request(Command.CLEAR)

    # Models

    def load(self, exe: Executable, where: str | Board | None = None) -> Module:
        """Load a model into the board's memory. If the session has a transport, `where` names the type of the
        board.

        Raises RuntimeFailure if there is not enough memory, and UnsupportedError if the compiler is not
        installed.
        """
        kind = self._board if where is None else board(where) if isinstance(where, str) else where
        if kind is None:
            raise UsageError("the type of the board is not known", hint="name it: load(exe, BOARD)")
        with tempfile.TemporaryDirectory(prefix="dlc-module-") as folder:
            size = len(build_module(exe, kind, Path(folder), self._base))
            address = self.alloc(size)
            try:
                self.write(address, build_module(exe, kind, Path(folder), self._base + address))
                self.sync()
            except DlcError:
                if self._lost is None:
                    self.request(Command.FREE, struct.pack("<I", address))
                raise
        return Module(self, exe, address)

    @property
    def model(self) -> Module:
        """The model of the firmware. Raises UsageError if it has none."""
        if self._model is None:
            raise UsageError("the firmware of this session has no model", hint="module = session.load(exe)")
        return self._model

    def call(self, inputs: Sequence[BoardArray], outputs: Sequence[BoardArray]) -> None:
        """Run the model of the firmware on arrays on the board (see `Module.call`)."""
        self.model.call(inputs, outputs)

    def run(self, *arrays: Any) -> Array | tuple[Array, ...]:
        """Run the model of the firmware on host arrays (see `Module.run`)."""
        return self.model.run(*arrays)

    def called(self, payload: bytes) -> None:
        """Read the cycles from the answer to a call."""
        _, low, high = struct.unpack("<3I", payload)
        ticks = low | high << 32
        self.cycles = ticks if self._board is None else emulated_cycles(self._board, ticks)


__all__ = ["BoardArray", "Module", "Session"]
