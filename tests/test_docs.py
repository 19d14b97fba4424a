"""The documents are true: code blocks run, links lead somewhere, every block that is not run says why.

Blocks of one document run in order, in one process and one folder with small generated models: Python blocks
as they are, lines of bash blocks that call `dlc` through the command line.  Nothing else of a bash block is
run; a block that has such lines stands right after a comment `<!-- not run: reason -->`.  A block of text
right after `<!-- prints -->` is compared with what the Python block before it prints.

A block right after `<!-- needs: DISTRIBUTION -->` runs only where that package is installed.  In a bash
block, `pip install -e FOLDER` makes the plugins of a folder that was written before known, as if it were
installed.
"""

from __future__ import annotations

import inspect
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from importlib.metadata import distributions
from pathlib import Path

import numpy as np
import onnx
import onnx.parser
import pytest
from onnx import ModelProto, numpy_helper

ROOT = Path(__file__).resolve().parents[1]
DOCUMENTS = sorted(
    path.relative_to(ROOT).as_posix()
    for pattern in (
        "README.md",
        "docs/**/*.md",
        "plugins/*/README.md",
        "benchmarks/**/*.md",
        "examples/**/*.md",
    )
    for path in ROOT.glob(pattern)
)
TORCH_WARNS = "ignore:`isinstance(treespec:FutureWarning"
"""A warning of torch about its own code."""
RUN = ("python", "bash")
SHOWN = ("text", "toml", "c", "js", "json", "ini")
"""Languages of blocks that are only shown."""
MARK = re.compile(r"<!-- not run: (\S.*) -->")
NEEDS = re.compile(r"<!-- needs: (\S+) -->")
PRINTS = "<!-- prints -->"
"""Stands before a block of text that is what the Python block before it prints."""

IMAGE = """
<ir_version: 10, opset_import: ["" : 20]>
classifier (float[1, 3, 224, 224] image) => (float[1, 10] scores)
<int64[2] flat = {1, 16}>
{
    a = Conv <strides = [8, 8], pads = [1, 1, 1, 1]> (image, w1, b1)
    r = Relu(a)
    p = GlobalAveragePool(r)
    f = Reshape(p, flat)
    m = MatMul(f, w2)
    scores = Softmax <axis = -1> (m)
}
"""
TOKENS = """
<ir_version: 10, opset_import: ["" : 20]>
tagger (float[batch, tokens, 32] x) => (float[batch, tokens, 5] tags)
{
    m = MatMul(x, w)
    s = Add(m, b)
    tags = Softmax <axis = -1> (s)
}
"""


@dataclass(frozen=True)
class Block:
    """A fenced block: its language, where its first line stands, its lines, why it is not run, whether it is
    what the block before it prints, and the distribution that it needs."""

    language: str
    line: int
    lines: tuple[str, ...]
    reason: str
    printed: bool = False
    needs: str = ""

    @property
    def can_run(self) -> bool:
        """Whether what it needs is installed."""
        return not self.needs or any(found.metadata["Name"] == self.needs for found in distributions())


def blocks(text: str) -> Iterator[Block]:
    lines = text.split("\n")
    index, reason, printed, needs = 0, "", False, ""
    while index < len(lines):
        line = lines[index]
        mark = MARK.fullmatch(line.strip())
        if line.startswith("```"):
            end = next(i for i in range(index + 1, len(lines)) if lines[i].rstrip() == "```")
            yield Block(line[3:].strip(), index + 1, tuple(lines[index + 1 : end]), reason, printed, needs)
            index = end
        needed = NEEDS.fullmatch(line.strip())
        needs = needed.group(1) if needed else "" if line.strip() else needs
        reason = mark.group(1) if mark else "" if line.strip() else reason
        printed = line.strip() == PRINTS or (printed and not line.strip())
        index += 1


