"""The rule for text in languages of the C family (see `confined`).

A compiler reads other files by includes, by line markers whose lines error messages quote, by directives of
the assembler in strings, and by options. So text may have a few directives only, include known standard
headers only, and name options of a list only. Text is refused where C and C++, or two standards of C, could
disagree about the extent of comments and strings.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

from dlc_core.support.record import record
from dlc_core.target.confined import refused

HEADERS = frozenset({
    "arm_acle.h", "arm_mve.h", "float.h", "limits.h", "math.h", "omp.h", "stdbool.h",
    "stddef.h", "stdint.h", "stdio.h", "stdlib.h", "string.h", "tgmath.h", "time.h",
})  # fmt: skip
"""The headers that generated C may include."""

OPTIONS = (
    r"-std=[a-z0-9]+|-O[0123s]|-Ofast|-Wno-[a-z0-9-]+|-w|-g0|-fopenmp|-ffp-contract=(?:fast|on|off)"
    r"|-f(?:no-)?(?:math-errno|trapping-math|fast-math|strict-aliasing|wrapv|unroll-loops|signed-zeros"
    r"|associative-math|reciprocal-math|finite-math-only|tree-vectorize|vect-cost-model|common)"
    r"|-m(?:arch|cpu|tune|fpu|float-abi)=[A-Za-z0-9.+_-]+|-mthumb|-mprefer-vector-width=\d+"
    r"|-m[a-km-z0-9][a-z0-9.-]*"  # no word that begins with "l": one of them takes options of another program
)
"""A pattern of the options of gcc-compatible compilers that generated code needs."""

INSTRUCTION = r"(?:(?!inc)[a-z][a-z0-9.]*(?: [\w%,# ]+)?)?"
"""A pattern of one instruction in inline assembly, without directives and names of files; or nothing."""

_RAW = re.compile(r"\b(?:u8|[uUL])?R\"")
_SPLICE = re.compile(r"\\[ \t]*\n")
_TRIGRAPH = re.compile(r"\?\?[=/'()!<>-]")
_TOKENS = re.compile(
    r"""[/"'](?:(?<=/)\*.*?\*/|(?<=/)/[^\n]*|(?<=")(?:\\.|[^"\\\n])*"|(?<!\w')(?<=')(?:\\.|[^'\\\n])*')""",
    re.DOTALL,
)
"""Comments, strings and characters. A quote after a digit is a separator in C++, which is not allowed."""
_DIRECTIVE = re.compile(r"^[ \t]*(?:#|%:)[ \t]*(.*)$", re.MULTILINE)
_INCLUDE = re.compile(r"include[ \t]*<([a-z_0-9]+\.h)>[ \t]*")
_ALLOWED = re.compile(
    r"(?:define|undef)[ \t]+(?!(?:_*asm_*|_*volatile_*)\b).*|(?:if|ifdef|ifndef|elif|else|endif|error)\b.*"
    r"|pragma (?:omp [\w ,():+]*|unroll[ \d]*|GCC (?:unroll \d+|ivdep)|[A-Z]+ EXTENSION \w+ : enable)[ \t]*|"
)
_SUFFIX = re.compile(r"\w##U?LL?\b(?![ \t]*#)")
"""A number that gets the suffix of its type. Other pasting of tokens could make any word."""
_ASM = r"\b_*asm_*\b"
_INLINE = re.compile(_ASM + r"(?: volatile)?[ \n]*\([ \n]*((?:\0\d+\0[ \n]*)+)(?=[:)])")
_WORDS = frozenset({
    "asm", "has_include", "has_include_next", "has_embed", "include_next", "import", "section", "alias",
    "ifunc", "symver", "weakref", "constructor", "destructor", "cleanup",
})  # fmt: skip
"""Words that are not allowed, also with underscores before and after them."""


@record(frozen=True)
class CText:
    """Text in a language of the C family, in ASCII.

    It includes `headers` only. `assembly` is a pattern for the text of inline assembly; by default there is
    none. `options` is a pattern of the compiler's options.
    """

    headers: frozenset[str] = HEADERS
    assembly: str = ""
    options: str = OPTIONS

    def check(self, code: bytes, options: Iterable[str] = ()) -> None:
        """See `SourceRule`."""
        for option in options:
            if not re.fullmatch(self.options, option):
                raise refused(f"the option {option[:60]!r} is not allowed")
        try:
            source = code.decode("ascii")
        except UnicodeDecodeError:
            raise refused("it is not ASCII text") from None
        if any(ord(char) < 32 and char not in "\t\n" for char in set(source)):
            raise refused("it has control characters")
        joined = _SPLICE.sub("", source)
        if ('R"' in joined and _RAW.search(joined)) or ("??" in joined and _TRIGRAPH.search(joined)):
            raise refused("it has a raw string or a trigraph")
        strings: list[str] = []

        def bare_token(found: re.Match[str]) -> str:
            first = found[0][0]
            if first == "/":
                return " "
            strings.append(found[0][1:-1])
            return f" \0{len(strings) - 1}\0 " if first == '"' else " 0 "

        bare = _TOKENS.sub(bare_token, self._without_headers(joined))
        if '"' in bare or "'" in bare:
            raise refused("a string does not end in its line")  # a compiler may see a comment elsewhere
        for line in _DIRECTIVE.findall(bare):
            if not _ALLOWED.fullmatch(line) or re.search(_ASM, line):
                raise refused(f"the directive #{line[:60]} is not allowed".replace("\0", ""))
        if self.assembly:
            bare = _INLINE.sub(lambda found: self._assembly(found, strings), bare)
        for word in {*re.findall(r"(?a:\w+)", bare)}:
            if word.strip("_") in _WORDS or word in ("_Pragma", "__pragma"):
                raise refused(f"{word} is not allowed")
        if "\\" in bare or "%:%:" in bare or ("##" in bare and "##" in _SUFFIX.sub("", bare)):
            raise refused("it pastes tokens, or has backslashes")

    def _assembly(self, found: re.Match[str], strings: list[str]) -> str:
        text = "".join(strings[int(number)] for number in re.findall(r"\0(\d+)\0", found[1]))
        if not re.fullmatch(self.assembly, text.replace("\\n", "\n").replace("\\t", "\t")):
            raise refused(f"the assembly {text[:60]!r} is not allowed")
        return "("

    def _without_headers(self, text: str) -> str:
        """The text without lines that include known headers. Other lines with that word are refused."""

        def kept(line: re.Match[str]) -> str:
            found = _INCLUDE.fullmatch(line[1])
            return "" if found is not None and found[1] in self.headers else line[0]

        return _DIRECTIVE.sub(kept, text)


__all__ = ["HEADERS", "INSTRUCTION", "OPTIONS", "CText"]
