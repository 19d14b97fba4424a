"""Source text of artefacts: no compiler reads it unless it is allowed, and then no other file is read."""

from __future__ import annotations

from dataclasses import replace
from types import MappingProxyType

import numpy as np
import pytest

import dlc_core as dlc
from dlc_core.backend.compiler import compiler_problem
from dlc_core.backend.launches import read_launches
from dlc_core.config import config
from dlc_core.diag import ArtifactError, CodegenError, TargetError
from dlc_core.plugin.registry import registry
from dlc_core.target.artifact import CONFINED, FLAGS, REFUSED, Artifact
from dlc_core.target.c_text import INSTRUCTION, CText
from dlc_core.target.confined import Binary, PlainText, check_source, check_sources, quiet
from dlc_core.testing.networks import mlp
from tests.forging.files import forged

X = np.linspace(-1, 1, 64, dtype=np.float32).reshape(1, 64)
FILE = "/etc/hostname"
NAMING = [
    f'#include "{FILE}"',
    f"#include <{FILE}>",
    "#include <../../etc/hostname>",
    "#include <pthread.h>",
    f"#inc\\\nlude <{FILE}>",
    f"#inc\\  \nlude <{FILE}>",
    f"/* */ # /* */ include <{FILE}>",
    f"%:include <{FILE}>",
    f"??=include <{FILE}>",
    f"#define H <{FILE}>\n#include H",
    "#include_next <math.h>",
    "#import <math.h>",
    "import <math.h>;",
    f'#embed "{FILE}"',
    f'#line 1 "{FILE}"\nx',
    f'# 1 "{FILE}"\nx',
    f"#if __has_include(<{FILE}>)\n#endif",
    f'#if __has_embed("{FILE}")\n#endif',
    f'_Pragma("GCC dependency \\"{FILE}\\"")',
    f'#pragma GCC dependency "{FILE}"',
    '#pragma include_alias("a.h", "b.h")',
    f'asm(".incbin \\"{FILE}\\"");',
    f'__asm__(".include \\"{FILE}\\"");',
    f'asm volatile(".inc" "bin \\"{FILE}\\"");',
    'asm("\\x2eincbin x");',
    'asm(".section .init_array");',
    'asm("nop\\n.incbin x");',
    '#define M asm("nop"\n) f();\nM ".incbin x");',
    '#define volatile (".incbin x" :);\nasm volatile("nop");',
    "#define P(a, b) a##b\nP(as, m)(1);",
    "#define P(a) as##a\nP(m)(1);",
    f'__attribute__((section(".x\\n.incbin \\"{FILE}\\""))) int x;',
    '__attribute__((__section__(".init_array"))) int x;',
    "__attribute__((__constructor__)) void f(void) {}",
    f"int x;\r#include <{FILE}>",
    "int x;\0",
    f"int x; // ??/\n /*\n#include <{FILE}>\n/* */",
    f'char *a = "??/" /*";\n#include <{FILE}>\n/* */',
    f"int x = 1'0; /*\n#include <{FILE}>\n/* '*/",
    f"' /*\n#include <{FILE}>\n/* ' */",
    f'" /*\n#include <{FILE}>\n/* " */',
    f'char *a = R"(" /*)";\n#include <{FILE}>\n/* */',
    "int \\u0061sm;",
    "#pragma clang module import x",
]
"""Text by which compilers read other files, run code early, or disagree about comments and strings."""


def _artifact(code: bytes, **changes: object) -> Artifact:
    made = Artifact("some-c", code, "c", ("main",), reading=CONFINED)
    return replace(made, **changes)  # type: ignore[arg-type]


def _rules() -> dict[str, object]:
    """The rules of all text formats that are known here, and the default."""
    found: dict[str, object] = {"C": CText()}
    for owners in (registry().codegens, registry().devices):
        for name in owners:
            rules = getattr(owners[name], "source_formats", {})
            found |= {form: rule for form, rule in rules.items() if isinstance(rule, CText)}
    return found