def complaints(name: str, text: str) -> list[str]:
    """Return the errors in the code blocks of a document, without running them."""
    found = []
    before = ""
    for block in blocks(text):
        where = f"{name}:{block.line}"
        if block.language not in (*RUN, *SHOWN):
            found.append(f"{where}: a block of language {block.language!r}")
        if block.language == "bash" and not block.reason:
            other = [line for line in commands(block) if not line.startswith(("dlc ", "pip install -e dlc-"))]
            found += [f"{where}: {line!r} is not run, and no comment says why" for line in other]
        if block.reason and block.language not in RUN:
            found.append(f"{where}: blocks of language {block.language!r} are never run")
        if block.printed and (block.language != "text" or before != "python"):
            found.append(f"{where}: only text after a Python block can be what that prints")
        before = block.language
    return found


def commands(block: Block) -> list[str]:
    """The commands of a bash block, continued lines joined, comments left out."""
    joined = "\n".join(block.lines).replace("\\\n", " ")
    return [
        bare for line in joined.split("\n") if (bare := line.partition(" #")[0].strip()) and bare[0] != "#"
    ]


def program(text: str) -> str:
    """One Python program of all blocks, each line of Python where it stands in the document."""
    out = [""] * (len(text.split("\n")) + 1)
    out[0] = "from run_dlc import begin_output, check_output, run_dlc"
    for block in blocks(text):
        if not block.can_run:
            continue
        if block.printed:
            out[block.line - 1] = f"check_output({list(block.lines)})"
        if block.reason or block.language not in RUN:
            continue
        if block.language == "python":
            out[block.line - 1] = "begin_output()"
            out[block.line : block.line + len(block.lines)] = block.lines
        else:
            out[block.line] = "; ".join(f"run_dlc({command!r})" for command in commands(block))
    return "\n".join(out) + "\n"


RUN_DLC = """
import io
import re
import shlex
import sys
from pathlib import Path

from dlc_core.cli.main import main


class Kept(io.StringIO):
    def write(self, text):
        sys.__stdout__.write(text)
        return super().write(text)


def begin_output():
    sys.stdout = Kept()


def check_output(expected):
    found = [line.rstrip() for line in sys.stdout.getvalue().rstrip().split("\\n")]
    assert found == expected, "\\n".join(["printed:", *found, "the document says:", *expected])


def run_dlc(command):
    if command.startswith("pip install"):
        package = Path(shlex.split(command)[-1]).resolve()
        sys.path.insert(0, str(package))
        entry_points(package, Path.cwd())
        return
    code = main(shlex.split(command)[1:])
    assert code == 0, f"exit code {code}: {command}"
"""


def _with_weights(text: str, **shapes: tuple[int, ...]) -> ModelProto:
    model = onnx.parser.parse_model(text)
    rng = np.random.default_rng(0)
    for name, shape in shapes.items():
        drawn = rng.standard_normal(shape, np.float32) * np.float32(0.3)
        model.graph.initializer.append(numpy_helper.from_array(drawn, name))
    return model


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> dict[str, bytes]:
    image = _with_weights(IMAGE, w1=(16, 3, 8, 8), b1=(16,), w2=(16, 10))
    tokens = _with_weights(TOKENS, w=(32, 5), b=(5,))
    return {"model.onnx": image.SerializeToString(), "tagger.onnx": tokens.SerializeToString()}


