"""Export of models as C sources, which need neither Python nor dlc. The header lists all memory that they
use.

    exe.export("net.c")       net.c and net.h
    exe.export("net.h")       both in one file; define NET_IMPLEMENTATION in one source that includes it
    exe.export("folder/")     net.c, net.h, an example main.c, a Makefile, a CMakeLists.txt and a README

Scratch memory is a static arena, or memory that the caller passes. Weights are constant arrays. With the
target option `-weights=binary` they are a file that the caller reads or maps. With `-weights=object` they are
a file that a few lines of assembly include in an object, in a section for the linker script.
"""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from dlc_backend_c.bounds import bounds_of
from dlc_backend_c.hosted import run_lines, static_entries
from dlc_backend_c.project import argument_names, project_files, stored_type
from dlc_core.backend.deploy import HostProgram
from dlc_core.backend.emission import PACKED
from dlc_core.diag import ArtifactError, UnsupportedError
from dlc_core.foreign.needed import link_lines
from dlc_core.ir.dtype import DType, dtype
from dlc_core.ir.expr import const_value
from dlc_core.runtime.interface.signature import Signature, Value
from dlc_core.runtime.library import c_name
from dlc_core.runtime.memory.host import bytes_of
from dlc_core.target.source import C99
from dlc_core.target.source.helpers import PREFIX
from dlc_core.target.source.tokens import RESERVED, Names, commented, folded, literal, quoted

if TYPE_CHECKING:
    from dlc_core.runtime.executable import Executable


def export(exe: Executable, path: Path) -> list[Path]:
    """Write the sources, and return the written files. Raises UnsupportedError for models with symbolic dims,
    and ArtifactError if files cannot be written.
    """
    folder = path.is_dir() or not path.suffix
    if not folder and path.suffix not in (".c", ".h"):
        raise UnsupportedError(
            f"{path.name} is not a C source", hint="name a file that ends with .c or .h, or a folder"
        )
    name = _model_name(path.name if folder else path.stem)
    sources = Sources(exe, name)
    try:
        if folder:
            path.mkdir(parents=True, exist_ok=True)
            files = sources.files()
            bounds = bounds_of(files, name, exe.target, sources.signature.weights_size, sources.arena)
            project = project_files(name, sources.signature, sources.weights, bounds, sources.host)
            return _write(path, {**files, **project})
        if path.suffix == ".h":
            return _write(path.parent, sources.files(single=path.name))
        return _write(path.parent, sources.files())
    except OSError as error:
        why = (error.strerror or str(error)).lower()
        raise ArtifactError(f"{path} cannot be written", why=why) from None


_TAKEN = {
    "dlc",
    "errno",
    "limits",
    "main",
    "math",
    "stdbool",
    "stddef",
    "stdint",
    "stdio",
    "stdlib",
    "string",
    "time",
}


def _model_name(text: str) -> str:
    """The name of a model, derived from the name of its file. It differs from names of C, its headers and the
    example.
    """
    name = c_name(text).lower()
    if name.startswith("_"):
        name = f"model{name.rstrip('_')}"
    return f"{name}_model" if name in _TAKEN or name in RESERVED else name


def _write(folder: Path, files: dict[str, str | bytes]) -> list[Path]:
    paths = []
    for name, content in files.items():
        path = folder / name
        path.write_bytes(content if isinstance(content, bytes) else content.encode())
        paths.append(path)
    return paths


