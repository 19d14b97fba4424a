"""The C program of an exported model, which runs the model once and reads and writes files.

    cc -std=c99 -I. net_main.c *.o -lm -lpthread -o net
    ./net THREADS INPUT... OUTPUT... [DIM...]

The files contain the bytes of the arrays and nothing else.
"""

from __future__ import annotations

from collections.abc import Sequence

from dlc_backend_llvm.header import dim_names, symbolic_outputs
from dlc_core.runtime.interface.dim_program import data_symbols, given_symbols
from dlc_core.runtime.interface.signature import Signature

_TEXT = r"""/* Runs {name} once: {name} THREADS{usage}{build}
   Inputs are read from files and outputs are written to files, as the bytes of the arrays. */
#include "{name}.h"

#include <stdio.h>
#include <stdlib.h>

static void *allocate(size_t size) {{
  void *made = malloc(size + 1);
  if (made == NULL) {{
    fprintf(stderr, "no memory for %lu bytes\n", (unsigned long)size);
    exit(1);
  }}
  return made;
}}
{read}
static void write_file(const char *path, const void *data, size_t size) {{
  FILE *file = fopen(path, "wb");
  if (file == NULL || fwrite(data, 1, size, file) != size || fclose(file) != 0) {{
    fprintf(stderr, "%s cannot be written\n", path);
    exit(1);
  }}
}}

int main(int count, char **words) {{
  const void *inputs[{ins_capacity}] = {{NULL}};
  void *outputs[{outs_capacity}] = {{NULL}}, *workspace;
  size_t sizes[{outs_capacity}] = {{0}};
  int status, i;
{declared}  if (count != {count}) {{
    fprintf(stderr, "usage: %s THREADS{usage}\n", words[0]);
    return 2;
  }}
{lines}
  for (i = 0; i < {outs}; i++) outputs[i] = allocate(sizes[i]);
  workspace = allocate({name}_workspace_size({dims}));
  status = {name}_run(inputs, outputs, workspace, atoi(words[1]){more_dims});
  if (status != 0) {{
    fprintf(stderr, "{name}_run failed with %d\n", status);
{failed}    return 1;
  }}
  for (i = 0; i < {outs}; i++) write_file(words[{ins} + 2 + i], outputs[i], sizes[i]);
  return 0;
}}
"""

_READ = r"""
/* Reads a whole file. `size` is its expected size, or negative. */
static void *read_file(const char *path, long size) {
  FILE *file = fopen(path, "rb");
  long found = -1;
  char *data = NULL;
  if (file != NULL && fseek(file, 0, SEEK_END) == 0) found = ftell(file);
  if (found >= 0 && (size < 0 || found == size)) {
    data = allocate(found);
    rewind(file);
    if (fread(data, 1, found, file) != (size_t)found) data = NULL;
  }
  if (data == NULL) {
    fprintf(stderr, "%s cannot be read, or its size is not %ld\n", path, size);
    exit(1);
  }
  fclose(file);
  return data;
}
"""


def program_text(
    name: str, signature: Signature, sources: Sequence[str] = (), libraries: Sequence[str] = ()
) -> str:
    """The C99 program that runs the model `name`. Models with regions on devices consist of C `sources` too,
    and need `libraries`.
    """
    ins, outs, dims = len(signature.inputs), len(signature.outputs), dim_names(signature)
    usage = "".join(f" {kind}{i}" for kind, n in (("INPUT", ins), ("OUTPUT", outs)) for i in range(n))
    words = dict(zip(signature.symbols, dims))
    computed = [words[v] for v in data_symbols(signature)]
    given_dims = [words.get(v, f"dim_{i}_of_shapes") for i, v in enumerate(given_symbols(signature))]
    lines = [f"  {dim} = atoll(words[{ins + outs + 2 + i}]);" for i, dim in enumerate(given_dims)]
    for i, value in enumerate(signature.inputs):
        size = f"{name.upper()}_INPUT{i}_BYTES" if value.type.is_static else "-1"
        lines.append(f"  inputs[{i}] = read_file(words[{2 + i}], {size});")
    if signature.data_dims:
        args = ", ".join(["inputs", *given_dims, *(f"&{dim}" for dim in computed)])
        lines += [
            f"  if ({name}_dims({args}) != 0) {{",
            '    fprintf(stderr, "the inputs are not valid for the model\\n");',
            "    return 1;",
            "  }",
        ]
    symbolic = dict(symbolic_outputs(signature))
    for i, value in enumerate(signature.outputs):
        if i not in symbolic:
            lines.append(f"  sizes[{i}] = {name.upper()}_OUTPUT{i}_BYTES;")
            continue
        factors = [str(value.type.dtype.itemsize), *(f"shape[{axis}]" for axis in range(value.type.ndim))]
        lines.append(f"  {name}_output{i}_shape({', '.join(['shape', *dims])});")
        lines.append(f"  sizes[{i}] = (size_t)({' * '.join(factors)});")
    every = (*given_dims, *computed)
    declared = f"  int64_t {', '.join(every)};\n" if every else ""
    if symbolic:
        declared += f"  int64_t shape[{max(1, *(v.type.ndim for v in symbolic.values()))}];\n"
    words_of_build = ["cc -std=gnu99 -I.", f"{name}_main.c", *sources, "*.o -lm -lpthread"]
    words_of_build += [f"-l{library}" for library in libraries if library not in ("m", "pthread")]
    failed = f'    fprintf(stderr, "%s\\n", {name}_error());\n' if sources else ""
    return _TEXT.format(
        name=name,
        build=f"\n   Build it by: {' '.join(words_of_build)} -o {name}" if sources else "",
        failed=failed,
        usage=usage + "".join(f" {dim.upper()}" for dim in given_dims),
        read=_READ if ins else "",
        ins=ins,
        outs=outs,
        ins_capacity=max(1, ins),
        outs_capacity=max(1, outs),
        count=2 + ins + outs + len(given_dims),
        declared=declared,
        lines="\n".join(lines),
        dims=", ".join(dims),
        more_dims="".join(f", {dim}" for dim in dims),
    )


__all__ = ["program_text"]
