"""The ONNX standard's definitions of operators: types of inputs, known attributes, function bodies."""

from __future__ import annotations

from collections.abc import Sequence
from difflib import get_close_matches
from functools import lru_cache
from typing import Any

import onnx
from onnx import defs

from dlc_core.graph.node import Node
from dlc_frontend_onnx.definitions import NodeDef
from dlc_frontend_onnx.dtypes import number_of
from dlc_frontend_onnx.location import quoted
from dlc_frontend_onnx.values import SequenceValue, Value

_NAMES = {
    "float32": "float",
    "float64": "double",
    "float4_e2m1fn": "float4e2m1",
    "float8_e8m0fnu": "float8e8m0",
}
_VARIADIC = defs.OpSchema.FormalParameterOption.Variadic
_OPTIONAL = defs.OpSchema.FormalParameterOption.Optional


@lru_cache(maxsize=4096)
def find_schema(domain: str, op: str, version: int) -> Any:
    """The schema of an operator in a version of its domain; None if the standard does not define it."""
    try:
        return defs.get_schema(op, min(version, (1 << 31) - 1), domain)
    except defs.SchemaError:
        return None


@lru_cache(maxsize=4096)
def _constraints(domain: str, op: str, version: int) -> dict[str, frozenset[str]]:
    schema = find_schema(domain, op, version)
    return {item.type_param_str: frozenset(item.allowed_type_strs) for item in schema.type_constraints}


def type_text(dtype: str) -> str:
    """The standard's name of a tensor type: "tensor(float)" for "float32"."""
    name = _NAMES.get(dtype, dtype)
    return f"tensor({name.replace('_', '') if name.startswith('float') and '_' in name else name})"


def check_call(node: NodeDef, version: int, values: Sequence[Value | None]) -> None:
    """Check a call against the operator's schema: attribute names, number and types of inputs."""
    schema = find_schema(node.domain, node.op, version)
    if schema is None:
        return
    loc, op = node.loc, quoted(node.op)
    for name in node.attrs:
        if name not in schema.attributes:
            known = ", ".join(sorted(schema.attributes)) or "none"
            near = get_close_matches(name, schema.attributes, n=1)
            fix = f"rename it to {quoted(near[0])} or remove it" if near else "remove it"
            raise loc.error(
                f"operator {op} of opset {version} has no attribute {quoted(name)}",
                hint=f"{fix} in the model; it has: {known}",
            )
    if not schema.min_input <= len(values) <= schema.max_input:
        wanted = (
            f"{schema.min_input}"
            if schema.min_input == schema.max_input
            else f"{schema.min_input} to {schema.max_input}"
        )
        raise loc.error(f"operator {op} of opset {version} takes {wanted} inputs, not {len(values)}")
    bound: dict[str, str] = {}
    formal = schema.inputs
    constraints = _constraints(node.domain, node.op, version)
    for index, value in enumerate(values):
        param = formal[min(index, len(formal) - 1)]
        if value is None:
            if param.option not in (_OPTIONAL, _VARIADIC):
                raise loc.error(f"operator {op} needs its input {index} ({param.name})")
            continue
        if isinstance(value, SequenceValue):
            continue
        found = type_text(value.dtype.name)
        allowed = constraints.get(param.type_str, frozenset([param.type_str]))
        if found not in allowed:
            raise loc.error(
                f"input {index} ({param.name}) of operator {op} is a {found}",
                hint=f"opset {version} allows {', '.join(sorted(allowed))}",
            )
        homogeneous = param.option is not _VARIADIC or param.is_homogeneous
        if homogeneous and bound.setdefault(param.type_str, found) != found:
            raise loc.error(
                f"inputs of operator {op} differ in type: {bound[param.type_str]} and {found}",
                hint=f"input {index} ({param.name}) must have the type of the earlier ones",
            )


def function_body(node: NodeDef, version: int, values: Sequence[Value | None]) -> bytes | None:
    """The serialized FunctionProto that defines this call in the standard; None if there is none.

    Bodies that depend on the types of the inputs need `values`.
    """
    schema = find_schema(node.domain, node.op, version)
    if schema is None:
        return None
    if schema.has_function:
        known = [v for v in schema.function_opset_versions if v <= version]
        if known:
            plain: bytes = schema.get_function_with_opset_version(max(known))
            return plain
    if schema.has_context_dependent_function:
        known = [v for v in schema.context_dependent_function_opset_versions if v <= version]
        types = [b"" if value is None else _type(value) for value in values]
        message = _call_message(node)
        if known and message is not None and all(kind is not None for kind in types):
            made: bytes = schema.get_context_dependent_function_with_opset_version(
                max(known), message.SerializeToString(), types
            )
            return made or None  # empty if the body needs sizes that are unknown
    return None


def has_body(domain: str, op: str, version: int) -> bool:
    """Whether the standard defines the operator by a function body."""
    schema = find_schema(domain, op, version)
    if schema is None:
        return False
    versions = [*schema.function_opset_versions, *schema.context_dependent_function_opset_versions]
    return any(known <= version for known in versions)


def _type(value: Value) -> bytes | None:
    if not isinstance(value, Node):
        return None
    shape = [dim if isinstance(dim, int) else None for dim in value.shape]
    message: bytes = onnx.helper.make_tensor_type_proto(
        number_of(value.dtype.name), shape
    ).SerializeToString()
    return message


def default_attributes(node: NodeDef, version: int) -> list[onnx.AttributeProto]:
    """The default attributes of an operator."""
    schema = find_schema(node.domain, node.op, version)
    return [item.default_value for item in schema.attributes.values() if item.default_value.name]


def _call_message(node: NodeDef) -> onnx.NodeProto | None:
    """The node as a message; None if an attribute is neither a number nor a string."""
    plain: dict[str, Any] = {
        name: list(value) if isinstance(value, tuple) else value
        for name, value in node.attrs.items()
        if isinstance(value, (int, float, str))
        or (isinstance(value, tuple) and all(isinstance(v, (int, float, str)) for v in value))
    }
    if len(plain) < len(node.attrs):
        return None
    return onnx.helper.make_node(node.op, node.inputs, node.outputs, domain=node.domain, **plain)


__all__ = ["check_call", "default_attributes", "find_schema", "function_body", "has_body", "type_text"]
