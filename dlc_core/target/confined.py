"""Source text of artefacts, before a compiler or linker of this machine reads it.

A compiler that reads hostile text can be made to read other files. So there is one rule for all formats that
a compiler reads. Devices and code generators declare these formats, with the contents that are allowed:

    source_formats = {"npu-c": CText()}           see `c_text`

`check_sources` is called when a file is opened, before anything else sees the artefact. Nothing is compiled
unless the caller asks for it. Text of a file (an artefact whose `reading` is `CONFINED`) must pass the rule
of its format, and messages of compilers about it are not shown (`quiet`).
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, Protocol

from dlc_core.diag import ArtifactError, CodegenError
from dlc_core.support.record import record
from dlc_core.target.artifact import CONFINED, FLAGS, REFUSED, Artifact


class SourceRule(Protocol):
    """The contents that are allowed in artefacts of a format which a compiler or linker reads."""

    def check(self, code: bytes, options: Iterable[str]) -> None:
        """Raise ArtifactError for code, or for options of the compiler, by which it could read or run another
        file.
        """
        ...


@record(frozen=True)
class PlainText:
    """Text in another language, in which a pattern may not occur."""

    forbidden: str

    def check(self, code: bytes, options: Iterable[str] = ()) -> None:
        """See `SourceRule`."""
        _no_options(options)
        found = re.search(self.forbidden, code.decode("latin-1"), re.MULTILINE)
        if found is not None:
            raise refused(f"{found[0][:60]!r} is not allowed")


@record(frozen=True)
class Binary:
    """An object file for a linker, which begins with `magic`. Linkers take other files as scripts."""

    magic: bytes

    def check(self, code: bytes, options: Iterable[str] = ()) -> None:
        """See `SourceRule`."""
        _no_options(options)
        if not code.startswith(self.magic):
            raise refused("it is not an object file of this format")


def check_sources(artifact: Artifact, *parties: Any) -> None:
    """Raise ArtifactError if a compiler of this machine may not read an artefact. `parties` are its device
    and its code generator: the rules of all that list its format as `source_formats` apply.
    """
    for party in parties:
        rules: Mapping[str, SourceRule] = getattr(party, "source_formats", {})
        if artifact.format in rules:
            check_source(artifact, rules[artifact.format])


def check_source(artifact: Artifact, rule: SourceRule, text: str | None = None) -> None:
    """Raise ArtifactError if a compiler of this machine may not read the code of an artefact, or a `text` of
    it.
    """
    if artifact.reading == REFUSED:
        raise ArtifactError(
            f"the artefact has the format {artifact.format!r}, which a compiler of this machine would read",
            why="nothing of a file reaches a compiler unless the caller allows it",
            hint="dlc.open(path, compile_source=True), or --compile-source, allows it",
        )
    if artifact.reading == CONFINED:
        options = artifact.metadata.get(FLAGS, ())
        if not isinstance(options, (list, tuple)) or not all(isinstance(each, str) for each in options):
            raise refused("its options are malformed")
        symbols = [symbol for symbol in artifact.symbols if not (symbol.isascii() and symbol.isidentifier())]
        if symbols:
            raise refused(f"{symbols[0][:60]!r} is not a symbol")
        rule.check(artifact.code if text is None else text.encode(), options)


@contextmanager
def quiet(artifact: Artifact) -> Iterator[None]:
    """Within this context, compile errors about text of a file are without the compiler's messages, which may
    quote other files.
    """
    try:
        yield
    except CodegenError as error:
        if artifact.reading != CONFINED:
            raise
        why = "its messages about text of a file are not shown, because they could quote other files"
        raise CodegenError(error.what, why=why, hint="compile the model again") from None


def _no_options(options: Iterable[str]) -> None:
    for option in options:
        raise refused(f"the option {option[:60]!r} is not allowed")


def refused(why: str) -> ArtifactError:
    """The error for text that a compiler may not read."""
    return ArtifactError(
        "the source text of the artefact is not given to a compiler",
        why=why,
        hint="compile the model again, for machine code or on this machine",
    )


__all__ = [
    "Binary",
    "PlainText",
    "SourceRule",
    "check_source",
    "check_sources",
    "quiet",
    "refused",
]
