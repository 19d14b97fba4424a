"""Import of a `torch.export.ExportedProgram`, a module or a `.pt2` file as an `IRModule`: `load`.

Parameters, buffers and lifted constants become constants in torch's own memory. A buffer that the program
changes is an input of the same name, and its new value an output "NAME.new". Outputs have the names of their
fields, if the program returns a dict or a dataclass. A complex input or output is a real tensor whose last
dim holds the real and the imaginary part. The module's attributes "inputs" and "outputs" hold the
public names.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from torch.export import ExportedProgram
from torch.export.graph_signature import InputKind, OutputKind
from torch.utils import _pytree as pytree

from dlc_core.diag import ModelError, UnsupportedError, UsageError
from dlc_core.graph.dims import CONDITIONS
from dlc_core.graph.node import Function, Node, make_tuple, param
from dlc_core.graph.resize import with_shapes
from dlc_core.ir.expr import as_expr, free_vars
from dlc_core.ir.module import IRModule
from dlc_core.ir.types import TensorType
from dlc_core.passes.graph.dim_conditions import determined_dims
from dlc_frontend_torch.archives import check_that_guards_are_known
from dlc_frontend_torch.complex_value import Complex, border_type, unpacked
from dlc_frontend_torch.custom import importers_for
from dlc_frontend_torch.decompositions import for_export
from dlc_frontend_torch.dtypes import name_of
from dlc_frontend_torch.guards import check_guards, guard_conditions, unknown_conditions
from dlc_frontend_torch.importer import Importer
from dlc_frontend_torch.symbols import Symbols
from dlc_frontend_torch.weights import as_operand


def load(model: Any, context: Mapping[str, Any] | None = None) -> IRModule:
    """Import a program.

    `model` is an ExportedProgram, the path of a `.pt2` file, or an nn.Module, which is exported with
    `context["example_inputs"]` (a tuple of positional arguments, or a dict of keyword arguments) and
    `context["dynamic_shapes"]` as torch.export takes them. `context["shapes"]` pins and bounds dims.
    `context["importers"]` import custom operators (see `custom`), in addition to those of plugins.
    `context["unguarded"]` accepts a file with symbolic sizes that has no guards (see `archives`).

    Raises UnsupportedError that names all operators that cannot be imported with their Python lines, or for a
    file without guards, ModelError for a damaged file, and UsageError for arguments that do not fit.
    """
    given = dict(context or {})
    program = _program(model, given)
    module = import_program(program, given.get("importers", ()))
    return with_shapes(module, given.get("shapes"))


def _program(model: Any, given: Mapping[str, Any]) -> ExportedProgram:
    examples, dynamic = given.get("example_inputs"), given.get("dynamic_shapes")
    if isinstance(model, torch.nn.Module):
        if examples is None:
            raise UsageError(
                "a torch.nn.Module needs example inputs",
                hint="dlc.compile(module, example_inputs=(x,)), or export it: torch.export.export(...)",
            )
        args, kwargs = ((), dict(examples)) if isinstance(examples, Mapping) else (tuple(examples), None)
        return torch.export.export(model, args, kwargs, dynamic_shapes=dynamic)
    if examples is not None or dynamic is not None:
        raise UsageError(
            "example_inputs and dynamic_shapes are for modules", why="this program is already exported"
        )
    if isinstance(model, ExportedProgram):
        return model
    path = Path(model)
    if not path.is_file():
        raise UsageError(f"there is no file {path}")
    try:
        program = torch.export.load(path)
    except Exception as error:  # torch raises many kinds for damaged archives
        raise ModelError(f"{path} cannot be read as an exported program", why=str(error)) from error
    if not given.get("unguarded", False):
        check_that_guards_are_known(path, program)
    return program


def import_program(program: ExportedProgram, importers: Any = ()) -> IRModule:
    """The module of a program; see `load`."""
    custom = importers_for(importers)
    check_guards(program)
    original = program
    with _with_reshapes(program):
        program = program.run_decompositions(for_export(custom))
    signature = program.graph_signature
    symbols = Symbols(program.range_constraints)
    importer = Importer(program.graph_module, symbols, custom)
    mutated = set(signature.buffers_to_mutate.values()) | set(signature.user_inputs_to_mutate.values())
    places = [node for node in program.graph.nodes if node.op == "placeholder"]
    params: list[Node] = []
    values: list[Any] = []
    for spec, place in zip(signature.input_specs, places, strict=True):
        value = place.meta.get("val")
        constant = spec.kind in (InputKind.PARAMETER, InputKind.BUFFER, InputKind.CONSTANT_TENSOR)
        if constant and spec.target not in mutated:
            values.append(as_operand(_tensor(program, spec)))
        elif isinstance(value, torch.Tensor):
            name = str(spec.target) if constant else place.name
            params.append(param(name, _type(value, symbols, name)))
            values.append(unpacked(params[-1]) if value.is_complex() else params[-1])
        else:
            values.append(symbols.dim(value) if isinstance(value, torch.SymInt) else value)
    results = importer.run(values)
    outputs: list[tuple[str, Node]] = []
    names = iter(_output_names(program))
    for position, (spec, made) in enumerate(zip(signature.output_specs, results, strict=True)):
        if spec.kind is OutputKind.TOKEN or made is None:
            continue
        changed = spec.kind in (OutputKind.BUFFER_MUTATION, OutputKind.USER_INPUT_MUTATION)
        name = f"{spec.target}.new" if changed else next(names, f"output_{position}")
        if isinstance(made, Complex):
            made = made.packed()
        if not isinstance(made, Node):
            raise UsageError(f"output {position} of the program is {made}, not a tensor")
        outputs.append((name, made))
    if not outputs:
        raise UsageError("the program has no outputs")
    nodes = [made for _, made in outputs]
    guards = list(guard_conditions(program, original, symbols))
    guards += [condition for _, condition in importer.conditions]
    attrs = {
        CONDITIONS: tuple(guard.row for guard in guards),
        "inputs": tuple(own.attrs["name"] for own in params),
        "outputs": tuple(name for name, _ in outputs),
    }
    body = nodes[0] if len(nodes) == 1 else make_tuple(nodes)
    main = Function("main", tuple(params), body).with_attrs(**attrs)
    for _, error in unknown_conditions(main, importer.conditions):
        raise error
    _check_numbers(places, symbols, main)
    return IRModule({"main": main}, {"source": "a torch program", "name": "program"})


@contextmanager
def _with_reshapes(program: ExportedProgram) -> Iterator[None]:
    """Within this context the program has `reshape` instead of `view`. Decompositions may return other
    strides than the whole operators did, and a tensor of these strides may have no such view. The graph is
    not copied, because a copy renames placeholders such as "input".
    """
    views = [node for node in program.graph.nodes if node.target is torch.ops.aten.view.default]
    for node in views:
        node.target = torch.ops.aten.reshape.default
    try:
        yield
    finally:
        for node in views:
            node.target = torch.ops.aten.view.default


def _check_numbers(places: Sequence[Any], symbols: Symbols, main: Function) -> None:
    """Raise UnsupportedError for arguments that are numbers of a call and no sizes of its tensors."""
    known = determined_dims(main)
    for place in places:
        value = place.meta.get("val")
        if isinstance(value, (torch.SymFloat, torch.SymBool)) or (
            isinstance(value, torch.SymInt) and not known.issuperset(free_vars(as_expr(symbols.dim(value))))
        ):
            raise UnsupportedError(
                f"the argument {place.name!r} is a number that may differ from call to call",
                hint="give it as a tensor without dims, or export the program for one value of it",
            )


def _output_names(program: ExportedProgram) -> list[str]:
    """Names of the outputs: the fields of a dict or of a dataclass, such as "logits" or "state.0", else their
    numbers, "output_0".
    """
    spec = program.call_spec.out_spec
    if spec is None:
        return []
    paths, _ = pytree.tree_flatten_with_path(pytree.tree_unflatten(list(range(spec.num_leaves)), spec))
    parts = [
        [str(getattr(key, "key", getattr(key, "name", getattr(key, "idx", "")))) for key in path]
        for path, _ in paths
    ]
    names = [".".join(each) for each in parts]
    known = len(set(names)) == len(names) and all(name and not name[0].isdigit() for name in names)
    return names if known else [f"output_{index}" for index in range(len(names))]


def _tensor(program: ExportedProgram, spec: Any) -> torch.Tensor:
    for held in (program.state_dict, program.constants):
        if spec.target in held:
            found = held[spec.target]
            assert isinstance(found, torch.Tensor)
            return found
    raise ModelError(f"the program lacks the tensor {spec.target!r}")


def _type(value: torch.Tensor, symbols: Symbols, name: str) -> TensorType:
    type_ = border_type(value.dtype, symbols.shape(value.shape))
    if type_ is None:
        raise UsageError(f"input {name!r} is a tensor of {name_of(value.dtype)}, which dlc lacks")
    return type_


__all__ = ["import_program", "load"]
