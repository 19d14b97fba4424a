"""Diagnostics: where something came from (`Span`) and every error the compiler raises (`DlcError` and its
kinds).

An error answers four questions: *what* happened, *where* (the model node or the line of Python), *why*, and
*what to do* (`hint`).  Callers catch `DlcError`; anything else that escapes is a defect of dlc itself.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING

from dlc_core.support.lazy import lazy
from dlc_core.support.record import record

if TYPE_CHECKING:
    import difflib
else:
    difflib = lazy("difflib")


@record(frozen=True, order=True)
class Span:
    """A position in the user's source: a node of a model, or a line of a Python file.

    `source` is the name of the model or file, `name` that of the node or function. `line` is 1-based; 0 means
    that there are no lines.
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
    """Base of all errors that dlc raises on purpose.

    `what` is one sentence. `spans` are positions in the user's source. `why` is the cause, `hint` the remedy.
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
        return _printable("\n".join(lines))

    def at(self, spans: Iterable[Span]) -> DlcError:
        """Add spans to an error that was raised without them; return the error itself."""
        self.spans += tuple(span for span in spans if span not in self.spans)
        return self


def _printable(text: str) -> str:
    """A text whose characters besides line ends can be printed: others, which come from names in files, may
    control a terminal.
    """
    if text.replace("\n", "").isprintable():
        return text
    escaped = (
        char if char == "\n" or char.isprintable() else char.encode("unicode_escape").decode()
        for char in text
    )
    return "".join(escaped)


class UsageError(DlcError):
    """A call of the public API with wrong arguments: unknown name, wrong shape, wrong dtype, bad option."""


class ForeignError(UsageError):
    """A foreign function that is missing, or a call that does not fit its declaration."""


class ModelError(DlcError):
    """A model file that is malformed, inconsistent or unsafe to read."""


class UnsupportedError(DlcError):
    """A valid input that this version, plugin or target does not support. It names all nodes concerned."""


class TypeInferenceError(DlcError):
    """An operator's inputs or attributes do not fit its declaration."""


class VerifyError(DlcError):
    """A program that violates a rule of its IR."""


class ScriptError(DlcError):
    """Script text that does not parse; the span has the line and the column."""


class ScheduleError(DlcError):
    """A schedule primitive with wrong arguments, or one that would change the program's results."""


class PassError(DlcError):
    """A pass or pipeline text that is unknown, misconfigured or that failed."""


class PluginError(DlcError):
    """A plugin that is missing, broken, misspelt, in conflict with another, or of another API version."""


class TargetError(DlcError):
    """An unknown target, option or code generator, or a target that does not support the program."""


class CodegenError(DlcError):
    """Generated code that the tool chain refuses, or a program that a code generator does not support."""


class ArtifactError(DlcError):
    """An artefact file that is damaged, of another schema version, or not an artefact at all."""


class UntrustedError(ArtifactError):
    """A file that can run code, and nobody vouches for it: an artefact that neither this user nor the holder
    of a trusted key has written, or a model in a format whose readers run code.
    """


class RuntimeFailure(DlcError):
    """A device, a kernel or an allocation that failed while an executable ran."""


class CancelledError(DlcError):
    """A compile or a call that was asked to stop, or whose time was over. Its results are lost; see
    `dlc_core.cancel`."""


class LimitError(DlcError):
    """A model or a call that exceeds a limit of the configuration. It names the limit and its setting."""


def problem_of(attempt: Callable[[], object]) -> str | None:
    """The UnsupportedError of an attempt as one line with the remedy; None if it raises none."""
    try:
        attempt()
    except UnsupportedError as error:
        return f"{error.what}: {error.hint}"
    return None


def similar(name: str, known: Iterable[str], limit: int = 1) -> list[str]:
    """Known names that are similar to a misspelt one, the closest first."""
    return difflib.get_close_matches(name, list(known), limit)


def first_names(names: Sequence[str], limit: int) -> str:
    """The first names, and the number of the others, as text."""
    rest = len(names) - limit
    return ", ".join(names[:limit]) + (f" and {rest} more" if rest > 0 else "")


def seconds_text(seconds: float) -> str:
    """A time with a suitable unit."""
    for unit, size in (("s", 1.0), ("ms", 1e-3), ("us", 1e-6)):
        if seconds >= size:
            return f"{seconds / size:.3g} {unit}"
    return f"{seconds / 1e-9:.3g} ns"


def bytes_text(size: float) -> str:
    """A number of bytes with a suitable unit."""
    for unit, bits in (("GiB", 30), ("MiB", 20), ("KiB", 10)):
        if size >= 1 << bits:
            return f"{size / (1 << bits):.4g} {unit}"
    return f"{size:.0f} bytes"


__all__ = [
    "ArtifactError",
    "CancelledError",
    "CodegenError",
    "DlcError",
    "LimitError",
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
    "UntrustedError",
    "UsageError",
    "VerifyError",
    "bytes_text",
    "first_names",
    "problem_of",
    "seconds_text",
    "similar",
]
