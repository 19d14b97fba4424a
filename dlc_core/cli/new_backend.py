"""`dlc new-backend`"""

from __future__ import annotations

import keyword
import re
from collections.abc import Mapping
from pathlib import Path
from textwrap import shorten
from typing import Annotated

import typer
from rich.console import Console

from dlc_core.diag import UsageError
from dlc_core.hooks import API_VERSION
from dlc_core.plugin.registry import registry
from dlc_core.version import __version__

TEMPLATE = Path(__file__).parent / "templates" / "backend"
FILES = {
    "pyproject.toml": "pyproject.toml",
    "README.md": "README.md",
    "__init__.py": "@PACKAGE@/__init__.py",
    "plugin.py": "@PACKAGE@/plugin.py",
    "test_conformance.py": "tests/test_conformance.py",
    "ci.yml": ".github/workflows/ci.yml",
}
"""Where each file of the template goes."""

RESERVED = ("core", "none")
"""Names that plugins cannot have: `core` is one, and `none` is a word of DLC_PLUGINS."""

LONGEST = 40
"""Characters of a name, of which files and modules are called."""

_NAME = re.compile(r"[a-z][a-z0-9]*(_[a-z0-9]+)*")


def new_backend(
    name: Annotated[str, typer.Argument(help="Name of the target: lower case, digits, single underscores.")],
    folder: Annotated[
        Path | None, typer.Option("--output", "-o", help="Folder to make; dlc-backend-NAME by default.")
    ] = None,
) -> None:
    """Write a package that adds a target, ready to install.

    The generated package compiles models to C and runs them on a simulated device, so every model runs.
    Replace it part by part.

    Examples:

    - `dlc new-backend npu`
    - `pip install -e dlc-backend-npu && dlc targets`
    - `cd dlc-backend-npu && pytest --dlc-level 0`
    """
    place = Path(f"dlc-backend-{name.replace('_', '-')}") if folder is None else folder
    written = write_backend(name, place)
    console = Console()
    console.print(f"[green]{place}[/]", highlight=False)
    for path in written:
        console.print(f"  {path.relative_to(place)}", highlight=False)
    console.print("\nNext:")
    for line in (
        f"pip install -e '{place}[test]'",
        f"dlc targets {name}",
        f"cd {place} && pytest --dlc-level 0",
    ):
        console.print(f"  {line}", highlight=False, markup=False)


def write_backend(name: str, folder: Path) -> list[Path]:
    """Write the package of a target `name` into a new folder; gives its files.

    Raises UsageError for a name that is none or is taken, and where the folder has something in it already or
    cannot be written.
    """
    if not _NAME.fullmatch(name) or keyword.iskeyword(name) or name in RESERVED or len(name) > LONGEST:
        shown = shorten(repr(name), LONGEST, placeholder="…'")
        raise UsageError(f"{shown} cannot name a target", hint="for example: npu, npu_npu2")
    if (taken := _taken(name)) is not None:
        what, owner = taken
        why = f"plugin {owner} gives it" if owner else ""
        raise UsageError(f"there is a {what} {name!r} already", why=why, hint="choose another")
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise UsageError(f"{folder} is there already", hint="give another folder with --output")
    words = {
        "@NAME@": name,
        "@PACKAGE@": f"dlc_backend_{name}",
        "@CLASS@": "".join(part.capitalize() for part in name.split("_")),
        "@CORE@": ".".join(__version__.split(".")[:2]),
        "@API@": ".".join(map(str, API_VERSION)),
    }
    written = []
    for source, place in FILES.items():
        path = folder / _filled(place, words)
        text = (TEMPLATE / f"{source}.in").read_text(encoding="utf-8")
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(_filled(text, words), encoding="utf-8")
        except OSError as error:
            raise UsageError(f"{path} cannot be written", why=str(error)) from None
        written.append(path)
    return written


def _taken(name: str) -> tuple[str, str] | None:
    """Return the kind of an existing declaration with this name, and its plugin."""
    known = registry()
    for category in (known.targets, known.codegens, known.devices):
        if givers := category.givers(name):
            return category.word, ", ".join(givers)
    return ("plugin", "") if any(plugin.name == name for plugin in known.loaded) else None


def _filled(text: str, words: Mapping[str, str]) -> str:
    for mark, word in words.items():
        text = text.replace(mark, word)
    return text


__all__ = ["new_backend", "write_backend"]
