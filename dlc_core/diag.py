"""Diagnostics: where something came from (`Span`) and every error the compiler raises (`DlcError` and its
kinds).

An error answers four questions: *what* happened, *where* (the model node or the line of Python), *why*, and
*what to do* (`hint`).  Callers catch `DlcError`; anything else that escapes is a defect of dlc itself.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING

from dlc_core.support.lazy import lazy
from dlc_core.support.record import record

if TYPE_CHECKING:
    import difflib
else:
    difflib = lazy("difflib")


@record(frozen=True, order=True)
class Span:
    """A place in the user's own source: a node of a model, or a line of a Python file.

    `source` is the model's or file's name, `name` the node's name (or the function's), `line` is 1-based and
    0 where there are no lines.
    """

    source: str
    name: str = ""
    op: str = ""
    line: int = 0
    column: int = 0

    def __str__(self) -> str:
        text = self.source
        if self.line:
            text += f":{self.line}" + (f":{self.column}" if self.column else "")
        if self.name or self.op:
            text += " node " if not self.line else " in "
            text += repr(self.name) if self.name else "(unnamed)"
        if self.op:
            text += f" ({self.op})"
        return text


class DlcError(Exception):
    """Base of every error dlc raises on purpose.

    `what` is one sentence; `spans` says where in the user's source; `why` gives the cause; `hint` what to do.
    """

    def __init__(
        self,
        what: str,
        *,
        spans: Iterable[Span] = (),
        why: str = "",
        hint: str = "",
        details: Iterable[str] = (),
    ) -> None:
        self.what = what
        self.spans = tuple(spans)
        self.why = why
        self.hint = hint
        self.details = tuple(details)
        super().__init__(what)

    def __str__(self) -> str:
        lines = [self.what]
        lines += [f"  at {span}" for span in self.spans]
        lines += [f"  {line}" for line in self.details]
        if self.why:
            lines.append(f"  because {self.why}")
        if self.hint:
            lines.append(f"  hint: {self.hint}")
        return "\n".join(lines)

    def at(self, spans: Iterable[Span]) -> DlcError:
        """Add spans to an error that was raised without them; return the error itself."""
        self.spans += tuple(span for span in spans if span not in self.spans)
        return self


class UsageError(DlcError):
    """A call of the public API with wrong arguments: unknown name, wrong shape, wrong dtype, bad option."""


class ModelError(DlcError):
    """A model file that is malformed, inconsistent or unsafe to read."""


class UnsupportedError(DlcError):
    """Something valid that this version, plugin or target cannot do; it names all nodes concerned."""


class TypeInferenceError(DlcError):
    """An operator's inputs or attributes do not fit its declaration."""


class VerifyError(DlcError):
    """An IR breaks a law of its grammar."""


class ScriptError(DlcError):
    """Script text that does not parse; the span has the line and the column."""


class ScheduleError(DlcError):
    """A schedule primitive that would change the program's meaning, or whose arguments do not fit."""


class PassError(DlcError):
    """A pass or pipeline text that is unknown, misconfigured or that failed."""


class PluginError(DlcError):
    """A plugin that is missing, broken, clashing, misspelt or of another API version."""


class TargetError(DlcError):
    """An unknown target, option or codegen, or a target that cannot do what is asked."""


class CodegenError(DlcError):
    """Generated code that the tool chain refuses, or a program a codegen cannot express."""


class ArtifactError(DlcError):
    """An artefact file that is damaged, of another schema version, or not an artefact at all."""


class RuntimeFailure(DlcError):
    """A device, a kernel or an allocation that failed while an executable ran."""


def problem_of(attempt: Callable[[], object]) -> str | None:
    """Why an attempt ends in an UnsupportedError, in a line with the remedy; None where it does not."""
    try:
        attempt()
    except UnsupportedError as error:
        return f"{error.what}: {error.hint}"
    return None


def similar(name: str, known: Iterable[str], most: int = 1) -> list[str]:
    """Those of the known names that may have been meant, the nearest first."""
    return difflib.get_close_matches(name, list(known), most)


def bytes_text(size: float) -> str:
    """A number of bytes in the unit that fits it."""
    for unit, bits in (("GiB", 30), ("MiB", 20), ("KiB", 10)):
        if size >= 1 << bits:
            return f"{size / (1 << bits):.4g} {unit}"
    return f"{size:.0f} bytes"


__all__ = [
    "ArtifactError",
    "CodegenError",
    "DlcError",
    "ModelError",
    "PassError",
    "PluginError",
    "RuntimeFailure",
    "ScheduleError",
    "ScriptError",
    "Span",
    "TargetError",
    "TypeInferenceError",
    "UnsupportedError",
    "UsageError",
    "VerifyError",
    "bytes_text",
    "problem_of",
    "similar",
]
