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
"""The path of each file of the template in the package."""

RESERVED = ("core", "none")
"""Names that plugins cannot have: `core` is the core's, and DLC_PLUGINS=none disables plugins."""

LONGEST = 40
"""The most characters of a name; it becomes part of file and module names."""

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
    directory = Path(f"dlc-backend-{name.replace('_', '-')}") if folder is None else folder
    written = write_backend(name, directory)
    console = Console()
    console.print(f"[green]{directory}[/]", highlight=False)
    for path in written:
        console.print(f"  {path.relative_to(directory)}", highlight=False)
    console.print("\nNext:")
    for line in (
        f"pip install -e '{directory}[test]'",
        f"dlc targets {name}",
        f"cd {directory} && pytest --dlc-level 0",
    ):
        console.print(f"  {line}", highlight=False, markup=False)


def write_backend(name: str, folder: Path) -> list[Path]:
    """Write the package of a target `name` into a new folder. Returns its files.

    Raises UsageError for a name that is invalid or exists, and for a folder that is not empty or cannot be
    written.
    """
    if not _NAME.fullmatch(name) or keyword.iskeyword(name) or name in RESERVED or len(name) > LONGEST:
        shown = shorten(repr(name), LONGEST, placeholder="…'")
        raise UsageError(f"{shown} cannot name a target", hint="for example: npu, npu_npu2")
    if (existing := _existing(name)) is not None:
        what, owner = existing
        why = f"plugin {owner} declares it" if owner else ""
        raise UsageError(f"there is a {what} {name!r} already", why=why, hint="choose another")
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise UsageError(f"{folder} exists already", hint="give another folder with --output")
    words = {
        "@NAME@": name,
        "@PACKAGE@": f"dlc_backend_{name}",
        "@CLASS@": "".join(part.capitalize() for part in name.split("_")),
        "@CORE@": ".".join(__version__.split(".")[:2]),
        "@API@": ".".join(map(str, API_VERSION)),
    }
    written = []
    for source, directory in FILES.items():
        path = folder / _filled(directory, words)
        text = (TEMPLATE / f"{source}.in").read_text(encoding="utf-8")
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(_filled(text, words), encoding="utf-8")
        except OSError as error:
            raise UsageError(f"{path} cannot be written", why=str(error)) from None
        written.append(path)
    return written


def _existing(name: str) -> tuple[str, str] | None:
    """Return the kind of an existing declaration with this name, and its plugin."""
    known = registry()
    for category in (known.targets, known.codegens, known.devices):
        if providers := category.providers(name):
            return category.word, ", ".join(providers)
    return ("plugin", "") if any(plugin.name == name for plugin in known.loaded) else None


def _filled(text: str, words: Mapping[str, str]) -> str:
    for mark, word in words.items():
        text = text.replace(mark, word)
    return text


__all__ = ["new_backend", "write_backend"]