@pytest.mark.parametrize("text", NAMING)
@pytest.mark.parametrize("form", sorted(_rules()))
def test_text_that_names_other_files_is_refused(form, text):
    with pytest.raises(ArtifactError, match="not given to a compiler"):
        _rules()[form].check(text.encode())


def test_generated_text_is_allowed():
    rule = CText(assembly=INSTRUCTION)
    rule.check(b"#include <math.h>\n#ifdef _OPENMP\n#pragma omp parallel for\n#endif\nint a; /* \"x's */\n")
    rule.check(b'char *a = "# include <no>", b = \'"\'; // #include "x"\n')
    rule.check(b"#pragma unroll\n#pragma GCC unroll 8\n#pragma OPENCL EXTENSION cl_khr_fp64 : enable\n")
    rule.check(b'__asm__ volatile("usat %0, #8, %1" : "=r"(n) : "r"(n));\n#define INT64_C(x) x##LL\n')
    with pytest.raises(ArtifactError, match="not ASCII"):
        rule.check("é".encode())
    with pytest.raises(ArtifactError, match="asm is not allowed"):
        CText().check(b'asm("nop");')
    with pytest.raises(ArtifactError, match=r"math\.h"):
        CText(headers=frozenset()).check(b"#include <math.h>\n")


@pytest.mark.parametrize(
    "option",
    ["-include", FILE, f"@{FILE}", "-fplugin=x.so", "-wrapper", "-B/tmp", "-I/etc", "-o", "-Wl,-T,x",
     "-Wa,--MD,x", "-specs=x", "-fdump-tree-all", "-x", "-mllvm", "-D_X=1", "-fprofile-use=x"],
)  # fmt: skip
def test_options_that_name_files_are_refused(option):
    with pytest.raises(ArtifactError, match="is not allowed"):
        CText().check(b"", ["-O3", option])
    for rule in (PlainText("x"), Binary(b"")):
        with pytest.raises(ArtifactError, match="is not allowed"):
            rule.check(b"", [option])


def test_the_rule_of_a_format_is_checked_for_the_device_and_the_code_generator():
    class Party:
        source_formats = MappingProxyType({"some-c": CText()})

    hostile = _artifact(f'#include "{FILE}"'.encode())
    for parties in ((Party(), None), (None, Party()), (object(), Party())):
        with pytest.raises(ArtifactError, match="not given to a compiler"):
            check_sources(hostile, *parties)
        with pytest.raises(ArtifactError, match="unless the caller allows it"):
            check_sources(_artifact(b"int x;", reading=REFUSED), *parties)
        check_sources(_artifact(b"int x;"), *parties)
        check_sources(replace(hostile, format="machine-code"), *parties)


def test_names_and_options_of_files_are_checked():
    for changes in (
        {"symbols": ("main(void);\n#include <x>\n",)},
        {"symbols": ("é",)},
        {"metadata": {FLAGS: "-O2"}},
        {"metadata": {FLAGS: [1]}},
        {"metadata": {FLAGS: ["-fplugin=x.so"]}},
    ):
        with pytest.raises(ArtifactError, match="not given to a compiler"):
            check_source(_artifact(b"int x;", **changes), CText())
    check_source(_artifact(b"int x;", metadata={FLAGS: ["-O2"]}), CText())


def test_other_languages_and_objects_are_checked():
    with pytest.raises(ArtifactError, match="not an object file"):
        Binary(b"\x7fELF").check(b"INPUT(/etc/hostname)")
    Binary(b"\x7fELF").check(b"\x7fELF...")
    with pytest.raises(ArtifactError, match="module"):
        PlainText(r"module +asm").check(b'module asm ".incbin x"')
    PlainText(r"module +asm").check(b"define void @f()")


def test_errors_do_not_quote_files():
    def fails(artifact: Artifact) -> None:
        with quiet(artifact):
            raise CodegenError("cc refuses the text", details=["/etc/hostname:1: secret"])

    with pytest.raises(CodegenError, match="secret"):
        fails(_artifact(b"", reading="generated"))
    with pytest.raises(CodegenError) as caught:
        fails(_artifact(b""))
    assert "secret" not in str(caught.value)
    assert "are not shown" in str(caught.value)


