"""Folders of models: from the onnx package, files of a folder or git folder, Python tests."""

from __future__ import annotations

import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from tempfile import TemporaryDirectory

import onnx
import onnx.backend.test as backend
from google.protobuf import text_format

from benchmarks.suites.storage import DATA, save

ENDINGS = (".onnx", ".prototxt")


def from_backend(folder: Path) -> int:
    """Write the backend tests of the onnx package with their data: of nodes, and of small networks."""
    from dlc_frontend_onnx.testing.suite import as_array, cases

    count = 0
    for case in cases():
        names = [info.name for info in case.model.graph.input]
        inputs, outputs = ([as_array(item) for item in part] for part in case.data_sets[0])
        place = folder / "node" / case.name
        save(place, case.model.SerializeToString(), dict(zip(names, inputs)), outputs)
        count += 1
    source = Path(backend.__file__).parent / "data"
    for path in sorted(source.rglob("model.onnx")):
        shutil.copytree(path.parent, folder / path.parent.relative_to(source), dirs_exist_ok=True)
        count += 1
    return count


def from_files(folder: Path, source: Path, under: Sequence[str]) -> int:
    """Copy models below a folder, or below paths of the last commit of a git folder; returns their number.

    A `.prototxt` is a model as text. Files beside the models are copied too: they may be external data.
    """
    if (source / "HEAD").is_file() and (source / "objects").is_dir():
        with TemporaryDirectory(prefix="dlc-suites-") as place:
            _unpack(source, Path(place), under)
            return _models(folder, Path(place))
    return sum(_models(folder, source / each) for each in under) if under else _models(folder, source)


def _unpack(repository: Path, place: Path, under: Sequence[str]) -> None:
    """Write the files of the last commit. Those that a partial copy lacks are left out."""
    git = ["git", "--git-dir", str(repository)]
    listed = subprocess.run(
        [*git, "ls-tree", "-r", "-z", "HEAD", *under], check=True, capture_output=True, text=True
    ).stdout
    entries = [entry.split("\t", 1) for entry in listed.split("\0") if entry]
    files = [(about.split()[2], path) for about, path in entries if about.startswith("100")]
    wanted = "".join(f"{key}\n" for key, _ in files).encode()
    content = subprocess.run(
        [*git, "cat-file", "--batch"], check=False, input=wanted, capture_output=True
    ).stdout
    at = 0
    for _, path in files:
        end = content.index(b"\n", at)
        head, at = content[at:end].split(), end + 1
        if head[-1] == b"missing":
            continue
        size = int(head[2])
        file = place / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(content[at : at + size])
        at += size + 1


def _models(folder: Path, source: Path) -> int:
    found = [path for ending in ENDINGS for path in sorted(source.rglob(f"*{ending}"))]
    for path in found:
        place = folder / path.relative_to(source).with_suffix(".onnx")
        place.parent.mkdir(parents=True, exist_ok=True)
        if path.suffix == ".onnx":
            shutil.copyfile(path, place)
        elif not _convert(path, place):
            continue
    for path in {each.parent for each in found}:
        for other in path.iterdir():
            if other.is_file() and other.suffix not in ENDINGS:
                shutil.copyfile(other, folder / path.relative_to(source) / other.name)
            elif other.name == DATA:
                shutil.copytree(other, folder / path.relative_to(source) / DATA, dirs_exist_ok=True)
    return len(found)


def _convert(path: Path, place: Path) -> bool:
    """Write a model in text form as a file; False if it is no ONNX model."""
    try:
        model = text_format.Parse(path.read_text(), onnx.ModelProto())
    except (text_format.ParseError, UnicodeDecodeError):
        return False
    place.write_bytes(model.SerializeToString())
    return True


def from_tests(folder: Path, files: Sequence[Path], stubs: Sequence[str], options: Sequence[str]) -> int:
    """Run Python tests and save the models and inputs that they give to onnxruntime; see `capturing`."""
    command = [sys.executable, "-W", "ignore", "-m", "benchmarks.suites.capturing", str(folder.absolute())]
    before = len(list(folder.glob("*/model.onnx")))
    arguments = [",".join(stubs), *(str(file.absolute()) for file in files), *options]
    subprocess.run([*command, *arguments], check=False, stdout=sys.stderr)
    return len(list(folder.glob("*/model.onnx"))) - before
