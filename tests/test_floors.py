"""The rules of the source tree: imports point downwards, the core names no device, files are small, texts
have no forbidden words. Every rule is a function from texts to complaints, which is also tested on a text
that breaks it.
"""

from __future__ import annotations

import ast
import re
import subprocess
from collections.abc import Container, Iterator, Mapping
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
Texts = Mapping[str, str]

LAYERS = {
    "hooks": 0,
    "cancel": 0,
    "config": 0,
    "decisions": 0,
    "diag": 0,
    "heuristics": 0,
    "limits": 0,
    "support": 0,
    "version": 0,
    "disk_cache": 1,
    "ir": 1,
    "arith": 1,
    "graph": 2,
    "tir": 2,
    "foreign": 3,
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
    "topi": 9,
    "quantization": 10,
    "cli": 10,
    "testing": 10,
    "__main__": 11,
    "__init__": 11,
}
"""A module imports from lower layers, and from its own if the modules of that layer form no cycle."""

SUBLAYERS = {
    "runtime": (
        "machine", "memory", "device", "guard", "interface", "reference", "call", "host_program", "artefact",
        "measure", "executable", "library",
    )
}  # fmt: skip
"""Packages whose parts form layers, the lowest first."""

LAZY = ("plugin", "cli")
"""May import `dlc_core` inside functions: plugins and commands are loaded when they are asked for.  So may
the `plugin.py` of an algorithm.
"""

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


def layer_complaints(texts: Texts) -> list[str]:
    complaints = []
    files = core_python(texts)
    modules = {unit_of(path) for path in files}
    same_floor: dict[str, set[str]] = {}
    for path, text in sorted(files.items()):
        unit = unit_of(path)
        if unit not in LAYERS:
            complaints.append(f"{path}: {unit} has no layer")
            continue
        for node, target, inside in core_imports(ast.parse(text), modules):
            where = f"{path}:{node.lineno}"
            if target not in LAYERS:
                complaints.append(f"{where}: imports {target}, which has no layer")
            elif LAYERS[target] > LAYERS[unit]:
                complaints.append(
                    f"{where}: {unit} (layer {LAYERS[unit]}) imports {target} (layer {LAYERS[target]})"
                )
            elif LAYERS[target] == LAYERS[unit] and target != unit:
                same_floor.setdefault(unit, set()).add(target)
            if inside and unit not in LAZY and not re.fullmatch(r"dlc_core/algorithms/\w+/plugin\.py", path):
                complaints.append(f"{where}: an import of dlc_core inside a function")
    try:
        TopologicalSorter(same_floor).prepare()
    except CycleError as error:
        complaints.append("a cycle within a layer: " + " -> ".join(error.args[1]))
    return complaints


ALLOWED_CYCLES: Mapping[frozenset[str], str] = {}
"""Modules that import one another, with the reason; the list may only shrink."""


def module_imports(texts: Texts) -> dict[str, set[str]]:
    """The imports of each module, those for type checkers, in functions and lazy ones too."""
    packages = {"dlc_core", *(match[1] for path in texts if (match := _PLUGIN.match(path)))}
    trees: dict[str, ast.Module] = {}
    for path, text in texts.items():
        parts = Path(path).with_suffix("").parts
        first = next((i for i, part in enumerate(parts[:3]) if part in packages), None)
        if path.endswith(".py") and first in (0, 2) and "templates" not in parts:
            trees[".".join(parts[first:]).removesuffix(".__init__")] = ast.parse(text)
    found: dict[str, set[str]] = {}
    for module, tree in trees.items():
        names = [name for statement in _statements(tree) for name in _imported(statement)]
        # `from package import name` is an import of the module `package.name`, if there is one.
        found[module] = {_known(name, trees) for name in names} - {module, ""}
    return found


_PLUGIN = re.compile(r"plugins/[^/]+/(\w+)/__init__\.py")


def _statements(tree: ast.Module) -> Iterator[ast.stmt]:
    work: list[ast.stmt] = list(tree.body)
    while work:
        statement = work.pop()
        yield statement
        for name in ("body", "orelse", "finalbody", "handlers"):
            work += getattr(statement, name, ())


def _imported(node: ast.AST) -> list[str]:
    if isinstance(node, ast.Assign):
        return _imported(node.value)
    if isinstance(node, ast.Import):
        return [alias.name for alias in node.names]
    if isinstance(node, ast.ImportFrom) and node.module:
        return [f"{node.module}.{alias.name}" for alias in node.names]
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "lazy":
        return [one.value for one in node.args if isinstance(one, ast.Constant)]
    return []


def _known(name: str, modules: Container[str]) -> str:
    """The longest part of a dotted name that is a module; "" if there is none."""
    while name and name not in modules:
        name = name.rpartition(".")[0]
    return name


def cycles(imports: Mapping[str, set[str]]) -> list[frozenset[str]]:
    """The sets of modules, as large as possible, in which each imports each, directly or through others."""
    below: dict[str, set[str]] = {}
    for module in imports:
        reached, work = set(), [module]
        while work:
            new = imports.get(work.pop(), set()) - reached
            reached |= new
            work += new
        below[module] = reached
    found = {frozenset(one for one in below[m] if m in below[one]) for m in below if m in below[m]}
    return sorted(found, key=sorted)


def cycle_complaints(texts: Texts) -> list[str]:
    """Modules of one package that import one another; a package and the modules inside it are one thing."""
    imports = module_imports(texts)
    return [
        "a cycle of modules: " + ", ".join(sorted(cycle))
        for cycle in cycles(imports)
        if cycle not in ALLOWED_CYCLES
    ]


