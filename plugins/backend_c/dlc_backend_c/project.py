"""The files of an exported folder in addition to the sources: an example, build files and a README."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

from dlc_backend_c.bounds import Bounds, table
from dlc_core.backend.deploy import HostProgram
from dlc_core.ir.dtype import DType
from dlc_core.runtime.interface.signature import Signature, Value
from dlc_core.target.source import C99
from dlc_core.target.source.tokens import Names, folded, identifier


def project_files(
    name: str, signature: Signature, weights: str, bounds: Bounds, host: HostProgram | None = None
) -> dict[str, str | bytes]:
    """The contents of main.c, Makefile, CMakeLists.txt and README.md, by name. `weights` is the form of the
    weights, `host` the program of a model with regions on devices.
    """
    sources = () if host is None else host.source_names
    libraries = () if host is None else host.libraries
    return {
        "main.c": _main(name, signature, weights == "binary", host is not None),
        "Makefile": _makefile(name, weights == "object", sources, libraries),
        "CMakeLists.txt": _cmake(name, weights == "object", sources, libraries),
        "README.md": _readme(name, signature, weights, bounds, host),
    }


_OF_THE_LIBRARY = """
    EOF BUFSIZ FILE FILENAME_MAX FOPEN_MAX L_ctermid L_tmpnam P_tmpdir RAND_MAX SEEK_CUR SEEK_END SEEK_SET
    TMP_MAX assert errno fpos_t off_t ssize_t stdin stdout stderr va_list clearerr ctermid dprintf fclose
    fdopen feof ferror fflush fgetc fgetpos fgets fileno flockfile fmemopen fopen fprintf fputc fputs fread
    freopen fscanf fseek fseeko fsetpos ftell ftello ftrylockfile funlockfile fwrite getc getchar getdelim
    getline gets getw obstack_printf open_memstream pclose perror popen printf putc putchar puts putw remove
    rename renameat rewind scanf setbuf setbuffer setlinebuf setvbuf snprintf sprintf sscanf tempnam tmpfile
    tmpnam ungetc vdprintf vfprintf vfscanf vprintf vscanf vsnprintf vsprintf vsscanf
"""
"""Names of `stdio.h`, which main.c includes, and of macros that callers may define."""


def argument_names(name: str, signature: Signature) -> tuple[list[str], list[str]]:
    """The names of inputs and outputs in the sources: those of the model, if they are valid and
    unique in C.
    """
    macro = name.upper()
    own = {f"{name}_{word}" for word in ("run", "arena", "weights", "arena_check", "weights_check")}
    own |= {name, "model", "status", "file", "fail", "aligned", "weights", "workspace"}
    names = Names(frozenset({*own, *_OF_THE_LIBRARY.split()}))

    def argument(value: Value) -> str:
        word = identifier(value.name)
        return names.fresh(f"v{word}" if word.startswith(f"{macro}_") else word)

    return [argument(v) for v in signature.inputs], [argument(v) for v in signature.outputs]


def stored_type(type_: DType) -> str:
    """The C type of elements in the caller's arrays; bytes if C has no such type."""
    return C99.stored.get(type_.name, "uint8_t")


def _array(value: Value, name: str, macro: str) -> str:
    size = f"{macro}_SIZE" if _bytes(value) else "1"  # C has no empty arrays
    return f"static {stored_type(value.dtype)} {name}[{size}];"


def _main(name: str, signature: Signature, binary: bool, devices: bool) -> str:
    macro = name.upper()
    ins, outs = argument_names(name, signature)
    arrays = [_array(v, n, f"{macro}_INPUT{i}") for i, (v, n) in enumerate(zip(signature.inputs, ins))]
    arrays += [_array(v, n, f"{macro}_OUTPUT{i}") for i, (v, n) in enumerate(zip(signature.outputs, outs))]
    if binary:
        arrays.append(f"static union {{ double align; uint8_t bytes[{macro}_WEIGHTS_BYTES + 64]; }} weights;")
    reads = [_transfer("fread", n, "stdin") for n, v in zip(ins, signature.inputs) if _bytes(v)]
    writes = [_transfer("fwrite", n, "stdout") for n, v in zip(outs, signature.outputs) if _bytes(v)]
    load, argument = "", ""
    if binary:
        load = f"""\
    uint8_t *aligned = weights.bytes + (64 - (uintptr_t)weights.bytes % 64) % 64;
    FILE *file = fopen("{name}_weights.bin", "rb");
    if (file == NULL || fread(aligned, 1, {macro}_WEIGHTS_BYTES, file) != {macro}_WEIGHTS_BYTES)
        return fail("{name}_weights.bin cannot be read");
    fclose(file);
"""
        argument = "aligned, "
    listed = ", ".join([*ins, *outs])
    call = "\n".join(folded(f"    status = {name}_run({listed}, {argument}NULL);"))
    return f"""\
/* Runs {name} once. It reads the bytes of the inputs from the standard input, one array after the other, and
   writes those of the outputs to the standard output. */
#include <stdio.h>

#include "{name}.h"

{chr(10).join(arrays)}

static int fail(const char *what)
{{
    fprintf(stderr, "{name}: %s\\n", what);
    return 1;
}}

int main(void)
{{
    int status;
{load}{"".join(reads)}{call}
    if (status != {macro}_OK)
        return fail({f"{name}_error()" if devices else '"the model did not run"'});
{f"    {name}_close();{chr(10)}" if devices else ""}{"".join(writes)}    return 0;
}}
"""


