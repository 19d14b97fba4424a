"""Calls in steps, as graph executors make them: set the inputs, run, get the outputs.

    session = exe.session()
    session.set_input("x", x)
    session.run()
    y = session.get_output(0)

A session keeps the inputs of later runs and the outputs of the last one. So it has state, and threads must
not share it; the executable has none, and its sessions are independent.
"""

from __future__ import annotations

import threading
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from dlc_core.diag import UsageError
from dlc_core.runtime.call.arrays import NDArray, as_host, has_memory
from dlc_core.runtime.interface.signature import Signature, Value

Key = int | str
"""An input or output: its number, from 0, or its name."""


class Session:
    """The inputs and outputs of calls of one executable. `exe.session()` makes one."""

    def __init__(self, signature: Signature, call: Callable[[Sequence[Any]], Sequence[Any]]) -> None:
        self.signature = signature
        self._call = call
        self._inputs: list[Any] = [None] * len(signature.inputs)
        self._outputs: Sequence[Any] | None = None

    def set_input(self, key: Key | None = None, value: Any = None, /, **named: Any) -> None:
        """Set one input, `set_input("x", array)` or `set_input(0, array)`, or several, `set_input(x=array)`.

        The array is copied, unless it is in a device's memory. It stays set for later runs. Raises UsageError
        for an unknown name or number, and for a wrong dtype or rank; `run` checks the shapes, because dims
        may depend on each other.
        """
        given = [] if key is None else [(self._index(self.signature.inputs, key, "input"), value)]
        given += [(self._index(self.signature.inputs, name, "input"), each) for name, each in named.items()]
        checked = [(index, self._checked(index, each)) for index, each in given]
        for index, array in checked:
            self._inputs[index] = array

    def get_input(self, key: Key) -> Any:
        """The array that is set for an input; raises UsageError if there is none."""
        index = self._index(self.signature.inputs, key, "input")
        if self._inputs[index] is None:
            raise UsageError(f"input {self.signature.inputs[index].name!r} is not set")
        return self._inputs[index]

    def run(self) -> dict[str, Any]:
        """Run, and return all outputs by name. Raises UsageError, before anything runs, for inputs that are
        not set or whose shapes do not fit.
        """
        missing = [v.name for v, a in zip(self.signature.inputs, self._inputs, strict=True) if a is None]
        if missing:
            raise UsageError(f"input {missing[0]!r} is not set", hint=f"set_input: {', '.join(missing)}")
        self._outputs = None  # an error leaves no outputs of an earlier run
        self._outputs = self._call(self._inputs)
        return dict(zip((value.name for value in self.signature.outputs), self._outputs, strict=True))

    def get_output(self, key: Key = 0, out: Any = None) -> Any:
        """An output of the last run, by number or name; with `out` it is copied there, and `out` is returned.

        Later runs do not change the arrays that it returns. Raises UsageError before the first run, and for
        an `out` of another shape or dtype, or that cannot be written.
        """
        index = self._index(self.signature.outputs, key, "output")
        if self._outputs is None:
            raise UsageError("there are no outputs yet", hint="call run() first")
        found = self._outputs[index]
        if out is None:
            return found
        array, name = as_host(found, "output"), self.signature.outputs[index].name
        target = as_host(out, f"output {name!r}", self.signature.outputs[index].dtype)
        if target.shape != array.shape or target.dtype != array.dtype:
            given, needed = (f"{a.dtype}{list(a.shape)}" for a in (target, array))
            raise UsageError(f"output {name!r} is {given}, {needed} is needed")
        if not (target.flags.writeable and has_memory(out)):
            raise UsageError(f"output {name!r} cannot be written", hint="give a writeable array")
        target[...] = array
        return out

    def _checked(self, index: int, array: Any) -> Any:
        """A copy of an input's array."""
        value = self.signature.inputs[index]
        if isinstance(array, NDArray):
            return array
        host = as_host(array, f"input {value.name!r}", value.dtype)
        self.signature.check_input(value, host)
        return np.array(host, order="C")

    @staticmethod
    def _index(values: Sequence[Value], key: Key, what: str) -> int:
        """The position of an input or output. Raises UsageError for an unknown name or number."""
        names = [value.name for value in values]
        if isinstance(key, str) and key in names:
            return names.index(key)
        if isinstance(key, int) and not isinstance(key, bool) and 0 <= key < len(names):
            return key
        raise UsageError(f"there is no {what} {key!r}", hint=f"{what}s: {', '.join(names) or 'none'}")


_SESSIONS = "_sessions"
"""The attribute with the sessions of threads."""


class InSteps(ABC):
    """Base of executables: their sessions."""

    signature: Signature

    @abstractmethod
    def _call(self, arrays: Sequence[Any]) -> Sequence[Any]:
        """Run on arrays in the order of the inputs, and return all outputs."""

    def session(self) -> Session:
        """A call in steps: `set_input`, `run`, `get_output`. It has state; use one in each thread."""
        return Session(self.signature, self._call)

    def set_input(self, key: Key | None = None, value: Any = None, /, **named: Any) -> None:
        """`set_input` of this thread's own session. So threads that call at once do not see each other's
        inputs and outputs.
        """
        self._own_session.set_input(key, value, **named)

    def get_output(self, key: Key = 0, out: Any = None) -> Any:
        """An output of the last `run()` of this thread (see `Session.get_output`)."""
        return self._own_session.get_output(key, out)

    @property
    def _own_session(self) -> Session:
        own = self.__dict__.setdefault(_SESSIONS, threading.local())  # atomic
        if not hasattr(own, "session"):
            own.session = self.session()
        found: Session = own.session
        return found

    def _forget_sessions(self) -> None:
        """For a copy, which has sessions of its own."""
        self.__dict__.pop(_SESSIONS, None)


__all__ = ["InSteps", "Session"]