@pytest.mark.parametrize("name", DOCUMENTS)
def test_blocks_of_a_document_run(
    name: str, models: dict[str, bytes], tmp_path: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    text = program((ROOT / name).read_text(encoding="utf-8"))
    if not any(line for line in text.split("\n")[1:]):
        return
    for file, data in models.items():
        (tmp_path / file).write_bytes(data)
    np.save(tmp_path / "image.npy", np.random.default_rng(1).random((1, 3, 224, 224), np.float32))
    (tmp_path / "run_dlc.py").write_text(RUN_DLC + inspect.getsource(entry_points), encoding="utf-8")
    script = tmp_path / f"{Path(name).stem}.py"
    script.write_text(text, encoding="utf-8")
    environment = {k: v for k, v in os.environ.items() if not k.startswith("DLC_")}
    own = (ROOT / name).parent
    if own.is_relative_to(ROOT / "examples" / "accelerators"):
        entry_points(own, tmp_path)
        environment["PYTHONPATH"] = os.pathsep.join([str(own), os.environ.get("PYTHONPATH", "")])
    environment |= {
        "DLC_CACHE_DIR": str(tmp_path_factory.getbasetemp() / "docs-cache"),
        "DLC_RECORDS_URL": str(tmp_path / "records.db"),
        "PYTHONPATH": os.pathsep.join([str(tmp_path), environment.get("PYTHONPATH", "")]).rstrip(os.pathsep),
        "NO_COLOR": "1",
    }
    done = subprocess.run(
        [sys.executable, "-W", "error", "-W", TORCH_WARNS, str(script)],
        cwd=tmp_path,
        env=environment,
        capture_output=True,
        text=True,
        stdin=subprocess.DEVNULL,
    )
    assert done.returncode == 0, f"{name}\n{done.stdout}\n{done.stderr}"


def entry_points(package: Path, folder: Path) -> None:
    """Let a folder on the path name the plugins of a package, as if it were installed."""
    text = (package / "pyproject.toml").read_text(encoding="utf-8")
    name = re.search(r'^name = "(.*)"', text, re.MULTILINE)
    listed = re.search(r"^\[project\.entry-points\.dlc\]\n((?:.+\n)*)", text, re.MULTILINE)
    assert name, package
    assert listed, package
    info = folder / f"{name.group(1).replace('-', '_')}-0.1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name.group(1)}\nVersion: 0.1.0\n")
    (info / "entry_points.txt").write_text("[dlc]\n" + listed.group(1).replace('"', ""))


@pytest.mark.parametrize("name", DOCUMENTS)
def test_blocks_are_run_or_state_why_not(name: str) -> None:
    found = complaints(name, (ROOT / name).read_text(encoding="utf-8"))
    assert not found, "\n".join(found)


@pytest.mark.parametrize("name", [*DOCUMENTS, "CONTRIBUTING.md", "CHANGELOG.md"])
def test_link_targets_exist(name: str) -> None:
    text = (ROOT / name).read_text(encoding="utf-8")
    outside = re.sub(r"^```.*?^```", "", text, flags=re.MULTILINE | re.DOTALL)
    for target in re.findall(r"\]\(([^)\s]+)\)", outside):
        if re.match(r"[a-z]+:", target):
            continue
        path, _, anchor = target.partition("#")
        file = (ROOT / name).parent / path if path else ROOT / name
        assert file.exists(), f"{name}: {target}"
        if anchor:
            assert anchor in _anchors(file.read_text(encoding="utf-8")), f"{name}: {target}"


def _anchors(text: str) -> set[str]:
    titles = re.findall(r"^#+ (.*)$", text, flags=re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-") for title in titles}


SAMPLE = """# Title

```python
x = 1
```

```bash
dlc targets          # a comment
dlc ops \\
    conv
```

<!-- not run: it installs packages -->

```bash
pip install dlc-core
```

```text
shown
```
"""


def test_programs_keep_the_lines_of_the_document() -> None:
    lines = program(SAMPLE).split("\n")
    assert lines[2:4] == ["begin_output()", "x = 1"]
    assert SAMPLE.split("\n")[3] == "x = 1"
    assert lines[7] == "run_dlc('dlc targets'); run_dlc('dlc ops      conv')"
    assert "pip" not in program(SAMPLE)
    assert complaints("sample", SAMPLE) == []


def test_blocks_that_are_not_run_are_reported() -> None:
    bare = SAMPLE.replace("<!-- not run: it installs packages -->", "")
    assert complaints("sample", bare) == [
        "sample:15: 'pip install dlc-core' is not run, and no comment says why"
    ]
    assert "language 'cpp'" in complaints("sample", "```cpp\n```")[0]
    assert "never run" in complaints("sample", "<!-- not run: why -->\n\n```text\n```")[0]


def test_printed_text_is_compared() -> None:
    shown = "```python\nprint(1)\n```\n\n<!-- prints -->\n\n```text\n1\n```\n"
    assert complaints("sample", shown) == []
    assert program(shown).split("\n")[6] == "check_output(['1'])"
    assert "only text after" in complaints("sample", f"{PRINTS}\n\n```text\n1\n```")[0]
