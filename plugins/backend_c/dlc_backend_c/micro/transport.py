"""Transports to a board: the emulator's serial port, or any pair of file descriptors."""

from __future__ import annotations

import contextlib
import shutil
import socket
import subprocess
import tempfile
import time
from pathlib import Path

from dlc_backend_c.boards import COUNTING, EMULATOR, Board
from dlc_core.diag import RuntimeFailure, UnsupportedError


class Emulated:
    """A firmware in the emulator, whose first serial port is a socket."""

    def __init__(self, board: Board, elf: Path, seconds: float = 60) -> None:
        if shutil.which(EMULATOR) is None:
            raise UnsupportedError(
                f"{board.name} cannot be emulated on this machine", hint="install qemu-system-arm"
            )
        self._seconds = seconds
        self._folder = tempfile.TemporaryDirectory(prefix="dlc-board-")
        socket_path = Path(self._folder.name, "serial")
        listening = socket.socket(socket.AF_UNIX)
        listening.bind(str(socket_path))
        listening.listen(1)
        listening.settimeout(0.1)
        command = [EMULATOR, "-M", board.name, "-display", "none", "-monitor", "none", "-semihosting"]
        command += [*COUNTING, "-serial", f"unix:{socket_path}", "-kernel", str(elf)]
        self._process = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE
        )
        try:
            self._socket = self._accepted(listening)
        except OSError:
            why = self._stderr()
            self.close()
            raise RuntimeFailure(f"the emulator of {board.name} does not start", why=why) from None
        finally:
            listening.close()
        self._socket.settimeout(seconds)

    def _accepted(self, listening: socket.socket) -> socket.socket:
        end = time.monotonic() + self._seconds
        while True:
            try:
                return listening.accept()[0]
            except TimeoutError:
                if self._process.poll() is not None or time.monotonic() > end:
                    raise

    def send(self, data: bytes) -> None:
        try:
            self._socket.sendall(data)
        except OSError as error:
            raise RuntimeFailure("the board does not receive", why=str(error)) from None

    def receive(self, size: int) -> bytes:
        parts = bytearray()
        while len(parts) < size:
            try:
                part = self._socket.recv(min(size - len(parts), 1 << 16))
            except TimeoutError:
                raise RuntimeFailure(f"the board did not answer in {self._seconds:g} seconds") from None
            except OSError as error:
                raise RuntimeFailure("the connection to the board failed", why=str(error)) from None
            if not part:
                raise RuntimeFailure("the board stopped in the middle of an answer", why=self._stderr())
            parts += part
        return bytes(parts)

    def _stderr(self) -> str:
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(1)
        if self._process.poll() is None or self._process.stderr is None:
            return "the emulator still runs"
        text = self._process.stderr.read().decode(errors="replace").strip()
        return text.splitlines()[-1] if text else f"the emulator ended with status {self._process.returncode}"

    def close(self) -> None:
        if hasattr(self, "_socket"):
            self._socket.close()
        end = time.monotonic() + 1
        while self._process.poll() is None and time.monotonic() < end:
            time.sleep(0.01)
        if self._process.poll() is None:
            self._process.kill()
            self._process.wait()
        if self._process.stderr is not None:
            self._process.stderr.close()
        self._folder.cleanup()


__all__ = ["Emulated"]