class Sources:
    """The C sources of an executable."""

    def __init__(self, exe: Executable, name: str) -> None:
        if not exe.signature.is_static:
            raise UnsupportedError(
                "C sources need fixed sizes",
                why=f"the model is {exe.signature}",
                hint='fix its dims, for example dlc.compile(path, "c", shapes={"batch": 1})',
            )
        self.exe = exe
        self.name = name
        self.macro = name.upper()
        self.host = None if exe.program is None else HostProgram(exe, name, f"{self.macro}_ERROR_DEVICE")
        self.signature: Signature = exe.signature
        self.data = exe.weights
        """The bytes of the weights."""
        if self.host is not None:
            self.data = self.host.weights
            self.signature = replace(self.host.signature, weights_size=self.data.nbytes)
        self.weights: str = exe.target["weights"] if self.signature.weights_size else "array"
        self.binary = self.weights == "binary"
        self.arena = int(const_value(self.signature.arena_size) or 0)
        self.checked = bool(self.signature.sites)
        self.inputs, self.outputs = argument_names(name, self.signature)

    def files(self, single: str = "") -> dict[str, str | bytes]:
        """The contents of the files, by name."""
        header, source = self.header(), self.source()
        out: dict[str, str | bytes]
        if single:
            inner = own_names(source.replace(f'#include "{self.name}.h"\n\n', ""), self.name)
            out = {single: f"{header}\n#ifdef {self.macro}_IMPLEMENTATION\n\n{inner}\n#endif\n"}
        else:
            out = {f"{self.name}.h": header, f"{self.name}.c": source}
        if self.weights != "array":
            out[f"{self.name}_weights.bin"] = bytes(bytes_of(self.data))
        if self.weights == "object":
            out[f"{self.name}_weights.S"] = self._assembly()
        if self.host is not None:
            out.update(self.host.files())
        return out

    # The interface

    def _head(self) -> str:
        """The declaration of the function that runs the model."""
        ins = [
            f"const {stored_type(value.dtype)} *{name}"
            for value, name in zip(self.signature.inputs, self.inputs, strict=True)
        ]
        outs = [
            f"{stored_type(value.dtype)} *{name}"
            for value, name in zip(self.signature.outputs, self.outputs, strict=True)
        ]
        params = [*ins, *outs, *(["const void *weights"] if self.binary else ()), "void *workspace"]
        return "\n".join(folded(f"int {self.name}_run({', '.join(params)})"))

    def header(self) -> str:
        macro, name = self.macro, self.name
        macros = [
            f"#define {macro}_ARENA_NEEDED {self.arena}",
            f"#define {macro}_WEIGHTS_BYTES {self._weights()}",
        ]
        for kind, values in (("INPUT", self.signature.inputs), ("OUTPUT", self.signature.outputs)):
            for number, value in enumerate(values):
                macros += _macros(f"{macro}_{kind}{number}", value)
        aligned = "Weights and workspace are aligned" if self.binary else "The workspace is aligned"
        return f"""\
/* {name}: a model as C, generated by dlc for "{commented(str(self.exe.target))}".

   {self._state()}  Arrays are row-major and contiguous.

   Memory: {self._weights()} bytes of constants, {self.arena} bytes of scratch memory (the arena).
   {name}.c defines a static arena, which calls without a workspace use, unless {macro}_NO_ARENA is defined.
   {macro}_ARENA_BYTES sets its size, at least {macro}_ARENA_NEEDED.
{self._linked()}*/
#ifndef {macro}_H
#define {macro}_H

#include <stddef.h>
#include <stdint.h>

{chr(10).join(macros)}

#define {macro}_OK 0
#define {macro}_ERROR_NULL (-1)      /* a pointer is NULL that may not be */
#define {macro}_ERROR_ALIGNMENT (-2) /* workspace or weights are not aligned to {macro}_ALIGNMENT */
{self._failed()}#define {macro}_ALIGNMENT {self._alignment()}

#ifdef __cplusplus
extern "C" {{
#endif

/* Run the model.
{self._arguments()}
   {aligned} to {macro}_ALIGNMENT.  Concurrent calls need separate workspaces.
   Returns {macro}_OK or an error. */
{self._head()};
{self._devices()}
#ifdef __cplusplus
}}
#endif
#endif
"""

    def _linked(self) -> str:
        """The foreign functions that must be linked, as lines of a comment."""
        lines = link_lines(self.exe.artifact.metadata)
        rows = "".join(f"     {commented(line)}\n" for line in lines)
        about = "\n   It calls these functions, which the program must define or be linked to:\n"
        return f"{about}{rows}" if lines else ""

    def _state(self) -> str:
        """The sentence of the header about state."""
        if self.host is None:
            return "It allocates nothing and has no state."
        return "Its state is memory on devices."

    def _devices(self) -> str:
        """The functions of a model with regions on devices."""
        return "" if self.host is None else f"\n{self.host.declarations(weights=self.binary)}"

    def _failed(self) -> str:
        """The error codes of models with checked accesses, and of those with regions on devices."""
        check = "/* an index was out of range; outputs may have been written */"
        device = f"/* a device failed; {self.name}_error() is the reason */"
        rows = [(self.checked or self.host is not None, "ERROR_CHECK (-3)    ", check)]
        rows.append((self.host is not None, "ERROR_DEVICE (-4)   ", device))
        return "".join(f"#define {self.macro}_{word} {about}\n" for given, word, about in rows if given)

    def _arguments(self) -> str:
        """The rows of the comment that describe the arguments."""
        macro, name = self.macro, self.name
        rows = [(n, _described(v)) for n, v in zip(self.inputs, self.signature.inputs, strict=True)]
        outputs = zip(self.outputs, self.signature.outputs, strict=True)
        rows += [(n, f"{_described(v)}, written") for n, v in outputs]
        if self.binary:
            rows.append(("weights", f"{macro}_WEIGHTS_BYTES bytes, of {name}_weights.bin, only read"))
        rows.append(("workspace", f"{macro}_ARENA_NEEDED bytes, or NULL for the static arena"))
        width = max(len(n) for n, _ in rows)
        return "\n".join(f"     {n:{width}}  {text}" for n, text in rows)

    def _weights(self) -> int:
        return int(self.signature.weights_size)

    def _alignment(self) -> int:
        return 64 if self.exe.target.describe().vector_bits else 8

    # The implementation

    def source(self) -> str:
        code = self.exe.artifact.code.decode()
        if self.host is None:
            code = code.partition(PACKED)[0].rstrip()
        else:
            code = static_entries(code, self.host.segments)
        code = re.sub(rf"\b(?={self.macro}_)", "v", code)  # avoid names of the header's macros
        head, rest = code.split("\n\n", 1) if "\n\n" in code else (code, "")
        return "\n".join(
            [
                f'#include "{self.name}.h"\n',
                head + "\n",
                rest.strip() + "\n",
                *([self._constants()] if self.weights == "array" and self._weights() else []),
                *([f"extern const uint8_t {self.name}_weights[];\n"] if self.weights == "object" else []),
                *([] if self.host is None else [self.host.source(weights=self._own_weights())]),
                self._run(),
            ]
        )

    def _constants(self) -> str:
        """The weights as one constant structure. Its members are the arrays that the kernels use."""
        data = np.frombuffer(bytes_of(self.data), np.uint8)
        members: list[str] = []
        values: list[str] = []
        names = Names()
        at = 0
        windows = sorted(
            {tuple(w) for w in self.exe.artifact.metadata.get("windows", ())}, key=lambda w: w[1:]
        )
        for label, first, kind, count in windows:
            if first < at or not count:
                continue  # another view of an array that already is a member
            if first > at:
                pad = names.fresh("unused")
                members.append(f"    uint8_t {pad}[{first - at}];")
                values.append(f"    .{pad} = {{{_rows(data[at:first], dtype('uint8'))}}},")
            type_ = dtype(str(kind))
            size = type_.itemsize * int(count)
            name = names.fresh(str(label).strip("_"))
            members.append(f"    {stored_type(type_)} {name}[{count}];")
            values.append(f"    .{name} = {{{_rows(data[first : first + size], type_)}}},")
            at = int(first) + size
        unit = self._alignment()
        padded = -(-len(data) // unit) * unit
        if at < padded:  # pad, so that the size does not depend on the alignment of the members
            rest = np.concatenate([data[at:], np.zeros(padded - len(data), np.uint8)])
            members.append(f"    uint8_t rest[{padded - at}];")
            values.append(f"    .rest = {{{_rows(rest, dtype('uint8'))}}},")
        align = f" __attribute__((aligned({unit})))" if unit > 8 else ""
        check = f"{self.name}_weights_check"
        section = f"{self.macro}_WEIGHTS_SECTION"
        return "\n".join(
            [
                f"#ifdef {section}",
                f"__attribute__((section({section})))",
                "#endif",
                "static const struct {",
                *members,
                f"}}{align} {self.name}_weights = {{",
                *values,
                "};",
                "",
                f"typedef char {check}[sizeof {self.name}_weights == {padded} ? 1 : -1];",
                "",
            ]
        )

    def _assembly(self) -> str:
        """Assembly that includes the weights in an object, for the ELF assemblers of gcc and clang."""
        name, section = f"{self.name}_weights", f"{self.macro}_WEIGHTS_SECTION"
        return f"""\
/* {name}: the constants of {self.name}.c, {self._weights()} bytes of {name}.bin, which is in the folder
   of this file or in a folder of -I.  {section} may be defined as the name of another section, in quotes. */
#ifndef {section}
#define {section} ".rodata.{name}"
#endif
    .section {section}, "a"
    .balign {self._alignment()}
    .globl {name}
    .type {name}, %object
{name}:
    .incbin "{name}.bin"
    .size {name}, . - {name}
    .section .note.GNU-stack, "", %progbits
"""

    def _own_weights(self) -> str:
        """The weights that the sources contain, as an expression; empty if the caller passes them."""
        if self.binary:
            return ""
        if self.weights == "object":
            return f"{self.name}_weights"
        return f"(const uint8_t *)&{self.name}_weights" if self._weights() else "NULL"

    def _run(self) -> str:
        name, macro = self.name, self.macro
        pointers = [*self.inputs, *self.outputs, *(["weights"] if self.binary and self._weights() else ())]
        tests = " || ".join(f"{p} == NULL" for p in pointers)
        weights = self._own_weights() or "(const uint8_t *)weights"
        args = ", ".join([*self.inputs, *self.outputs, weights, "(uint8_t *)workspace"])
        if self.exe.target.describe().parallel:
            args += f", {self.exe.num_threads}"
        aligned = f"((uintptr_t)workspace) % {macro}_ALIGNMENT != 0"
        if self.binary:
            aligned += f" || ((uintptr_t)weights) % {macro}_ALIGNMENT != 0"
        lines = [f"    if ({tests})", f"        return {macro}_ERROR_NULL;"] if tests else []
        if not self.arena:
            arena, use = "", ["    (void)workspace;"]
        else:
            align = f" __attribute__((aligned({self._alignment()})))" if self._alignment() > 8 else ""
            arena = f"""\
#ifndef {macro}_NO_ARENA
#ifndef {macro}_ARENA_BYTES
#define {macro}_ARENA_BYTES {macro}_ARENA_NEEDED
#endif
#if defined(__STDC_VERSION__) && __STDC_VERSION__ >= 201112L
_Static_assert({macro}_ARENA_BYTES >= {macro}_ARENA_NEEDED, "the arena is too small");
#else
typedef char {name}_arena_check[{macro}_ARENA_BYTES >= {macro}_ARENA_NEEDED ? 1 : -1];
#endif
static union {{
    double align;
    uint8_t bytes[{macro}_ARENA_BYTES];
}}{align} {name}_arena;
#endif

"""
            use = [
                f"#ifndef {macro}_NO_ARENA",
                "    if (workspace == NULL)",
                f"        workspace = {name}_arena.bytes;",
                "#endif",
                "    if (workspace == NULL)",
                f"        return {macro}_ERROR_NULL;",
                f"    if ({aligned})",
                f"        return {macro}_ERROR_ALIGNMENT;",
            ]
        lines += use
        if self.host is not None:
            pointers = [*self.inputs, *self.outputs, weights, "workspace"]
            lines += run_lines(self.host, macro, pointers, self.exe.num_threads)
        else:
            # The workspace begins with the record of failed checks.
            before = ["    *(int64_t *)workspace = 0;"] if self.checked else []
            lines += [*before, *folded(f"    model({args});")]
        if self.checked and self.host is None:
            lines += ["    if (*(const int64_t *)workspace != 0)", f"        return {macro}_ERROR_CHECK;"]
        lines.append(f"    return {macro}_OK;")
        return f"{arena}{self._head()}\n{{\n" + "\n".join(lines) + "\n}\n"


def _macros(prefix: str, value: Value) -> list[str]:
    shape = value.type.static_shape() or ()
    size = 1
    for dim in shape:
        size *= dim
    return [
        f"#define {prefix}_NAME {quoted(value.name)}",
        f'#define {prefix}_DTYPE "{value.dtype}"',
        f"#define {prefix}_NDIM {len(shape)}",
        f"#define {prefix}_SHAPE {{{', '.join(map(str, shape)) or '1'}}}",
        f"#define {prefix}_SIZE {size}",
    ]


def _described(value: Value) -> str:
    return f"{commented(value.name)}: {value.dtype}{list(value.type.static_shape() or ())}"


def _rows(data: Any, type_: DType) -> str:
    """Elements as literals, in lines of less than 100 characters."""
    if type_.name in ("float16", "bfloat16") or type_.is_bool or type_.name not in C99.stored:
        type_ = dtype(f"uint{8 * type_.itemsize}")
    values = data.view(type_.numpy).tolist()
    words = [_bare(literal(value, type_)) for value in values]
    rows: list[str] = []
    row = ""
    for word in words:
        if len(row) + len(word) > 96:
            rows.append(row)
            row = ""
        row += f"{word}, "
    rows.append(row)
    return "\n        " + "\n        ".join(r.rstrip() for r in rows) + "\n    "


def _bare(word: str) -> str:
    """A literal without the parentheses that are only needed in expressions."""
    return word[1:-1] if word.startswith("(") and word.endswith(")") else word


_DEFINED = re.compile(
    r"^static (?:inline |DLC_NOINLINE )*\w+ \**(\w+)\(|^typedef \w+ (\w+) |^(?:int64_t|static \w+) (\w+)\[",
    re.MULTILINE,
)
"""A pattern for definitions of functions, types and arrays in emitted code."""


def own_names(source: str, name: str) -> str:
    """Prefix the definitions of sources with the name of the model, so that one file may include several
    models.
    """
    defined = {one for found in _DEFINED.findall(source) for one in found if one}
    words = "|".join(sorted(one for one in defined if not one.startswith(f"{name}_")))
    if not words:
        return source
    skipped = r'/\*.*?\*/|"(?:\\.|[^"\\])*"'
    return re.sub(
        rf"({skipped})|\b(?:{words})\b",
        lambda found: found[0] if found[1] else f"{name}_{found[0].removeprefix(PREFIX)}",
        source,
        flags=re.DOTALL,
    )


__all__ = ["Sources", "export", "own_names"]
