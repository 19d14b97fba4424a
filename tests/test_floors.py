"""The laws of the tree: imports point downward, the core names no device, files stay small, texts stay clean.

Every law is a function from texts to complaints, so that each is also tried on a text that breaks it.
"""

from __future__ import annotations

import ast
import re
import subprocess
from collections.abc import Iterator, Mapping
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
Texts = Mapping[str, str]

FLOORS = {
    "hooks": 0,
    "config": 0,
    "decisions": 0,
    "diag": 0,
    "support": 0,
    "version": 0,
    "facts": 1,
    "ir": 1,
    "arith": 1,
    "graph": 2,
    "tir": 2,
    "te": 3,
    "script": 3,
    "op": 3,
    "rewrite": 3,
    "nn": 4,
    "target": 4,
    "runtime": 5,
    "schedule": 5,
    "passes": 6,
    "algorithms": 7,
    "backend": 8,
    "plugin": 8,
    "driver": 9,
    "quantization": 10,
    "cli": 10,
    "testing": 10,
    "__main__": 11,
    "__init__": 11,
}
"""A module imports from lower floors, and from its own as long as the modules of that floor form no cycle."""

LAZY = ("plugin", "cli")
"""May import `dlc_core` inside functions: plugins and commands are loaded when they are asked for.  So may
the `plugin.py` of an algorithm.
"""

IMPORT_RULES = ("attention",)
"""Graph passes that still import schedule rules.  None may be added."""

DYNAMIC = (
    "dlc_core/__init__.py",
    "dlc_core/support/lazy.py",
    "dlc_core/testing/__init__.py",
    "dlc_core/hooks.py",
)
"""May import by a name made at run time: the lazy public names and modules, the entry of a command."""

FOREIGN = (
    "llvm|llvmlite|mlir|nvptx|amdgpu|cuda|cublas|cudnn|cutlass|tensorrt|nvidia|nvcc|nvrtc|ptx|opencl|spirv|"
    "vulkan|metal|webgpu|wgsl|directx|rocm|hip|miopen|sycl|oneapi|onednn|mkl|hexagon|tpu|dpu|vta|acme|"
    "amd|intel|apple|qualcomm|xeon|epyc|ryzen|geforce|"
    "x86|i386|i686|amd64|aarch64|armv7|armv8|arm64|riscv|riscv64|rvv|powerpc|ppc64le|"
    "sse|sse2|sse4|avx|avx2|avx512|avx512f|amx|vnni|neon|sve|sve2"
)
"""Words of vendors and devices: each belongs to a plugin."""


def read_tree() -> dict[str, str]:
    """The texts of all files that belong to the project, by path from its root."""
    listing = subprocess.run(
        ["git", "ls-files", "-co", "--exclude-standard", "-z"], cwd=ROOT, capture_output=True, text=True
    )
    if listing.returncode == 0:
        paths = [path for path in listing.stdout.split("\0") if path]
    else:  # an unpacked archive
        paths = [path.relative_to(ROOT).as_posix() for path in ROOT.rglob("*")]
    texts = {}
    for path in paths:
        file = ROOT / path
        if file.is_file() and not file.is_symlink() and file.stat().st_size < 4_000_000:
            try:
                texts[path] = file.read_text(encoding="utf-8")
            except UnicodeDecodeError:
                continue
    return texts


@pytest.fixture(scope="module")
def tree() -> dict[str, str]:
    return read_tree()


def core_python(texts: Texts) -> dict[str, str]:
    return {
        path: text for path, text in texts.items() if path.startswith("dlc_core/") and path.endswith(".py")
    }


def unit_of(path: str) -> str:
    """The part of the core that a file belongs to: a package or module right under `dlc_core`."""
    return path.split("/")[1].removesuffix(".py")


def core_imports(tree: ast.Module, modules: set[str]) -> Iterator[tuple[ast.stmt, str, bool]]:
    """Each import of the core: statement, the part imported, whether it stands in a function."""
    stack: list[tuple[ast.AST, bool]] = [(tree, False)]
    while stack:
        node, inside = stack.pop()
        inside = inside or isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda))
        stack += [(child, inside) for child in ast.iter_child_nodes(node)]
        names: list[str] = []
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            names = [node.module]
            if node.module == "dlc_core":
                names = [f"dlc_core.{a.name}" if a.name in modules else "dlc_core" for a in node.names]
        for name in names:
            parts = name.split(".")
            if parts[0] == "dlc_core":
                assert isinstance(node, ast.stmt)
                yield node, parts[1] if len(parts) > 1 else "__init__", inside


