"""Signals that stop `dlc tune` in order."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from types import FrameType

import typer
from rich.console import Console

SIGNALS = ("SIGINT", "SIGTERM", "SIGHUP")


@contextmanager
def stoppable() -> Iterator[list[signal.Signals]]:
    """Within this context SIGTERM and SIGHUP raise KeyboardInterrupt, as SIGINT (Ctrl-C) does. The signals
    that have come are in the list. At the end the exit code is 128 plus the number of the first one.

    Signals that are ignored, such as SIGHUP under nohup, stay ignored.
    """
    came: list[signal.Signals] = []

    def interrupt(number: int, _: FrameType | None) -> None:
        came.append(signal.Signals(number))
        raise KeyboardInterrupt

    known = [getattr(signal, name) for name in SIGNALS if hasattr(signal, name)]
    before = {each: signal.getsignal(each) for each in known}
    before = {each: handler for each, handler in before.items() if handler not in (signal.SIG_IGN, None)}
    for each in before:
        signal.signal(each, interrupt)
    try:
        yield came
    except (KeyboardInterrupt, OSError):  # a terminal that has hung up takes no output
        if not came:
            raise
        with suppress(OSError):
            Console(stderr=True).print(f"stopped by {came[-1].name}", highlight=False)
    finally:
        for each, handler in before.items():
            signal.signal(each, handler)
    if came:
        raise typer.Exit(128 + came[0])


__all__ = ["stoppable"]
