"""The C header of an exported model."""

from __future__ import annotations

from collections.abc import Sequence

from dlc_core.ir.types import TensorType
from dlc_core.runtime.interface.descriptors import REASONS
from dlc_core.runtime.interface.dim_program import conditions_on_symbols, data_symbols, given_symbols
from dlc_core.runtime.interface.signature import Signature, Value
from dlc_core.runtime.library import CHECK_FAILED, DEVICE_FAILED
from dlc_core.target.source.tokens import commented, quoted

_TEXT = """\
/* {name}.h: a model compiled by dlc for {target}.  C99 and C++.

   {state}  Arrays are
   row-major and contiguous.  Several threads may call all functions at the same time, if each call has
   its own outputs and its own workspace.

{example}{linked}*/
#ifndef {macro}_H
#define {macro}_H

#include <stddef.h>
#include <stdint.h>

{macros}
#ifdef __cplusplus
extern "C" {{
#endif

{dims_declaration}/* Bytes of scratch memory that one call needs{of_dims}. */
size_t {name}_workspace_size({only_dims});
{shapes}
/* Run the model.
     inputs     {inputs} in the order of the macros above
     outputs    {outputs}, written
     workspace  {name}_workspace_size({dim_names}) bytes, best aligned to 64; may be NULL if that is 0
     threads    the maximum number of threads; 0 means the cores that the process may use{dims_doc}
   Returns 0, or -1 if a pointer is NULL that may not be{or_bounds}{or_index}{or_device}. {needs}*/
int {name}_run(const void *const *inputs, void *const *outputs, void *workspace, int threads{more_dims});

/* The same with descriptors of the arrays, `DLTensor` of DLPack.  These are checked first: device, rank,
   dtype, shape, strides (row-major or NULL) and alignment.  {dims_found}
   If a check fails, nothing is written, and the result is -(100 * argument + reason): the argument
   counts inputs and then outputs from 1, the reason is {reasons}.
   */
int {name}_run_dlpack(const void *const *inputs, const void *const *outputs, void *workspace, int threads);
{devices}
#ifdef __cplusplus
}}
#endif
#endif
"""


_STATE = "There is nothing to initialise or to free; the only state of the library is its threads."
_DEVICE_STATE = (
    "There is nothing to initialise; the state of the library is its threads and memory on\n   devices."
)


def header_text(
    name: str, signature: Signature, target: str, linked: Sequence[str] = (), devices: str = ""
) -> str:
    """The text of the C header of the library `name`. `linked` describes the functions that the library calls
    and does not contain. `devices` declares the functions of a model with regions on devices.
    """
    macro = name.upper()
    dims = dim_names(signature)
    declared = [f"int64_t {d}" for d in dims]
    lines = [
        f"#define {macro}_NUM_INPUTS {len(signature.inputs)}",
        f"#define {macro}_NUM_OUTPUTS {len(signature.outputs)}",
    ]
    for symbol, dim in zip(signature.symbols, dims, strict=True):
        ends = (symbol.bounds.low, symbol.bounds.high) if symbol.bounds else (None, None)
        named = zip(("LEAST", "MOST"), ends, strict=True)
        lines += [f"#define {macro}_{dim.upper()}_{word} {end}" for word, end in named if end is not None]
    for kind, values in (("INPUT", signature.inputs), ("OUTPUT", signature.outputs)):
        for index, value in enumerate(values):
            lines += _macros(f"{macro}_{kind}{index}", value)
    shapes = [
        f"\n/* The shape of output {i}. */\n"
        f"void {name}_output{i}_shape({', '.join([f'int64_t shape[{max(1, v.type.ndim)}]', *declared])});\n"
        for i, v in symbolic_outputs(signature)
    ]
    symbols = ", ".join(dims)
    return _TEXT.format(
        name=name,
        macro=macro,
        target=commented(target),
        macros="\n".join(lines) + "\n",
        example=_example(name, signature),
        linked=_linked(linked),
        inputs=_count(signature.inputs),
        outputs=_count(signature.outputs),
        of_dims=f" for these dims: {symbols}" if dims else "",
        only_dims=", ".join(declared) or "void",
        more_dims="".join(", " + d for d in declared),
        dims_doc=f"\n     {symbols}    dims that are not fixed" if dims else "",
        or_index=f",\n   or {CHECK_FAILED} if an index that is data was out of range"
        if signature.sites
        else "",
        or_device=f",\n   or {DEVICE_FAILED} if a device failed" if devices else "",
        or_bounds=" or a dim is outside of its bounds" if any(v.bounds for v in signature.symbols) else "",
        needs=_needs(signature),
        dim_names=symbols,
        shapes="".join(shapes),
        reasons=", ".join(f"{i} {word}" for i, word in enumerate(REASONS, 1)),
        dims_found=f"{symbols} follow{'s' * (len(dims) == 1)} from the shapes." if dims else "",
        state=_DEVICE_STATE if devices else _STATE,
        devices=f"\n{devices}" if devices else "",
        dims_declaration=_dims_declaration(name, signature) if signature.data_dims else "",
    )