def floor_complaints(texts: Texts) -> list[str]:
    complaints = []
    files = core_python(texts)
    modules = {unit_of(path) for path in files}
    same_floor: dict[str, set[str]] = {}
    for path, text in sorted(files.items()):
        unit = unit_of(path)
        if unit not in FLOORS:
            complaints.append(f"{path}: {unit} has no floor")
            continue
        for node, target, inside in core_imports(ast.parse(text), modules):
            where = f"{path}:{node.lineno}"
            if target not in FLOORS:
                complaints.append(f"{where}: imports {target}, which has no floor")
            elif FLOORS[target] > FLOORS[unit]:
                complaints.append(
                    f"{where}: {unit} (floor {FLOORS[unit]}) imports {target} (floor {FLOORS[target]})"
                )
            elif FLOORS[target] == FLOORS[unit] and target != unit:
                same_floor.setdefault(unit, set()).add(target)
            if inside and unit not in LAZY and not re.fullmatch(r"dlc_core/algorithms/\w+/plugin\.py", path):
                complaints.append(f"{where}: an import of dlc_core inside a function")
    try:
        TopologicalSorter(same_floor).prepare()
    except CycleError as error:
        complaints.append("a cycle within a floor: " + " -> ".join(error.args[1]))
    return complaints


def rule_complaints(texts: Texts) -> list[str]:
    """Graph passes choose algorithms; a schedule is the choice of a rule."""
    complaints = []
    for path, text in core_python(texts).items():
        if not path.startswith("dlc_core/passes/graph/") or Path(path).stem in IMPORT_RULES:
            continue
        for node in ast.walk(ast.parse(text)):
            names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
            if isinstance(node, ast.ImportFrom) and node.module:
                names = [node.module, *(f"{node.module}.{alias.name}" for alias in node.names)]
            if any(f"{name}.".startswith("dlc_core.schedule.rules.") for name in names):
                complaints.append(f"{path}:{getattr(node, 'lineno', 0)}: imports a schedule rule")
    return complaints


def dynamic_complaints(texts: Texts) -> list[str]:
    complaints = []
    for path, text in core_python(texts).items():
        if path in DYNAMIC:
            continue
        for node in ast.walk(ast.parse(text)):
            name = (
                node.attr
                if isinstance(node, ast.Attribute)
                else node.id
                if isinstance(node, ast.Name)
                else ""
            )
            if name in ("import_module", "__import__"):
                complaints.append(f"{path}:{getattr(node, 'lineno', 0)}: {name} hides an import")
    return complaints


def foreign_complaints(texts: Texts) -> list[str]:
    plugins = [path.split("/")[1] for path in texts if re.fullmatch(r"plugins/[^/]+/pyproject\.toml", path)]
    packages = [f"dlc[-_]{plugin.replace('_', '[-_]')}" for plugin in plugins]
    words = re.compile(rf"(?<![A-Za-z0-9])(?:{'|'.join([FOREIGN, *packages])})(?![A-Za-z0-9])", re.IGNORECASE)
    return [
        f"{path}:{number}: names {match.group()!r}"
        for path, text in texts.items()
        if path.startswith("dlc_core/")
        for number, line in enumerate(text.splitlines(), 1)
        if (match := words.search(line))
    ]


def size_complaints(texts: Texts, limit: int = 600) -> list[str]:
    sizes = {path: len(text.splitlines()) for path, text in texts.items() if path.endswith(".py")}
    return [f"{path}: {size} lines, the limit is {limit}" for path, size in sizes.items() if size > limit]


def text_complaints(texts: Texts) -> list[str]:
    machine = r"(?<![\w.$}*])/(?:work|root|home/[a-z]\w*|tmp/[a-z]\w*)/"
    unfinished = r"\b(?:TO" + r"DO|FIX" + r"ME|XX" + r"X|HA" + r"CK)\b"
    complaints = []
    for path, text in texts.items():
        if path.startswith("LICENSE"):
            continue
        for number, line in enumerate(text.splitlines(), 1):
            if match := re.search(machine, line):
                complaints.append(f"{path}:{number}: a path of some machine: {match.group()}")
            if match := re.search(unfinished, line):
                complaints.append(f"{path}:{number}: unfinished: {match.group()}")
    return complaints


LAWS = (
    floor_complaints,
    rule_complaints,
    dynamic_complaints,
    foreign_complaints,
    size_complaints,
    text_complaints,
)


@pytest.mark.parametrize("law", LAWS)
def test_the_tree_keeps_the_law(law, tree):
    complaints = law(tree)
    assert not complaints, "\n".join(complaints)


