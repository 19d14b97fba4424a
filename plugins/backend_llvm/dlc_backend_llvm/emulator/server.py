"""The emulated process: a C program that executes requests from a pipe.

A request consists of six 64-bit integers and data. An answer consists of one integer and data.
"""

from __future__ import annotations

import atexit
import contextlib
import shutil
import signal
import struct
import subprocess
import tempfile
import threading
import weakref
from collections import deque
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from dlc_backend_llvm.cpu import HostCpu
from dlc_backend_llvm.emulator.qemu import emulator, linked_for
from dlc_backend_llvm.engine import compile_ir
from dlc_backend_llvm.linking import find_compiler, link_shared
from dlc_backend_llvm.pool_text import pool_ir
from dlc_core.diag import CodegenError, RuntimeFailure

_ALLOC, _FREE, _WRITE, _READ, _LOAD, _SYMBOL, _CALL, _MAP, _UNMAP, _PROTECT = range(1, 11)
_REQUEST = struct.Struct("<6q")
_ANSWER = struct.Struct("<q")

_PROGRAM = r"""
#include <dlfcn.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

typedef int32_t entry_t(void **, int64_t *, int32_t);

static void get(void *to, int64_t size) {
  for (char *at = to; size > 0;) {
    ssize_t got = read(0, at, size);
    if (got <= 0) _exit(0);
    at += got;
    size -= got;
  }
}

static void put(const void *from, int64_t size) {
  for (const char *at = from; size > 0;) {
    ssize_t put = write(1, at, size);
    if (put <= 0) _exit(1);
    at += put;
    size -= put;
  }
}

static void answer(int64_t value) { put(&value, sizeof value); }

static char *text(int64_t size) {
  char *made = malloc(size + 1);
  get(made, size);
  made[size] = 0;
  return made;
}

int main(void) {
  for (;;) {
    int64_t r[6];
    get(r, sizeof r);
    if (r[0] == 1) {
      void *memory = 0;
      answer(posix_memalign(&memory, r[2], r[1]) ? 0 : (int64_t)(intptr_t)memory);
    } else if (r[0] == 2) {
      free((void *)(intptr_t)r[1]);
      answer(0);
    } else if (r[0] == 3) {
      get((void *)(intptr_t)r[1], r[2]);
      answer(0);
    } else if (r[0] == 4) {
      answer(0);
      put((void *)(intptr_t)r[1], r[2]);
    } else if (r[0] == 5) {
      char *path = text(r[1]);
      void *library = dlopen(path, RTLD_NOW | (r[2] ? RTLD_GLOBAL : RTLD_LOCAL));
      answer((int64_t)(intptr_t)library);
      if (!library) {
        const char *why = dlerror();
        answer(strlen(why));
        put(why, strlen(why));
      }
      free(path);
    } else if (r[0] == 6) {
      char *name = text(r[2]);
      answer((int64_t)(intptr_t)dlsym((void *)(intptr_t)r[1], name));
      free(name);
    } else if (r[0] == 7) {
      int64_t *words = malloc((r[2] + r[3]) * 8 + 8);
      void **buffers = malloc(r[2] * sizeof *buffers + 8);
      get(words, (r[2] + r[3]) * 8);
      for (int64_t i = 0; i < r[2]; ++i) buffers[i] = (void *)(intptr_t)words[i];
      entry_t *entry = (entry_t *)(intptr_t)r[1];
      answer(entry(buffers, words + r[2], (int32_t)r[4]));
      free(buffers);
      free(words);
    } else if (r[0] == 8) {
      void *memory = mmap(0, r[1], PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
      answer(memory == MAP_FAILED ? 0 : (int64_t)(intptr_t)memory);
    } else if (r[0] == 9) {
      answer(munmap((void *)(intptr_t)r[1], r[2]));
    } else if (r[0] == 10) {
      answer(mprotect((void *)(intptr_t)r[1], r[2], r[3] ? PROT_READ | PROT_WRITE : PROT_NONE));
    }
  }
}
"""


