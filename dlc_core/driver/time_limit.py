"""The time limit of compiles, the setting `max_seconds`."""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext

from dlc_core.cancel import CancelToken, current
from dlc_core.config import config
from dlc_core.diag import DlcError, LimitError


class _TimeLimit(CancelToken):
    """The token of a compile with a time limit."""

    def error(self) -> DlcError:
        """The error of a compile that takes too long; that of its caller's token if this is cancelled."""
        if not self.expired:
            return super().error()
        return LimitError(
            f"the compile takes more than {self.timeout} seconds",
            hint="raise the limit: DLC_MAX_SECONDS, or config.max_seconds; or simplify the model",
        )


def time_limit() -> AbstractContextManager[object]:
    """A context whose work is stopped after `config.max_seconds`. It has no effect inside another one."""
    seconds = config.max_seconds
    if seconds is None or isinstance(current(), _TimeLimit):
        return nullcontext()
    return _TimeLimit(timeout=seconds)


__all__ = ["time_limit"]
