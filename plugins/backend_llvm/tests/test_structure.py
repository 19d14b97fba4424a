"""Objects with another structure than generated code are refused before they are mapped."""

from __future__ import annotations

import struct
from functools import cache

import numpy as np
import pytest
from dlc_backend_llvm.elf import HEADER, RELA, RELOCATION, SECTION, SYMBOL, SYMTAB, read_elf
from dlc_backend_llvm.form import ENTRY_SUFFIX
from dlc_backend_llvm.pool import pool
from dlc_backend_llvm.structure import _is_known, check_structure

import dlc_core as dlc
from dlc_core.diag import ArtifactError
from dlc_core.testing.networks import mlp
from tests.forging.files import forged_code
from tests.forging.models import COMPILED


@cache
def _made():
    return dlc.compile(mlp(), "llvm", cache=False)


@pytest.fixture
def artifact():
    found = _made().artifact
    if read_elf(found.code) is None:
        pytest.skip("objects of this machine are not 64-bit ELF")
    return found


def check(code, artifact):
    pool()  # it adds the symbols that generated code refers to
    check_structure(bytes(code), [symbol + ENTRY_SUFFIX for symbol in artifact.symbols])


def place(code, kind, number, form):
    """The offset in the file of an entry in the first table of a kind."""
    section = next(s for s in read_elf(bytes(code)).sections if s.kind == kind)
    start = SECTION.unpack_from(code, HEADER.unpack_from(code)[6] + SECTION.size * section.index)[4]
    return start + number * form.size


def change(code, offset, form, field, value):
    fields = list(form.unpack_from(code, offset))
    fields[field] = value
    form.pack_into(code, offset, *fields)


def symbol_number(code, fits):
    return next(n for n, symbol in enumerate(read_elf(bytes(code)).symbols) if fits(symbol))


def header(code, name):
    """The offset of the header of a section."""
    section = next(s for s in read_elf(bytes(code)).sections if s.name == name)
    return HEADER.unpack_from(code)[6] + SECTION.size * section.index


def outer(symbol):
    return symbol.section == 0 and symbol.name == "dlc_stop_look"


def entry(symbol):
    return symbol.name.endswith(ENTRY_SUFFIX)


def rename(code, old, new):
    at = code.index(b"\0" + old + b"\0") + 1
    code[at : at + len(old)] = new.ljust(len(old), b"\0")


def symbols(code, fits, field, value):
    change(code, place(code, SYMTAB, symbol_number(code, fits), SYMBOL), SYMBOL, field, value)


def relocation(code, field, value):
    change(code, place(code, RELA, 0, RELOCATION), RELOCATION, field, value)


CHANGES = {
    "refers to 'system'": lambda code: rename(code, b"dlc_stop_look", b"system"),
    "has no function 'main__entry'": lambda code: rename(code, b"main__entry", b"other"),
    "is outside of its section": lambda code: symbols(code, entry, 4, 1 << 40),
    "is of kind 10": lambda code: symbols(code, entry, 1, 0x1A),
    "is in no section": lambda code: symbols(code, entry, 3, 0xFF00),
    "is writeable and executable": lambda code: change(code, header(code, b".text"), SECTION, 2, 7),
    "is for a loader of programs": lambda code: change(code, header(code, b".rodata.cst4"), SECTION, 1, 14),
    "a relocation is outside": lambda code: relocation(code, 0, 1 << 40),
    "there is no symbol": lambda code: relocation(code, 1, (60_000 << 32) | 2),
    "leads outside of the section": lambda code: local_reference(code, 1 << 40),
    "it is not relocatable": lambda code: struct.pack_into("<H", code, 16, 3),
}


def local_reference(code, addend):
    """Change the addend of a reference to a symbol of the object."""
    found = read_elf(bytes(code))
    section = next(s for s in found.sections if s.kind == RELA)
    entries = list(RELOCATION.iter_unpack(section.data))
    number = next(n for n, (_, info, _) in enumerate(entries) if found.symbol(info >> 32).section)
    change(code, place(code, RELA, number, RELOCATION), RELOCATION, 2, addend)


@pytest.mark.parametrize("why", CHANGES)
def test_changed_objects_are_refused(artifact, why):
    code = bytearray(artifact.code)
    check(code, artifact)
    CHANGES[why](code)
    with pytest.raises(ArtifactError, match=why.replace("'", ".")):
        check(code, artifact)


def test_a_trusted_file_with_such_an_object_is_not_mapped(artifact, tmp_path):
    path = tmp_path / "m.dlc"
    _made().save(path)

    def damage(code):
        rename(code, b"dlc_stop_look", b"system")

    path.write_bytes(forged_code(path.read_bytes(), damage))
    exe = dlc.open(path, trust=True)
    with pytest.raises(ArtifactError, match="refers to 'system'"):
        exe(np.zeros((1, 64), np.float32))


@pytest.mark.parametrize("name", COMPILED)
def test_generated_objects_have_the_structure(artifact, name):
    module = COMPILED[name]()
    exe = dlc.build(module, "llvm") if name == "programs" else dlc.compile(module, "llvm", cache=False)
    check(exe.artifact.code, exe.artifact)


def test_names_of_the_runtime_are_known():
    for name in (
        "memcpy",
        "fmodf",
        "sincos",
        "exp2",
        "__divti3",
        "__truncsfhf2",
        "__extendhfsf2",
        "__floattisf",
    ):
        assert _is_known(name), name
    for name in ("__fixunssfti", "__truncdfbf2", "__udivmodti4", "__gnu_h2f_ieee", "llround", "tgammal"):
        assert _is_known(name), name
    for name in (
        "system",
        "dlopen",
        "mprotect",
        "execve",
        "open",
        "write",
        "PyRun_SimpleString",
        "__tls_get_addr",
    ):
        assert not _is_known(name), name
