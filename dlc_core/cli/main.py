"""The command `dlc`: find the subcommand, run it, and turn a `DlcError` into a message and an exit code.

Exit codes: 0 for success, 1 for a `DlcError`, 2 for a wrong use of the command line or of the API
(`UsageError`). With `DLC_DEBUG=1` or more, an error also shows its traceback.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterable, Sequence
from typing import Annotated, Any

import typer

from dlc_core.cli.terminal import printable_output
from dlc_core.config import config
from dlc_core.diag import DlcError, PluginError, UsageError
from dlc_core.hooks import Command
from dlc_core.plugin.builtin import COMMANDS
from dlc_core.version import __version__

HELP = """Compile deep-learning models to native code.

`dlc COMMAND --help` shows the options of a command, with examples.
"""


def main(argv: Sequence[str] | None = None) -> int:
    """Run a command line, given without the program's name. Returns the exit code."""
    arguments = list(sys.argv[1:] if argv is None else argv)
    try:
        with printable_output():
            _app(arguments)(args=arguments, prog_name="dlc")
    except SystemExit as stop:
        return stop.code if isinstance(stop.code, int) else int(stop.code is not None)
    except DlcError as error:
        return report(error)
    return 0


def report(error: DlcError) -> int:
    """Print an error on stderr. Returns the exit code."""
    from rich.console import Console
    from rich.text import Text

    console = Console(stderr=True, soft_wrap=True)
    if _debug():
        console.print_exception()
    first, _, rest = str(error).partition("\n")
    text = Text.assemble(("error: ", "bold red"), (first, "bold"))
    for line in rest.split("\n") if rest else ():
        text.append("\n")
        text.append(line, "green" if line.startswith("  hint: ") else "")
    console.print(text)
    return 2 if isinstance(error, UsageError) else 1


def _debug() -> bool:
    try:
        return config.debug >= 1
    except UsageError:  # the error to report may be about this variable
        return False


def _app(arguments: Sequence[str]) -> typer.Typer:
    """Make the typer application. Only the command that `arguments` name is imported."""
    requested = next((argument for argument in arguments if not argument.startswith("-")), None)
    if "_DLC_COMPLETE" in os.environ:  # the shell requests completions of this line
        requested = next(iter(os.environ.get("COMP_WORDS", "").split()[1:]), None)
    commands: Iterable[Command] = COMMANDS
    if all(command.name != requested for command in COMMANDS):
        commands = _all_commands(requested)

    app = typer.Typer(
        name="dlc",
        help=HELP,
        no_args_is_help=True,
        rich_markup_mode="markdown",
        pretty_exceptions_enable=False,
        context_settings={"help_option_names": ["-h", "--help"]},
    )
    app.callback()(_root)
    for command in commands:
        if command.name != requested:
            app.command(command.name, help=command.help)(_not_loaded)
            continue
        entry = _load(command)
        if isinstance(entry, typer.Typer):
            app.add_typer(entry, name=command.name, help=entry.info.help or command.help)
        else:
            settings = getattr(entry, "context_settings", None)
            app.command(command.name, context_settings=settings)(entry)
    return app


def _all_commands(requested: str | None) -> list[Command]:
    """Return all commands. Two commands of one name are an error only if this name is requested."""
    from dlc_core.plugin.registry import registry

    commands = registry().commands
    if requested in commands.clashes:
        commands[str(requested)]
    return list(commands.values())


def _load(command: Command) -> Callable[..., Any]:
    try:
        return command.load()
    except (Exception, SystemExit) as error:
        raise PluginError(
            f"the command {command.name!r} cannot be loaded from {command.entry}",
            why=f"{type(error).__name__}: {error}",
        ) from error


def _show_version(requested: bool) -> None:
    if requested:
        print(f"dlc {__version__}")
        raise typer.Exit


def _root(
    version: Annotated[
        bool,
        typer.Option("--version", help="Show the version and exit.", is_eager=True, callback=_show_version),
    ] = False,
) -> None:
    """Options of `dlc` itself."""


def _not_loaded() -> None:
    """Placeholder of a command that is not run."""


if __name__ == "__main__":
    sys.exit(main())
