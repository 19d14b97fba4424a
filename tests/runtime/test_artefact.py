"""Artefact files: written files are read, damaged ones are refused."""

from __future__ import annotations

import errno
import hashlib
import json
import mmap
import random
import struct

import numpy as np
import pytest

import dlc_core as dlc
from dlc_core.arith import eval_expr
from dlc_core.diag import ArtifactError, DlcError, UnsupportedError
from dlc_core.ir.expr import Var, binary, call, cast_to, const, eq, maximum, select
from dlc_core.ir.types import tensor_type
from dlc_core.runtime.artefact import container
from dlc_core.runtime.artefact.container import PAGE, read_container
from dlc_core.runtime.artefact.writing import write_container
from dlc_core.runtime.interface.encode import decode_signature, encode_signature
from dlc_core.runtime.interface.signature import Signature, Value
from tests.forging.files import forged

X = np.linspace(-1, 1, 12, dtype=np.float32).reshape(2, 6)


def test_save_and_open(target, models, tmp_path):
    exe = dlc.compile(models.rows(), target)
    exe.save(tmp_path / "m.dlc")
    again = dlc.open(tmp_path / "m.dlc")
    assert str(again.signature) == str(exe.signature)
    assert again.target == exe.target
    np.testing.assert_array_equal(again(X), exe(X))
    assert not again.weights.flags.writeable
    assert again.weights.ctypes.data % 64 == 0
    exe.save(tmp_path / "n.dlc")
    assert (tmp_path / "m.dlc").read_bytes() == (tmp_path / "n.dlc").read_bytes()
    again.save(tmp_path / "m.dlc")  # onto the file that its own weights are mapped from
    np.testing.assert_array_equal(again(X), exe(X))
    np.testing.assert_array_equal(dlc.open(tmp_path / "m.dlc", verify=True)(X), exe(X))


def test_saves_the_requested_sources(devices, models, tmp_path):
    exe = dlc.compile(models.dense(), "shared")
    exe.save(tmp_path / "m.dlc", sources=("graph",))
    assert dlc.open(tmp_path / "m.dlc").source("graph") == exe.source("graph")


def test_a_mapped_file_is_not_read(devices, models, tmp_path):
    exe = dlc.compile(models.dense(), "shared")
    exe.save(tmp_path / "m.dlc")
    owner = dlc.open(tmp_path / "m.dlc", mapped=True).weights
    while isinstance(owner, np.ndarray):
        owner = owner.base
    owner = owner.obj if isinstance(owner, memoryview) else owner
    assert isinstance(owner, mmap.mmap)


@pytest.fixture
def saved(devices, models, tmp_path):
    """The bytes of a valid artefact, and a function that opens other bytes as an artefact."""
    exe = dlc.compile(models.dense(), "reference")
    path = tmp_path / "good.dlc"
    exe.save(path)

    def attempt(data, **options):
        bad = tmp_path / "bad.dlc"
        bad.write_bytes(data)
        return dlc.open(bad, trust=True, **options)

    return path.read_bytes(), attempt


def test_refuses_files_that_are_not_artefacts(saved, tmp_path):
    data, attempt = saved
    for other, message in (
        (b"", "is not an artefact"),
        (b"\x08\x07onnx", "is not an artefact"),
        (data.replace(b"\r\n", b"\n", 1), "is not an artefact"),
        (data[:20], "shorter than the prefix of an artefact"),
        (data[:60], "header is longer than the file"),
        (data[: -PAGE - 100], "the file has"),
        (data[:-1], "bytes follow its last section"),
        (data + b"\0", "bytes follow its last section"),
        (data[:-16] + bytes(7) + b"\1" + b"DLCSEALS", "seals of the artefact are malformed"),
        (data[:8] + struct.pack("<I", 99) + data[12:], "format 99, this version of dlc reads 1"),
        (data[:100] + b"X" + data[101:], "checksum of its header"),
    ):
        with pytest.raises(ArtifactError, match=message):
            attempt(other)
    with pytest.raises(ArtifactError, match="cannot be read\n  because no such file"):
        dlc.open(tmp_path / "missing.dlc")
    with pytest.raises(ArtifactError, match="cannot be read"):
        dlc.open(tmp_path)


def test_other_files_are_not_read_to_memory(tmp_path, monkeypatch):
    def refuse(*args):
        raise AssertionError("the file is read")

    monkeypatch.setattr(container, "_memory", refuse)
    path = tmp_path / "large.dlc"
    with path.open("wb") as file:
        file.truncate(1 << 40)
    with pytest.raises(ArtifactError, match="is not an artefact"):
        dlc.open(path, trust=True)