def sublayer_complaints(texts: Texts) -> list[str]:
    """The parts of a package whose parts form layers import only from lower parts."""
    complaints = []
    for package, parts in SUBLAYERS.items():
        rank = {f"dlc_core.{package}.{part}": i for i, part in enumerate(parts)}
        inside = {path: text for path, text in texts.items() if path.startswith(f"dlc_core/{package}/")}
        for module, imported in module_imports(inside).items():
            own = _known(module, rank)
            if not own and module != f"dlc_core.{package}":
                complaints.append(f"{module} has no layer")
            above = [other for other in imported if own and rank.get(_known(other, rank), -1) > rank[own]]
            complaints += [f"{module} imports {other}, which is above it" for other in sorted(above)]
    return complaints


def rule_complaints(texts: Texts) -> list[str]:
    """Graph passes choose algorithms; a schedule is the choice of a rule."""
    complaints = []
    for path, text in core_python(texts).items():
        if not path.startswith("dlc_core/passes/graph/"):
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


RULES = (
    layer_complaints,
    cycle_complaints,
    sublayer_complaints,
    rule_complaints,
    dynamic_complaints,
    foreign_complaints,
    size_complaints,
    text_complaints,
)


@pytest.mark.parametrize("rule", RULES)
def test_imports_follow_the_layers(rule, tree):
    complaints = rule(tree)
    assert not complaints, "\n".join(complaints)


def test_all_modules_are_read(tree):
    assert {
        "dlc_core/hooks.py",
        "dlc_core/plugin/registry.py",
        "tests/test_floors.py",
        "Makefile",
    } <= tree.keys()


def test_hooks_import_nothing_of_the_core(tree):
    assert not list(core_imports(ast.parse(tree["dlc_core/hooks.py"]), set(LAYERS)))


@pytest.mark.parametrize(
    ("rule", "path", "text", "complaint"),
    [
        (
            layer_complaints,
            "dlc_core/ir/a.py",
            "from dlc_core.graph import node",
            "ir (layer 1) imports graph",
        ),
        (layer_complaints, "dlc_core/ir/a.py", "import dlc_core.passes.base", "imports passes (layer 6)"),
        (layer_complaints, "dlc_core/ir/a.py", "from dlc_core import compile", "imports __init__ (layer 11)"),
        (layer_complaints, "dlc_core/new.py", "x = 1", "new has no layer"),
        (
            layer_complaints,
            "dlc_core/ir/a.py",
            "from dlc_core.misc import x",
            "imports misc, which has no layer",
        ),
        (
            layer_complaints,
            "dlc_core/ir/a.py",
            "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    from dlc_core.op import declare",
            "ir (layer 1) imports op",
        ),
        (
            layer_complaints,
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
def test_violations_are_found(rule, path, text, complaint):
    known = {"dlc_core/graph/n.py": "", "dlc_core/passes/base.py": "", "dlc_core/ir/types.py": ""}
    assert not rule(known)
    assert [c for c in rule({**known, path: text}) if complaint in c]


def test_a_cycle_within_a_layer_is_found():
    te_uses_op = {"dlc_core/te/a.py": "from dlc_core.op import declare"}
    assert not layer_complaints(te_uses_op)
    both = {**te_uses_op, "dlc_core/op/b.py": "from dlc_core.te import tensor"}
    assert any("a cycle within a layer" in complaint for complaint in layer_complaints(both))


@pytest.mark.parametrize(
    "back",
    [
        "from dlc_core.ir import a",
        "import dlc_core.ir.a",
        "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    from dlc_core.ir.a import x",
        "def f():\n    from dlc_core.ir.a import x",
        "a = lazy('dlc_core.ir.a')",
    ],
)
def test_a_cycle_of_modules_is_found(back):
    one_way = {"dlc_core/ir/a.py": "from dlc_core.ir.b import y", "dlc_core/ir/b.py": "y = 1"}
    assert not cycle_complaints(one_way)
    complaints = cycle_complaints({**one_way, "dlc_core/ir/b.py": back, "dlc_core/ir/c.py": back})
    assert complaints == ["a cycle of modules: dlc_core.ir.a, dlc_core.ir.b"]


def test_a_cycle_inside_a_plugin_is_found():
    texts = {
        "plugins/backend_acme/dlc_backend_acme/__init__.py": "",
        "plugins/backend_acme/dlc_backend_acme/a.py": "from dlc_backend_acme import b",
        "plugins/backend_acme/dlc_backend_acme/b.py": "from dlc_backend_acme.a import x",
    }
    assert cycle_complaints(texts) == ["a cycle of modules: dlc_backend_acme.a, dlc_backend_acme.b"]


def test_allowed_cycles_still_exist(tree):
    left = cycles(module_imports({p: t for p, t in tree.items() if p.startswith("dlc_core/ir/")}))
    assert set(ALLOWED_CYCLES) <= set(left)


def test_packages_import_only_lower_ones():
    texts = {
        "dlc_core/runtime/memory/a.py": "",
        "dlc_core/runtime/call/b.py": "from dlc_core.runtime.memory import a",
    }
    assert not sublayer_complaints(texts)
    texts["dlc_core/runtime/memory/a.py"] = "from dlc_core.runtime.call.b import x"
    texts["dlc_core/runtime/loose.py"] = ""
    assert sublayer_complaints(texts) == [
        "dlc_core.runtime.memory.a imports dlc_core.runtime.call.b, which is above it",
        "dlc_core.runtime.loose has no layer",
    ]


def test_the_core_does_not_import_plugins():
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
def test_allowed_imports_are_not_reported(text):
    texts = {"dlc_core/hooks.py": "", "dlc_core/diag.py": "", "dlc_core/op/a.py": text}
    assert [complaint for rule in RULES for complaint in rule(texts)] == []