def _linked(lines: Sequence[str]) -> str:
    """The functions that must be linked, as lines of a C comment."""
    if not lines:
        return ""
    rows = "".join(f"     {commented(line)}\n" for line in lines)
    return f"   It calls these functions, which the program must define or be linked to:\n{rows}"


def _needs(signature: Signature) -> str:
    """The conditions on dims, as lines of a C comment."""
    found = conditions_on_symbols(signature)
    if not found:
        return ""
    rows = [f"     {commented(f'{need.expr()}   {need.where}'.rstrip())}\n" for need in found]
    return f"It is also -1 if the dims do not satisfy\n{''.join(rows)}  "


def _dims_declaration(name: str, signature: Signature) -> str:
    """The declaration of the function that computes dims from elements of inputs."""
    words = dict(zip(signature.symbols, dim_names(signature)))
    computed = data_symbols(signature)
    args = [f"int64_t {words.get(v, f'dim_{i}_of_shapes')}" for i, v in enumerate(given_symbols(signature))]
    args += [f"int64_t *{words[v]}" for v in computed]
    shown = ", ".join(f"*{words[v]}" for v in computed) or "nothing"
    return (
        f"/* Check the elements of inputs that are sizes, and compute dims that depend on them: {shown}.\n"
        "   Returns 0, or a negative number if the inputs are not valid: then the model must not be run. */\n"
        f"int {name}_dims({', '.join(['const void *const *inputs', *args])});\n\n"
    )


def dim_names(signature: Signature) -> list[str]:
    """C names of the symbolic dims."""
    taken: list[str] = []
    for symbol in signature.symbols:
        base = "dim_" + "".join(c if c.isascii() and c.isalnum() else "_" for c in symbol.name)
        name, number = base, 2
        while name in taken:
            name, number = f"{base}_{number}", number + 1
        taken.append(name)
    return taken


def symbolic_outputs(signature: Signature) -> list[tuple[int, Value]]:
    """The outputs whose shape is symbolic, with their indices."""
    return [(i, v) for i, v in enumerate(signature.outputs) if not v.type.is_static]


def _macros(prefix: str, value: Value) -> list[str]:
    type_: TensorType = value.type
    lines = [
        f"#define {prefix}_NAME {quoted(value.name)}",
        f'#define {prefix}_DTYPE "{type_.dtype}"',
        f"#define {prefix}_NDIM {type_.ndim}",
    ]
    shape = type_.static_shape()
    if shape is None:
        return [*lines, f"/* {prefix} has the shape {commented(str(list(type_.shape)))} */"]
    size = type_.dtype.itemsize
    for dim in shape:
        size *= dim
    return [
        *lines,
        f"#define {prefix}_SHAPE {{{', '.join(map(str, shape)) or '1'}}}",
        f"#define {prefix}_BYTES {size}",
    ]


def _count(values: Sequence[Value]) -> str:
    return f"{len(values)} pointer{'s' * (len(values) != 1)}"


def _example(name: str, signature: Signature) -> str:
    if not signature.is_static or not signature.inputs:
        return ""
    ins = ", ".join(f"in{i}" for i in range(len(signature.inputs)))
    outs = ", ".join(f"out{i}" for i in range(len(signature.outputs)))
    return (
        f"     const void *inputs[] = {{{ins}}};\n"
        f"     void *outputs[] = {{{outs}}};\n"
        f"     void *workspace = malloc({name}_workspace_size());\n"
        f"     int failed = {name}_run(inputs, outputs, workspace, 0);\n"
    )


__all__ = ["dim_names", "header_text", "symbolic_outputs"]
