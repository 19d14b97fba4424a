"""The wording of docs, docstrings, comments, messages and commit subjects: `python -m tests.wording`.

Three rules, each a function from text to complaints, so that tests can try it on a text that breaks it:

- No phrase of the table "Instead of" in `docs/glossary.md`; no docstring that begins with "What" or "Who".
- No line of a page is longer than 110 columns; tables and code blocks may be.
- Commit subjects are `area: verb object` in at most 72 characters.
"""

from __future__ import annotations

import ast
import io
import re
import subprocess
import sys
import tokenize
from collections.abc import Iterator, Mapping
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
GLOSSARY = "docs/glossary.md"
EXEMPT = (GLOSSARY, "tests/test_wording.py")
"""They quote the phrases."""
COLUMNS = 110
SUBJECT = 72
FIRST_COMMIT = "c6fac986"
"""Subjects are checked of the commits after this one."""

_FENCED = re.compile(r"^```.*?^```", re.DOTALL | re.MULTILINE)
_SUBJECT = re.compile(r"[a-z][a-z0-9_.+/, -]*: [a-z].*[^.]")


def banned(glossary: str) -> Mapping[str, str]:
    """The phrases that the glossary refuses, each with what to write instead."""
    _, _, table = glossary.partition("## Instead of")
    found: dict[str, str] = {}
    for line in table.splitlines():
        cells = [cell.strip() for cell in line.strip().strip("|").split("|")]
        if len(cells) == 2 and cells[0] not in ("not", "---"):
            found.update((phrase.strip(), cells[1]) for phrase in cells[0].split(","))
    return found


def pattern_of(phrases: Mapping[str, str]) -> re.Pattern[str]:
    """One pattern for all phrases; a space in a phrase matches line ends and comment signs too."""
    words = (r"[\s#]+".join(map(_word, phrase.split())) for phrase in sorted(phrases, key=len, reverse=True))
    return re.compile(r"(?<![\w./=\"'`{%-])(" + "|".join(words) + r")(?![\w=(-])", re.IGNORECASE)


def _word(word: str) -> str:
    return re.escape(word).replace(r"\*", r"\w*")


def prose_of(source: str) -> Iterator[tuple[int, str]]:
    """Comments and texts of Python source, with the line in which each begins; comments in a row are one."""
    comment: list[str] = []
    begin = last = 0
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type == tokenize.COMMENT:
            if comment and token.start[0] != last + 1:
                yield begin, "\n".join(comment)
                comment = []
            begin = begin if comment else token.start[0]
            comment.append(token.string)
            last = token.start[0]
        elif token.type == tokenize.STRING and " " in token.string:
            text = token.string
            if "f" in text[: text.index(text[-1])].lower():  # of an f-string its expressions are code
                text = re.sub(r"\{[^{}]*\}", lambda code: re.sub(r"[^\n]", " ", code.group()), text)
            yield token.start[0], text
    if comment:
        yield begin, "\n".join(comment)


def phrases_in(name: str, text: str, phrases: Mapping[str, str], pattern: re.Pattern[str]) -> Iterator[str]:
    """Complaints about phrases of a Python file or a page."""
    parts = prose_of(text) if name.endswith(".py") else [(1, _without_code(text))]
    for line, part in parts:
        for found in pattern.finditer(part):
            said = " ".join(re.sub("[#]", " ", found.group(1)).split())
            at = line + part.count("\n", 0, found.start())
            yield f"{name}:{at}: {said!r}: write {phrases.get(said.lower(), 'a term of the glossary')!r}"


def openings_in(name: str, text: str) -> Iterator[str]:
    """Complaints about docstrings that begin with a question word instead of a noun or a verb."""
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            said = ast.get_docstring(node) or ""
            if re.match(r"(What|Who|Whose|Whom)\b", said):
                line = getattr(node, "lineno", 1)
                yield f"{name}:{line}: a docstring begins with {said.split()[0]!r}: say the thing itself"


def _without_code(page: str) -> str:
    """A page whose code blocks and code spans are blank, line for line."""
    page = re.sub(
        r"^```.*?^```", lambda m: re.sub(r"[^\n]", " ", m.group()), page, flags=re.DOTALL | re.MULTILINE
    )
    return re.sub(r"`[^`\n]*`", lambda m: " " * len(m.group()), page)


def long_lines_in(name: str, page: str) -> Iterator[str]:
    """Complaints about long lines of a page; tables, headings, code blocks and single words may be long."""
    for number, line in enumerate(_without_blocks(page).splitlines(), 1):
        if len(line) > COLUMNS and not line.lstrip().startswith(("|", "#")) and " " in line.strip():
            yield f"{name}:{number}: {len(line)} columns; at most {COLUMNS}"


def _without_blocks(page: str) -> str:
    """A page whose code blocks are empty lines."""
    return _FENCED.sub(lambda block: "\n" * block.group().count("\n"), page)


def wrong_subjects(subjects: Iterator[str] | list[str]) -> Iterator[str]:
    """Complaints about commit subjects."""
    for subject in subjects:
        if len(subject) > SUBJECT or not _SUBJECT.fullmatch(subject):
            yield f"commit {subject!r}: write `area: verb object` in at most {SUBJECT} characters"


def files(*suffixes: str) -> list[str]:
    """The files of the repository with these suffixes, by name."""
    listed = subprocess.run(
        ["git", "ls-files", "-co", "--exclude-standard"], cwd=ROOT, capture_output=True, text=True, check=True
    )
    names = {name for name in listed.stdout.splitlines() if name.endswith(suffixes)}
    return sorted(name for name in names if (ROOT / name).is_file())


def subjects() -> list[str]:
    """The subjects of the commits since `FIRST_COMMIT`; of the last one where the history is cut off."""
    for span in ([f"{FIRST_COMMIT}..HEAD"], ["-1"]):
        log = subprocess.run(
            ["git", "log", "--no-merges", "--format=%s", *span], cwd=ROOT, capture_output=True, text=True
        )
        if log.returncode == 0:
            return log.stdout.splitlines()
    return []


def complaints(only: tuple[str, ...] = ()) -> Iterator[str]:
    """All complaints about files whose names begin with one of `only`, or about everything."""
    phrases = banned((ROOT / GLOSSARY).read_text())
    pattern = pattern_of(phrases)
    for name in files(".py", ".md"):
        if (only and not name.startswith(only)) or name in EXEMPT:
            continue
        text = (ROOT / name).read_text()
        yield from phrases_in(name, text, phrases, pattern)
        yield from openings_in(name, text) if name.endswith(".py") else long_lines_in(name, text)
    if not only:
        yield from wrong_subjects(subjects())


def main() -> int:
    """Print complaints about the files named on the command line, or about everything; 1 if there are any."""
    found = list(complaints(tuple(sys.argv[1:])))
    print("\n".join(found) if found else "wording: no complaint")
    return bool(found)


if __name__ == "__main__":
    sys.exit(main())