def test_the_tree_is_really_read(tree):
    assert {
        "dlc_core/hooks.py",
        "dlc_core/plugin/registry.py",
        "tests/test_floors.py",
        "Makefile",
    } <= tree.keys()


def test_passes_that_are_excused_import_rules(tree):
    for name in IMPORT_RULES:
        assert "dlc_core.schedule.rules" in tree[f"dlc_core/passes/graph/{name}.py"]


def test_hooks_import_nothing_of_the_core(tree):
    assert not list(core_imports(ast.parse(tree["dlc_core/hooks.py"]), set(FLOORS)))


@pytest.mark.parametrize(
    ("law", "path", "text", "complaint"),
    [
        (
            floor_complaints,
            "dlc_core/ir/a.py",
            "from dlc_core.graph import node",
            "ir (floor 1) imports graph",
        ),
        (floor_complaints, "dlc_core/ir/a.py", "import dlc_core.passes.base", "imports passes (floor 6)"),
        (floor_complaints, "dlc_core/ir/a.py", "from dlc_core import compile", "imports __init__ (floor 11)"),
        (floor_complaints, "dlc_core/new.py", "x = 1", "new has no floor"),
        (
            floor_complaints,
            "dlc_core/ir/a.py",
            "from dlc_core.misc import x",
            "imports misc, which has no floor",
        ),
        (
            floor_complaints,
            "dlc_core/ir/a.py",
            "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    from dlc_core.op import declare",
            "ir (floor 1) imports op",
        ),
        (
            floor_complaints,
            "dlc_core/op/a.py",
            "def f():\n    from dlc_core.ir import types",
            "a.py:2: an import of dlc_core inside a function",
        ),
        (
            rule_complaints,
            "dlc_core/passes/graph/a.py",
            "from dlc_core.schedule.rules.cpu.core import Core",
            "imports a schedule rule",
        ),
        (
            rule_complaints,
            "dlc_core/passes/graph/a.py",
            "from dlc_core.schedule import rules",
            "imports a schedule rule",
        ),
        (
            dynamic_complaints,
            "dlc_core/op/a.py",
            "import importlib\nimportlib.import_module('x')",
            "hides an import",
        ),
        (foreign_complaints, "dlc_core/op/a.py", "# as CU" + "DA does it", "names 'CUDA'"),
        (foreign_complaints, "dlc_core/op/a.py", "is_x86" + "_64 = 1", "names 'x86'"),
        (foreign_complaints, "dlc_core/README.md", "needs AV" + "X512", "names 'AVX512'"),
        (size_complaints, "tests/a.py", "x = 1\n" * 601, "601 lines"),
        (text_complaints, "docs/a.md", "see /wo" + "rk/main", "a path of some machine"),
        (text_complaints, "docs/a.md", "see `/ho" + "me/ann/x`", "a path of some machine"),
        (text_complaints, "tests/a.py", "open('/tm" + "p/abc/x')", "a path of some machine"),
        (text_complaints, "tests/a.py", "# TO" + "DO later", "unfinished"),
    ],
)
def test_the_law_can_be_broken(law, path, text, complaint):
    known = {"dlc_core/graph/n.py": "", "dlc_core/passes/base.py": "", "dlc_core/ir/types.py": ""}
    assert not law(known)
    assert [c for c in law({**known, path: text}) if complaint in c]


def test_a_cycle_within_a_floor_is_found():
    te_uses_op = {"dlc_core/te/a.py": "from dlc_core.op import declare"}
    assert not floor_complaints(te_uses_op)
    both = {**te_uses_op, "dlc_core/op/b.py": "from dlc_core.te import tensor"}
    assert any("a cycle within a floor" in complaint for complaint in floor_complaints(both))


def test_a_plugin_is_foreign_to_the_core():
    texts = {"plugins/backend_acme/pyproject.toml": "", "dlc_core/a.py": "# see dlc-backend-acme"}
    assert foreign_complaints(texts) == ["dlc_core/a.py:1: names 'dlc-backend-acme'"]


@pytest.mark.parametrize(
    "text",
    [
        "from dlc_core.diag import DlcError",
        "from dlc_core import hooks",
        "import numpy as np",
        "x = 'hipster'",
    ],
)
def test_what_is_allowed_is_not_complained_of(text):
    texts = {"dlc_core/hooks.py": "", "dlc_core/diag.py": "", "dlc_core/op/a.py": text}
    assert [complaint for law in LAWS for complaint in law(texts)] == []