needs_compiler = pytest.mark.skipif(compiler_problem() is not None, reason=str(compiler_problem()))


@needs_compiler
def test_a_compiler_reads_a_file_only_if_it_is_allowed(tmp_path):
    pytest.importorskip("dlc_backend_c", reason="the C backend is not installed")
    exe = dlc.compile(mlp(), "c", cache=False)
    path = tmp_path / "m.dlc"
    exe.save(path)
    np.testing.assert_array_equal(dlc.open(path)(X), exe(X))  # this user's dlc wrote it
    with config.override(keys_dir=tmp_path / "keys"):
        with pytest.raises(ArtifactError, match="which a compiler of this machine would read"):
            dlc.open(path, trust=True)
        np.testing.assert_array_equal(dlc.open(path, trust=True, compile_source=True)(X), exe(X))


@needs_compiler
def test_errors_of_compilers_about_files_are_short(tmp_path):
    pytest.importorskip("dlc_backend_c", reason="the C backend is not installed")
    exe = dlc.compile(mlp(), "c", cache=False)
    exe.artifact = replace(exe.artifact, code=exe.artifact.code + b"int here_is_a_secret = x;\n")
    exe.save(tmp_path / "m.dlc")
    with pytest.raises(CodegenError, match="refuses the generated C") as caught:
        dlc.open(tmp_path / "m.dlc")(X)
    assert "secret" not in str(caught.value)


@pytest.mark.parametrize(
    "target", ["c", "cuda_simulated", "opencl_simulated", "c_emulated -mcpu=cortex-a72", "wasm32"]
)
def test_no_target_opens_files_whose_text_names_other_files(target, tmp_path):
    try:
        exe = dlc.compile(mlp(), target, cache=False)
    except TargetError as error:
        pytest.skip(f"{target} is not installed: {error.what}")
    exe.save(tmp_path / "good.dlc")
    exe.artifact = replace(exe.artifact, code=f'#include "{FILE}"\n'.encode() + exe.artifact.code)
    exe.save(tmp_path / "bad.dlc")
    with pytest.raises(ArtifactError, match="not given to a compiler"):
        dlc.open(tmp_path / "bad.dlc")
    with config.override(keys_dir=tmp_path / "keys"):
        for name in ("good", "bad"):
            with pytest.raises(ArtifactError, match="unless the caller allows it"):
                dlc.open(tmp_path / f"{name}.dlc", trust=True)


@pytest.mark.parametrize("name", ['x"); f("', "a b", "a\n#include <x>", "é", ""])
@pytest.mark.parametrize("key", ["buffers", "shared", "symbol"])
def test_names_of_kernels_in_files_are_words(key, name):
    """Simulators write them into C."""
    kernel = {
        "symbol": "k",
        "buffers": [["x", 4, True]],
        "scalars": [],
        "order": "b",
        "shared": [],
        "meets": False,
    }
    data = {"exprs": [], "kernels": [kernel], "entries": {}}
    read_launches(data)
    kernel[key] = {"buffers": [[name, 4, True]], "shared": [[name, 4]], "symbol": name}[key]
    with pytest.raises(ArtifactError, match="is not a symbol"):
        read_launches(data)


def test_a_code_generator_that_does_not_make_the_format_is_refused(tmp_path):
    """Otherwise it would read code as text that no rule has checked."""
    pytest.importorskip("dlc_backend_c", reason="the C backend is not installed")
    path = tmp_path / "m.dlc"
    dlc.compile(mlp(), "reference", cache=False).save(path)
    path.write_bytes(forged(path.read_bytes(), lambda header: header.update(codegen="c"), contract=True))
    with pytest.raises(ArtifactError, match="'c' does not make the format"):
        dlc.open(path, trust=True, compile_source=True)
