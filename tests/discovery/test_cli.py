"""The command line: help, exit codes, errors."""

from __future__ import annotations

import json
import os
import subprocess
import sys

import pytest

from dlc_core import __version__
from dlc_core.cli.main import main
from dlc_core.hooks import Command, hookimpl
from dlc_core.plugin.builtin import COMMANDS
from dlc_core.plugin.registry import fresh_registry
from dlc_core.target import Option, TargetKind, TargetTag


@pytest.fixture(autouse=True)
def plain(monkeypatch):
    monkeypatch.setenv("NO_COLOR", "1")
    monkeypatch.setenv("COLUMNS", "160")
    for name in ("DLC_DEBUG", "DLC_PLUGINS", "FORCE_COLOR"):
        monkeypatch.delenv(name, raising=False)


def test_version(capsys):
    assert main(["--version"]) == 0
    assert capsys.readouterr().out == f"dlc {__version__}\n"


def test_help_lists_every_command_without_importing_it():
    code = """
import sys
from dlc_core.cli.main import main
code = main(["--help"])
print(code, sorted(name for name in sys.modules if name.startswith("dlc_core.cli.")), "numpy" in sys.modules)
"""
    done = subprocess.run(
        [sys.executable, "-c", code],
        env={**os.environ, "DLC_PLUGINS": "none"},
        capture_output=True,
        text=True,
        stdin=subprocess.DEVNULL,
    )
    *text, last = done.stdout.splitlines()
    assert last == "0 ['dlc_core.cli.main', 'dlc_core.cli.terminal'] False"
    for command in COMMANDS:
        assert any(f" {command.name} " in line for line in text), command.name


@pytest.mark.parametrize("command", COMMANDS, ids=lambda command: command.name)
def test_every_command_has_help_with_examples(command, capsys):
    assert main([command.name, "--help"]) == 0
    text = capsys.readouterr().out
    assert f"Usage: dlc {command.name}" in text
    assert "Example" in text
    assert f"dlc {command.name}" in text.partition("Example")[2]


@pytest.mark.parametrize("arguments", [["plugin"], ["plugins", "--bad"], ["plugins", "extra"], []])
def test_wrong_use_has_exit_code_2(arguments, capsys):
    assert main(arguments) == 2
    captured = capsys.readouterr()
    assert "Usage: dlc" in captured.err + captured.out


def failing() -> None:
    """Fail.

    Example: `dlc failing`
    """
    from dlc_core.diag import ModelError, Span

    raise ModelError(
        "the model [bold] is odd", spans=[Span("m", "n", "Add")], why="a reason", hint="an action"
    )


def wrong() -> None:
    """Fail otherwise."""
    from dlc_core.diag import UsageError

    raise UsageError("no such input")


class Failing:
    @hookimpl
    def dlc_commands(self):
        failing_command = Command("failing", f"{__name__}:failing", "Fail.")
        return [failing_command, Command("wrong", f"{__name__}:wrong", "Fail.")]


def test_an_error_is_printed_without_traceback(capsys, monkeypatch):
    with fresh_registry({"failing": Failing()}):
        assert main(["failing"]) == 1
        captured = capsys.readouterr()
        assert captured.out == ""
        assert captured.err == (
            "error: the model [bold] is odd\n  at m node 'n' (Add)\n  because a reason\n  hint: an action\n"
        )
        assert main(["wrong"]) == 2
        assert capsys.readouterr().err == "error: no such input\n"
        monkeypatch.setenv("DLC_DEBUG", "1")
        assert main(["failing"]) == 1
        assert "Traceback" in capsys.readouterr().err


def test_plugins_table(capsys):
    with fresh_registry({"failing": Failing(), "odd": object}):
        assert main(["plugins"]) == 0
        text = capsys.readouterr().out
        assert "commands: failing, wrong" in text
        assert "name an instance or a module" in text
        assert "Traceback" not in text
        assert main(["plugins", "-v"]) == 0
        text = capsys.readouterr().out
        assert "Traceback" in text
        assert "reproducer_dir" in text


def test_targets(capsys):
    slots = Option("slots", "int", 4, "Slots of the queue.")
    board = TargetKind("board", "A board.", "c-board", "board", (slots,), problem=lambda: "no board attached")

    class Boards:
        @hookimpl
        def dlc_targets(self):
            return [board]

        @hookimpl
        def dlc_target_tags(self):
            return [TargetTag("boards/large", "board -slots=16", "A large board.")]

    with fresh_registry({"boards": Boards()}):
        assert main(["targets", "--tags"]) == 0
        assert "boards/large  boards  A large board.  board -slots=16" in capsys.readouterr().out
        assert main(["targets", "--tags", "--json"]) == 0
        (record,) = json.loads(capsys.readouterr().out)
        assert record["target"] == "board -slots=16"
        assert main(["targets", "boards/large", "--set", "target.fma_latency=3"]) == 0
        assert "machine of board -slots=16 -target.fma_latency=3.0" in capsys.readouterr().out
        assert main(["targets", "boards/large", "--json"]) == 0
        assert json.loads(capsys.readouterr().out)["tag"] == "boards/large"
        assert main(["targets"]) == 0
        assert "no board attached" in capsys.readouterr().out
        assert main(["targets", "board"]) == 0
        assert "-slots  int   4        Slots of the queue." in capsys.readouterr().out
        assert main(["targets", "bord"]) == 1
        assert "did you mean 'board'?" in capsys.readouterr().err
        assert main(["targets", "board", "--json"]) == 0
        (record,) = json.loads(capsys.readouterr().out)
        assert record["plugin"] == "boards"
        assert record["options"] == [
            {"name": "slots", "type": "int", "default": 4, "help": "Slots of the queue."}
        ]


def test_config_lists_values_and_illegal_ones(capsys, monkeypatch):
    with fresh_registry():
        monkeypatch.setenv("DLC_NUM_THREADS", "2")
        assert main(["config"]) == 0
        assert "DLC_NUM_THREADS = 2  (env)" in capsys.readouterr().out
        monkeypatch.setenv("DLC_VERIFY", "sometimes")
        assert main(["config"]) == 2
        captured = capsys.readouterr()
        assert "DLC_NUM_THREADS = 2  (env)" in captured.out
        assert "DLC_VERIFY is 'sometimes'" in captured.err
        assert "one of off, structure, each" in captured.err
