"""Tiny plugin packages, really installed by pip into folders that subprocesses have on their path."""

from __future__ import annotations

import base64
import hashlib
import os
import subprocess
import sys
import textwrap
import zipfile
from collections.abc import Callable, Mapping
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]

DECLARATION = """
    class Thing:
        options = formats = ()
        describe = problem = load = None
        host_rank = 0

        def __init__(self, name):
            self.name = name
"""

PACKAGES: Mapping[str, str] = {
    "good": """
        from dlc_core.config import Knob
        from dlc_core.hooks import Command, hookimpl
        DLC_API = "0.1"
        SLOTS = Knob("good_slots", int, 4, "Slots of the queue.", minimum=1)

        @hookimpl
        def dlc_targets():
            return [Thing("good-board"), Thing("shared-board")]

        @hookimpl
        def dlc_knobs():
            return [SLOTS]

        @hookimpl
        def dlc_commands():
            return [
                Command("good-hello", "dlc_good:hello", "Greet the board."),
                Command("good-lost", "dlc_good_lost:hello", "Cannot be loaded."),
            ]

        def hello(name: str = "world") -> None:
            print(f"hello {name}, {SLOTS.get()} slots")
    """,
    "rival": """
        from dlc_core.hooks import hookimpl

        @hookimpl
        def dlc_targets():
            return [Thing("shared-board"), Thing("rival-board")]
    """,
    "broken_import": "import a_module_that_nobody_has",
    "broken_exit": "raise SystemExit('no licence file')",
    "broken_hook": """
        from dlc_core.hooks import hookimpl

        @hookimpl
        def dlc_targets():
            raise ValueError("no board attached")

        @hookimpl
        def dlc_devices():
            return [Thing("still-there")]
    """,
    "misspelt": """
        from dlc_core.hooks import hookimpl

        @hookimpl
        def dlc_target():
            return [Thing("never-seen")]
    """,
    "unmarked": """
        def dlc_targets():
            return [Thing("never-seen")]
    """,
    "extra_argument": """
        from dlc_core.hooks import hookimpl

        @hookimpl
        def dlc_targets(machine):
            return [Thing("never-seen")]
    """,
    "nameless": """
        from dlc_core.hooks import hookimpl

        @hookimpl
        def dlc_targets():
            return [object()]
    """,
    "too_new": """
        from dlc_core.hooks import hookimpl
        DLC_API = "0.7"

        @hookimpl
        def dlc_targets():
            return [Thing("never-seen")]
    """,
    "impatient": """
        from dlc_core.plugin.registry import registry
        registry().targets
    """,
    "late": """
        from dlc_core.hooks import hookimpl

        @hookimpl
        def dlc_targets():
            return [Thing("late-board")]
    """,
}


def build_wheel(folder: Path, name: str, body: str, *, entry: str | None = None) -> Path:
    """A wheel `dlc-<name>` 1.2 with the one module `dlc_<name>`; its entry point is `entry`, else `name`."""
    info = f"dlc_{name}-1.2.dist-info"
    files = {
        f"dlc_{name}.py": textwrap.dedent(DECLARATION) + textwrap.dedent(body),
        f"{info}/METADATA": f"Metadata-Version: 2.1\nName: dlc-{name.replace('_', '-')}\nVersion: 1.2\n",
        f"{info}/WHEEL": "Wheel-Version: 1.0\nGenerator: tests\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
        f"{info}/entry_points.txt": f"[dlc]\n{entry or name} = dlc_{name}\n",
    }
    record = []
    for path, text in files.items():
        digest = base64.urlsafe_b64encode(hashlib.sha256(text.encode()).digest()).rstrip(b"=").decode()
        record.append(f"{path},sha256={digest},{len(text.encode())}")
    files[f"{info}/RECORD"] = "\n".join([*record, f"{info}/RECORD,,", ""])
    wheel = folder / f"dlc_{name}-1.2-py3-none-any.whl"
    with zipfile.ZipFile(wheel, "w") as archive:
        for path, text in files.items():
            archive.writestr(path, text)
    return wheel


def pip_install(wheels: list[Path], target: Path) -> None:
    """Install wheels into a folder by pip, without an index."""
    command = [sys.executable, "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
    command += ["--no-deps", "--no-index", "--no-compile", "--target", str(target), *map(str, wheels)]
    subprocess.run(command, check=True, capture_output=True, text=True, stdin=subprocess.DEVNULL)


@pytest.fixture(scope="session")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with all packages of `PACKAGES` except the late one, and two that share a plugin name."""
    wheels = tmp_path_factory.mktemp("wheels")
    target = tmp_path_factory.mktemp("site")
    built = [build_wheel(wheels, name, body) for name, body in PACKAGES.items() if name != "late"]
    built += [build_wheel(wheels, name, PACKAGES["late"], entry="twin") for name in ("twin_a", "twin_b")]
    pip_install(built, target)
    return target


@pytest.fixture(scope="session")
def late_wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The package `late`, not installed anywhere."""
    return build_wheel(tmp_path_factory.mktemp("late"), "late", PACKAGES["late"])


Run = Callable[..., "subprocess.CompletedProcess[str]"]


@pytest.fixture(scope="session")
def python(installed: Path) -> Run:
    """Run Python with the packages on its path; `plugins` is `DLC_PLUGINS`."""

    def run(
        *arguments: str, plugins: str | None = None, site: Path = installed, **more: str
    ) -> subprocess.CompletedProcess[str]:
        environment = {name: value for name, value in os.environ.items() if not name.startswith("DLC_")}
        environment |= {
            "PYTHONPATH": os.pathsep.join([str(site), str(ROOT)]),
            "NO_COLOR": "1",
            "COLUMNS": "160",
        }
        if plugins is not None:
            environment["DLC_PLUGINS"] = plugins
        return subprocess.run(
            [sys.executable, *arguments],
            env=environment | more,
            cwd=site,
            capture_output=True,
            text=True,
            stdin=subprocess.DEVNULL,
            timeout=120,
        )

    return run
