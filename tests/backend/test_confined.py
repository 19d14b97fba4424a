"""Source text of artefacts: no compiler reads it unless it is allowed, and then no other file is read."""

from __future__ import annotations

import numpy as np
import pytest

import dlc_core as dlc
from dlc_core.backend.compiler import compiler_problem
from dlc_core.backend.confined import check_options, check_source
from dlc_core.config import config
from dlc_core.diag import ArtifactError
from dlc_core.testing.networks import mlp

X = np.linspace(-1, 1, 64, dtype=np.float32).reshape(1, 64)


@pytest.mark.parametrize(
    "text",
    [
        '#include "/etc/hostname"',
        "#include </etc/hostname>",
        "#include <../../etc/hostname>",
        "#include <pthread.h>",
        "#inc\\\nlude </etc/hostname>",
        "#inc\\  \nlude </etc/hostname>",
        "/* */ # /* */ include </etc/hostname>",
        "%:include </etc/hostname>",
        "??=include </etc/hostname>",
        "#define H </etc/hostname>\n#include H",
        "#include_next <math.h>",
        "#import <math.h>",
        '#embed "/etc/hostname"',
        '#line 1 "/etc/hostname"\nx',
        '# 1 "/etc/hostname"\nx',
        "#if __has_include(</etc/hostname>)\n#endif",
        '_Pragma("GCC dependency \\"/etc/hostname\\"")',
        '#pragma GCC dependency "/etc/hostname"',
        'asm(".incbin \\"/etc/hostname\\"");',
        '__asm__(".include \\"/etc/hostname\\"");',
        "#define P(a, b) a##b\nP(as, m)(1);",
        '__attribute__((section(".x\\n.incbin \\"/etc/hostname\\""))) int x;',
        "int x;\r#include </etc/hostname>",
        "int x;\0",
        "' /*\n#include </etc/hostname>\n/* ' */",
        '" /*\n#include </etc/hostname>\n/* " */',
        'char *a = R"(" /*)";\n#include </etc/hostname>\n/* */',
        "#pragma clang module import x",
    ],
)
def test_text_that_names_other_files_is_refused(text):
    with pytest.raises(ArtifactError, match="not given to a compiler"):
        check_source(text.encode())


def test_generated_text_is_allowed():
    check_source(b'#include <math.h>\n#ifdef _OPENMP\n#pragma omp parallel for\n#endif\nint a; /* "x */\n')
    check_source(b'char *a = "# include <no>"; // #include "x"\n')
    with pytest.raises(ArtifactError):
        check_source("é".encode())


@pytest.mark.parametrize(
    "option",
    ["-include", "/etc/hostname", "@/etc/hostname", "-fplugin=x.so", "-wrapper", "-B/tmp", "-I/etc", "-o",
     "-Wl,-T,x", "-Wa,--MD,x", "-specs=x", "-fdump-tree-all", "-x", "-mllvm", "-D_X=1", "-fprofile-use=x"],
)  # fmt: skip
def test_options_that_name_files_are_refused(option):
    with pytest.raises(ArtifactError, match="is not allowed"):
        check_options(["-O3", option])


@pytest.mark.skipif(compiler_problem() is not None, reason=str(compiler_problem()))
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
