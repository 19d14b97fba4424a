"""Source text of files, before a C compiler reads it.

A compiler that reads hostile text can be made to read other files: by includes, by line markers whose lines
error messages quote, by directives of the assembler in strings, by options. So text of a file (an artefact
whose `reading` is `CONFINED`) may have a few directives only, include known standard headers only, and name
options of a list only.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any

from dlc_core.diag import ArtifactError
from dlc_core.target import Artifact
from dlc_core.target.artifact import CONFINED, check_readable

HEADERS = frozenset({
    "arm_acle.h", "arm_mve.h", "float.h", "limits.h", "math.h", "omp.h", "stdbool.h",
    "stddef.h", "stdint.h", "stdio.h", "stdlib.h", "string.h", "tgmath.h", "time.h",
})  # fmt: skip
"""The headers that generated code may include."""

_RAW = re.compile(r"\b(?:u8|[uUL])?R\"")
_SPLICE = re.compile(r"\\[ \t]*\n")
_TOKENS = re.compile(
    r"""(?P<comment>/\*.*?\*/|//[^\n]*)|(?P<text>"(?:\\.|[^"\\\n])*")|(?P<char>'(?:\\.|[^'\\\n])*')""",
    re.DOTALL,
)
_DIRECTIVE = re.compile(r"^[ \t\v\f]*(?:#|%:)[ \t\v\f]*(.*)$", re.MULTILINE)
_INCLUDE = re.compile(r"include[ \t]*<([a-z_0-9]+\.h)>[ \t]*")
_ALLOWED = re.compile(
    r"(?:define|undef|if|ifdef|ifndef|elif|else|endif)\b.*|error\b.*"
    r"|pragma (?:omp [\w ,():+]*|unroll[ \d]*|GCC (?:unroll \d+|ivdep)|[A-Z]+ EXTENSION \w+ : enable)[ \t]*|"
)
_WORDS = re.compile(
    r"\b(?:_Pragma|__pragma|__has_include\w*|__has_embed|include_next|import|asm|__asm|__asm__|section|alias"
    r"|ifunc|symver|weakref|constructor|destructor|cleanup)\b|##|%:%:|\?\?[=/'()!<>-]"
)
_OPTION = re.compile(
    r"-std=[a-z0-9]+|-O[0123s]|-Ofast|-Wno-[a-z0-9-]+|-w|-g0|-fopenmp|-ffp-contract=(?:fast|on|off)"
    r"|-f(?:no-)?(?:math-errno|trapping-math|fast-math|strict-aliasing|wrapv|unroll-loops|signed-zeros"
    r"|associative-math|reciprocal-math|finite-math-only|tree-vectorize|vect-cost-model|common)"
    r"|-m(?:arch|cpu|tune|fpu|float-abi)=[A-Za-z0-9.+_-]+|-mthumb|-mprefer-vector-width=\d+"
    r"|-m[a-km-z0-9][a-z0-9.-]*"  # no word that begins with "l": one of them takes options of another program
)


def check_confined(device: Any, artifact: Artifact) -> None:
    """Raise ArtifactError if a compiler of this machine may not read an artefact for a device that compiles
    its format.
    """
    if artifact.format in getattr(device, "source_formats", ()):
        check_readable(artifact)
        if artifact.reading == CONFINED:
            check_source(artifact.code)


def check_source(text: bytes) -> None:
    """Raise ArtifactError for text that could make a compiler read another file."""
    try:
        source = text.decode("ascii")
    except UnicodeDecodeError:
        raise _refused("it is not ASCII text") from None
    if any(ord(char) < 32 and char not in "\t\n\v\f" for char in source):
        raise _refused("it has control characters")
    joined = _SPLICE.sub("", source)
    if _RAW.search(joined):
        raise _refused("it has a raw string")
    bare = _TOKENS.sub(lambda found: " " if found["comment"] else " 0 ", _without_headers(joined))
    if '"' in bare or "'" in bare:  # a compiler may see a comment elsewhere
        raise _refused("a string does not end in its line")
    for line in _DIRECTIVE.findall(bare):
        if not _ALLOWED.fullmatch(line):
            raise _refused(f"the directive #{line[:60]} is not allowed")
    word = _WORDS.search(bare)
    if word is not None:
        raise _refused(f"{word[0]} is not allowed")


def check_options(options: Iterable[str]) -> None:
    """Raise ArtifactError for options of a compiler that could make it read or run another file."""
    for option in options:
        if not _OPTION.fullmatch(option):
            raise _refused(f"the option {option[:60]!r} is not allowed")


def _without_headers(text: str) -> str:
    """The text without lines that include known headers. Other lines with that word are refused."""

    def kept(line: re.Match[str]) -> str:
        found = _INCLUDE.fullmatch(line[1])
        return "" if found is not None and found[1] in HEADERS else line[0]

    return _DIRECTIVE.sub(kept, text)


def _refused(why: str) -> ArtifactError:
    return ArtifactError(
        "the source text of the artefact is not given to a compiler",
        why=why,
        hint="compile the model again, for machine code or on this machine",
    )


__all__ = ["HEADERS", "check_confined", "check_options", "check_source"]