class Server:
    """A process of an emulated machine. Threads may call methods concurrently; requests are executed in
    sequence.

    Raises UnsupportedError if the emulator or a compiler is missing, and RuntimeFailure if the process has
    ended.
    """

    def __init__(self, cpu: HostCpu) -> None:
        self.cpu = cpu
        self._lock = threading.RLock()
        self._freed: deque[tuple[int, ...]] = deque()
        self._count = 0
        self._folder = Path(tempfile.mkdtemp(prefix="dlc-emulator-"))
        self._stderr = self._folder / "said"
        try:
            command = [*emulator(cpu), str(self._build())]
            with self._stderr.open("wb") as messages:
                self._process = subprocess.Popen(
                    command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=messages, bufsize=0
                )
        except BaseException:
            shutil.rmtree(self._folder, ignore_errors=True)
            raise
        self._finalizer = weakref.finalize(self, _end, self._process, self._folder)
        atexit.register(self._finalizer)
        pool = compile_ir(pool_ir(cpu.triple), cpu.triple, cpu.cpu, cpu.features)
        self.load(pool, everywhere=True)

    @property
    def alive(self) -> bool:
        """Whether the process is running."""
        return self._process.poll() is None

    def alloc(self, size: int, align: int) -> int:
        """Allocate memory and return its address."""
        address = self._request(_ALLOC, max(size, 1), max(align, 64))
        if not address:
            raise RuntimeFailure(f"the emulated process cannot allocate {size} bytes")
        return address

    def free(self, address: int) -> None:
        """Free memory with the next request.

        The garbage collector may free an array in a thread that is inside a request.
        """
        self._freed.append((_FREE, address))

    def map(self, size: int) -> int:
        """Map new pages and return their address."""
        address = self._request(_MAP, size)
        if not address:
            raise RuntimeFailure(f"the emulated process cannot allocate {size} bytes")
        return address

    def unmap(self, address: int, size: int) -> None:
        """Unmap pages with the next request, as `free` does."""
        self._freed.append((_UNMAP, address, size))

    def protect(self, address: int, size: int, touched: bool) -> None:
        """Allow or forbid accesses of pages. Raises RuntimeFailure if the system refuses."""
        if size and self._request(_PROTECT, address, size, touched):
            raise RuntimeFailure("the emulated process cannot protect pages")

    def write(self, address: int, data: memoryview) -> None:
        self._request(_WRITE, address, data.nbytes, data=data)

    def read(self, address: int, size: int) -> bytes:
        with self._lock:
            self._request(_READ, address, size)
            return self._get(size)

    def load(self, code: bytes, *, everywhere: bool = False) -> int:
        """Link an object into a library and load it. With `everywhere`, later libraries may refer to its
        symbols.
        """
        with self._lock:
            self._count += 1
            path = self._folder / f"code{self._count}.so"
            link_shared([code], path, triple=linked_for(self.cpu), libraries=("m",))
            name = str(path).encode()
            library = self._request(_LOAD, len(name), everywhere, data=memoryview(name))
            if not library:
                why = self._get(_ANSWER.unpack(self._get(8))[0]).decode("utf-8", "replace")
                raise CodegenError("the emulated process cannot load the code", why=why)
            path.unlink()
            return library

    def symbol(self, library: int, name: str) -> int:
        """The address of a symbol of a library, or 0."""
        data = name.encode()
        return self._request(_SYMBOL, library, len(data), data=memoryview(data))

    def call(self, entry: int, buffers: Sequence[int], scalars: Sequence[int], threads: int) -> int:
        """Call an entry point and return its status."""
        count = len(buffers) + len(scalars)
        data = struct.pack(f"<{count}q", *buffers, *scalars)
        return self._request(_CALL, entry, len(buffers), len(scalars), threads, data=memoryview(data))

    def close(self) -> None:
        """End the process."""
        self._finalizer()

    # The pipe

    def _request(self, *words: int, data: memoryview | None = None) -> int:
        with self._lock:
            while self._freed:
                self._exchange(*self._freed.popleft())
            return self._exchange(*words, data=data)

    def _exchange(self, *words: int, data: memoryview | None = None) -> int:
        """Send a request and return its answer."""
        with self._lock:
            request = _REQUEST.pack(*words, *([0] * (6 - len(words))))
            try:
                self._put(memoryview(request))
                if data is not None:
                    self._put(data.cast("B") if data.nbytes else data)
            except OSError:
                raise self._ended() from None
            return int(_ANSWER.unpack(self._get(8))[0])

    def _put(self, data: memoryview) -> None:
        pipe: Any = self._process.stdin
        while data.nbytes:
            data = data[pipe.write(data) :]

    def _get(self, size: int) -> bytes:
        pipe: Any = self._process.stdout
        parts = []
        while size:
            part = pipe.read(size)
            if not part:
                raise self._ended()
            parts.append(part)
            size -= len(part)
        return b"".join(parts)

    def _ended(self) -> RuntimeFailure:
        status = self._process.wait()
        how = f"ended with status {status}"
        with contextlib.suppress(ValueError):
            how = f"died of {signal.Signals(-status).name}"
        messages = self._stderr.read_text("utf-8", "replace").split("\n")
        return RuntimeFailure(
            f"the emulated process for {self.cpu.triple} {how}",
            details=[line for line in messages if line][-5:],
            hint="an illegal instruction is one that the emulated processor does not have",
        )

    def _build(self) -> Path:
        source, program = self._folder / "server.c", self._folder / "server"
        source.write_text(_PROGRAM)
        compiler = find_compiler(linked_for(self.cpu))
        words = [*compiler, "-O1", "-o", str(program), str(source), "-ldl", "-lpthread"]
        done = subprocess.run(words, capture_output=True, text=True, check=False)
        if done.returncode:
            raise CodegenError(
                "the emulated process cannot be built", why=f"{compiler[0]} said", details=[done.stderr]
            )
        return program


def _end(process: subprocess.Popen[bytes], folder: Path) -> None:
    for pipe in (process.stdin, process.stdout):
        if pipe is not None:
            pipe.close()
    try:
        process.wait(timeout=5)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
    shutil.rmtree(folder, ignore_errors=True)


__all__ = ["Server"]