def test_finds_flipped_bits(saved):
    data, attempt = saved
    attempt(data, verify=True)
    for position in (len(data) - 1, PAGE + 5, PAGE * 2 + 1):
        flipped = bytearray(data)
        flipped[position] ^= 4
        with pytest.raises(ArtifactError, match="damaged"):
            attempt(bytes(flipped), verify=True)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda h: h.update(target="nowhere -x=1"), "target 'nowhere -x=1', which is not known here"),
        (lambda h: h.update(device="nowhere"), "is not known here"),
        (lambda h: h.update(format="steam"), "does not run the format 'steam'"),
        (lambda h: h.pop("signature"), "signature"),
        (lambda h: h.update(entry=7), "header of .* is malformed"),
        (lambda h: h.update(symbols=[7]), "header of .* is malformed"),
        (lambda h: h.update(metadata=[]), "header of .* is malformed"),
        (lambda h: h["sections"].pop(), "bytes follow"),
        (lambda h: h.update(sections=[]), "lists no sections"),
        (lambda h: h["sections"][1].update(offset=-1), "malformed"),
        (lambda h: h["sections"][0].update(size=1 << 60), "ends at byte"),
        (lambda h: h["sections"][0].update(sha256="0" * 64), "damaged"),
        (lambda h: h["sections"][1].update(name="code"), "malformed"),
        (lambda h: h["signature"].update(weights=1), "weights of .* have the wrong size"),
        (lambda h: h["signature"].update(arena=99), "signature in the artefact is malformed"),
        (lambda h: h["signature"]["inputs"][0].update(dtype="float32x8"), "dtype float32x8"),
        (lambda h: h["signature"]["inputs"][0].update(dtype="nothing"), "malformed"),
        (lambda h: h["signature"]["inputs"][0].update(shape=[-1, 6]), "malformed"),
        (lambda h: h["signature"].update(exprs=[["const", 1 << 63]]), "not an integer from"),
        (lambda h: h["signature"].update(exprs=[["mul", 0, 0]]), "malformed"),
        (lambda h: h["signature"].update(exprs=[["system", "rm"]]), "malformed"),
        (lambda h: h["signature"].update(exprs=[["const", 5], ["floordiv", 0, True]]), "malformed"),
    ],
)
def test_refuses_inconsistent_headers(saved, change, message):
    data, attempt = saved
    with pytest.raises(ArtifactError, match=message):
        attempt(forged(data, change, contract=True))


def test_damaged_files_raise_only_dlc_errors(saved):
    """500 damaged artefacts, half of them with a right checksum of the header."""
    data, attempt = saved
    rng = random.Random(5)
    _, _, length, _ = struct.unpack_from("<8sII32s", data)
    opened = 0
    for iteration in range(500):
        changed = bytearray(data)
        for _ in range(rng.randint(1, 6)):
            position = rng.randrange(48 + length) if rng.random() < 0.7 else rng.randrange(len(changed))
            kind = rng.randrange(4)
            if kind == 0:
                changed[position] = rng.randrange(256)
            elif kind == 1:
                del changed[position : position + rng.randint(1, 9)]
            elif kind == 2:
                changed[position:position] = rng.randbytes(rng.randint(1, 9))
            elif 48 < position < 48 + length:
                changed[position : position + 1] = rng.choice(
                    [b"-1", b"1e99", b"null", b"[", b"9" * 30, b'"']
                )
        if iteration % 2 and len(changed) > 48 + length:
            digest = hashlib.sha256(bytes(changed[48 : 48 + length])).digest()
            changed[:48] = struct.pack("<8sII32s", data[:8], 1, length, digest)
        try:
            exe = attempt(bytes(changed), verify=bool(iteration % 4))
            opened += 1
            exe(X)
        except DlcError:
            continue
    assert opened < 250


def test_sections_are_aligned_and_deterministic(tmp_path):
    parts = [("a", b"x" * 5), ("b", b""), ("c", memoryview(b"y" * PAGE)), ("d", b"z")]
    write_container(tmp_path / "one", {"k": [1, None, "é"]}, parts)
    write_container(tmp_path / "two", {"k": [1, None, "é"]}, parts)
    assert (tmp_path / "one").read_bytes() == (tmp_path / "two").read_bytes()
    opened = read_container(tmp_path / "one")
    assert opened.header["k"] == [1, None, "é"]
    for name, data in parts:
        view = opened.sections[name]
        assert bytes(view) == bytes(data)
        assert not view.nbytes or np.frombuffer(view, np.uint8).ctypes.data % PAGE == 0
    opened.verify("a", "b", "c", "d")


def test_a_full_disk_keeps_the_old_file(tmp_path, monkeypatch):
    path = tmp_path / "m.dlc"
    write_container(path, {}, [("a", b"old")])
    before = path.read_bytes()

    def full(_):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(container.os, "fsync", full)
    with pytest.raises(ArtifactError, match="cannot be written\n  because no space left on device"):
        write_container(path, {}, [("a", b"new" * 1000)])
    assert path.read_bytes() == before
    assert [p.name for p in tmp_path.iterdir()] == ["m.dlc"]
    with pytest.raises(ArtifactError, match="no such file"):
        write_container(tmp_path / "no" / "m.dlc", {}, [("a", b"")])


def test_signatures_keep_dim_expressions():
    n, m, n2 = Var("n"), Var("m"), Var("n")
    dims = [
        n, m * 2 + 1, (n + m) // 3, n % 4, maximum(n, m), n - m, n2 * n,
        select(eq(n, const(1)), m, n), binary("truncdiv", n - 7, const(2)), const(5),
    ]  # fmt: skip
    inputs = tuple(Value(v.name, tensor_type((v,))) for v in (n, m, n2))
    outputs = (Value("y", tensor_type(dims, "bfloat16")),)
    signature = Signature(inputs, outputs, (n, m, n2), n * m * 64, 128)
    text = json.dumps(encode_signature(signature))
    again = decode_signature(json.loads(text))
    assert str(again) == str(signature)
    assert again.outputs[0].type.dtype is outputs[0].type.dtype
    for values in ((9, 4, 2), (7, 7, 1), (15, 0, 7)):
        env, new = dict(zip((n, m, n2), values)), dict(zip(again.symbols, values))
        for old_dim, new_dim in zip(outputs[0].type.dim_exprs(), again.outputs[0].type.dim_exprs()):
            assert eval_expr(old_dim, env) == eval_expr(new_dim, new)
        assert again.plan([(v,) for v in values]) == signature.plan([(v,) for v in values])


def test_refuses_dims_that_are_not_arithmetic():
    n = Var("n")
    for size in (call("abs", (n,), "int64"), cast_to("int64", cast_to("int8", n))):
        with pytest.raises(UnsupportedError, match="cannot be saved"):
            encode_signature(Signature((), (), (n,), size, 0))