def _transfer(function: str, name: str, stream: str) -> str:
    verb = "read" if function == "fread" else "written"
    return (
        f"    if ({function}({name}, 1, sizeof {name}, {stream}) != sizeof {name})\n"
        f'        return fail("{name} cannot be {verb}");\n'
    )


def _makefile(name: str, assembled: bool, sources: Sequence[str], libraries: Sequence[str]) -> str:
    objects = f"{name}.o {name}_weights.o" if assembled else f"{name}.o"
    objects = " ".join([objects, *(f"{source.rpartition('.')[0]}.o" for source in sources)])
    linked = " ".join(["-lm", *(f"-l{library}" for library in libraries if library != "m")])
    rule = f"\n{name}_weights.o: {name}_weights.S {name}_weights.bin\n\t$(CC) -c -o $@ $<\n"
    rule = rule if assembled else ""
    return f"""\
CC ?= cc
CFLAGS ?= -O3
WARN = -std=gnu99 -fwrapv -Wall -Wextra -pedantic

{name}: main.o {objects}
\t$(CC) $(LDFLAGS) -o $@ $^ {linked}

%.o: %.c {name}.h
\t$(CC) $(WARN) $(CFLAGS) -c -o $@ $<
{rule}
.PHONY: clean
clean:
\trm -f {name} main.o {objects}
"""


def _cmake(name: str, assembled: bool, more: Sequence[str], libraries: Sequence[str]) -> str:
    languages, sources = "C", f"{name}.c"
    if assembled:
        languages, sources = "C ASM", f"{name}.c {name}_weights.S"
    sources = " ".join([sources, *more])
    linked = " ".join(["m", *(library for library in libraries if library != "m")])
    return f"""\
cmake_minimum_required(VERSION 3.10)
project({name} {languages})
add_library({name}_model STATIC {sources})
target_include_directories({name}_model PUBLIC ${{CMAKE_CURRENT_SOURCE_DIR}})
target_link_libraries({name}_model PUBLIC {linked})
add_executable({name} main.c)
target_link_libraries({name} {name}_model)
"""


def _shape(value: Value) -> str:
    return " x ".join(map(str, value.type.static_shape() or ())) or "scalar"


def _bytes(value: Value) -> int:
    return prod(value.type.static_shape() or ()) * value.dtype.itemsize


def _readme(name: str, signature: Signature, form: str, bounds: Bounds, host: HostProgram | None) -> str:
    rows = [
        f"| {kind} | `{v.name}` | {v.dtype} | {_shape(v)} |"
        for kind, values in (("input", signature.inputs), ("output", signature.outputs))
        for v in values
    ]
    weights = {
        "binary": f"`{name}_weights.bin` contains the weights, which the caller maps or reads, aligned to"
        f" `{name.upper()}_ALIGNMENT`.",
        "object": f"`{name}_weights.S` includes `{name}_weights.bin` in an object, where it is read.",
    }.get(form, f"The weights are constants of `{name}.c`, read in place.")
    if form != "binary":
        weights += (
            f" `{name.upper()}_WEIGHTS_SECTION` may be defined as the name of another section, in quotes."
        )
    arrays = [("input", v.name, _bytes(v)) for v in signature.inputs]
    arrays += [("output", v.name, _bytes(v)) for v in signature.outputs]
    state = "allocates nothing and has no state"
    devices = ""
    if host is not None:
        names = ", ".join(runtime.name for runtime in host.runtimes)
        state = "allocates nothing but the memory of devices and lists of it"
        devices = f"""
Parts of the model run on devices: {names}. The code of these parts is in `{name}.c`, which calls the
runtimes of the devices by `dlc_device.h`. It uses POSIX threads, unless `DLC_HOST_SINGLE_THREAD` is defined;
then one thread at a time may call the model.
"""
    return f"""\
# {name}

A model as C: `{name}.h` is the interface, `{name}.c` the implementation, `main.c` an example.

    make
    ./{name} < inputs.bin > outputs.bin

|  | name | dtype | shape |
|---|---|---|---|
{chr(10).join(rows)}

{weights}
{devices}
## Memory

{table(bounds, arrays)}
The code {state}. It calls only functions of `math.h` and `string.h`, whose code is
not counted. Macros of the header have the sizes of weights and arena.
"""


__all__ = ["project_files"]
