"""The mutations of the fuzzer: `BYTES` changes serialized models, `STRUCTURED` changes messages in place."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable
from typing import Any

from onnx import AttributeProto, GraphProto, ModelProto, NodeProto, TensorProto

EVIL_LOCATIONS = (
    "../outside/secret.bin",
    "sub/../../outside/secret.bin",
    "..",
    ".",
    "",
    "/etc/hostname",
    "{outside}/secret.bin",
    "//etc/hostname",
    "..\\outside\\secret.bin",
    "C:\\Windows\\win.ini",
    "link.bin",
    "linkdir/secret.bin",
    "hard.bin",
    "pipe.bin",
    "sub",
    "weights.bin/",
    "weights.bin/x",
    "weights.bin\0.txt",
    "absent.bin",
    "*/_ORT_MEM_ADDR_/*",
    "file:///etc/hostname",
    "a" * 5000,
    "/".join("a" * 300),
    "/dev/zero",
    "/proc/self/mem",
    "~/secret.bin",
)
EVIL_NUMBERS = (
    "-1",
    "99999999999999999999",
    "9223372036854775807",
    "4097",
    "1e3",
    " 1",
    "",
    "0x10",
    "٣",
    "1_0",
    "nan",
)
EVIL_INTS = (-1, -(1 << 63), (1 << 63) - 1, 1 << 62, 1 << 32, 1 << 31, 65536, 0, 3)


def _position(rng: random.Random, data: bytes) -> int:
    limit = len(data) if rng.random() < 0.5 else min(len(data), 4096)
    return rng.randrange(limit) if limit else 0


def truncate(rng: random.Random, data: bytes, base: list[tuple[str, bytes]]) -> bytes:
    return data[: _position(rng, data)]


def flip_bits(rng: random.Random, data: bytes, base: list[tuple[str, bytes]]) -> bytes:
    out = bytearray(data)
    for _ in range(rng.choice((1, 1, 2, 8)) if out else 0):
        out[_position(rng, data)] ^= 1 << rng.randrange(8)
    return bytes(out)


def insert_bytes(rng: random.Random, data: bytes, base: list[tuple[str, bytes]]) -> bytes:
    at = _position(rng, data)
    extra = rng.choice(
        (rng.randbytes(rng.randrange(1, 16)), b"\xff" * 9 + b"\x01", b"\x00", b"\x0b", b"\x80" * 12)
    )
    return data[:at] + extra + data[at:]


def delete_bytes(rng: random.Random, data: bytes, base: list[tuple[str, bytes]]) -> bytes:
    at = _position(rng, data)
    return data[:at] + data[at + rng.choice((1, 2, 8, 64)) :]


def overwrite_bytes(rng: random.Random, data: bytes, base: list[tuple[str, bytes]]) -> bytes:
    at = _position(rng, data)
    new = rng.choice((b"\xff\xff\xff\xff\x07", b"\x00" * 4, b"\xfe\xff", rng.randbytes(4)))
    return data[:at] + new + data[at + len(new) :]


def repeat_bytes(rng: random.Random, data: bytes, base: list[tuple[str, bytes]]) -> bytes:
    at = _position(rng, data)
    return data[:at] + data[at : at + rng.choice((2, 16, 256))] * rng.choice((2, 3, 8)) + data[at:]


def splice(rng: random.Random, data: bytes, base: list[tuple[str, bytes]]) -> bytes:
    other = rng.choice(base)[1]
    return data[: _position(rng, data)] + other[_position(rng, other) :]


BYTES = (truncate, flip_bits, insert_bytes, delete_bytes, overwrite_bytes, repeat_bytes, splice)


def _graphs(model: ModelProto) -> list[GraphProto]:
    found = [model.graph]
    for graph in found:
        for node in graph.node:
            for attribute in node.attribute:
                found += [attribute.g] if attribute.HasField("g") else []
                found += attribute.graphs
    return found


def _nodes(model: ModelProto) -> list[NodeProto]:
    return [node for owner in (*_graphs(model), *model.functions) for node in owner.node]


def _attrs(model: ModelProto) -> list[AttributeProto]:
    return [attribute for node in _nodes(model) for attribute in node.attribute]


def _tensors(model: ModelProto) -> list[TensorProto]:
    found: list[TensorProto] = []
    for graph in _graphs(model):
        found += graph.initializer
        for sparse in graph.sparse_initializer:
            found += [sparse.values, sparse.indices]
    for attribute in _attrs(model):
        found += [attribute.t] if attribute.HasField("t") else []
        if attribute.HasField("sparse_tensor"):
            found += [attribute.sparse_tensor.values, attribute.sparse_tensor.indices]
    return found


def _pick(rng: random.Random, items: Iterable[Any]) -> Any:
    options = list(items)
    return rng.choice(options) if options else None


def bad_dims(rng: random.Random, model: ModelProto) -> None:
    if (tensor := _pick(rng, _tensors(model))) is not None:
        new = rng.choice(
            ([rng.choice(EVIL_INTS)], [1 << 32, 1 << 32], [-2, -2], [1] * 80, [0, 1 << 62, 1 << 62])
        )
        if rng.random() < 0.5:
            del tensor.dims[:]
        tensor.dims.extend(new)


def bad_type(rng: random.Random, model: ModelProto) -> None:
    if (tensor := _pick(rng, _tensors(model))) is not None:
        tensor.data_type = rng.choice((*range(30), 99, -1, 1 << 30))


def two_value_fields(rng: random.Random, model: ModelProto) -> None:
    if (tensor := _pick(rng, _tensors(model))) is not None:
        tensor.float_data.extend([1.0] * 4)
        tensor.int32_data.extend([1 << 30])


def wrong_value_field(rng: random.Random, model: ModelProto) -> None:
    if (tensor := _pick(rng, _tensors(model))) is not None:
        tensor.ClearField("raw_data")
        chosen = rng.choice(
            ("float_data", "int32_data", "int64_data", "double_data", "uint64_data", "string_data")
        )
        getattr(tensor, chosen).extend([b"\xff\xfe"] if chosen == "string_data" else [rng.choice((1, 300))])


def external_escape(rng: random.Random, model: ModelProto) -> None:
    if (tensor := _pick(rng, _tensors(model))) is not None:
        _make_external(rng, tensor, rng.choice(EVIL_LOCATIONS))


def external_range(rng: random.Random, model: ModelProto) -> None:
    if (tensor := _pick(rng, _tensors(model))) is not None:
        _make_external(rng, tensor, rng.choice(("weights.bin", "sub/part.bin", "empty.bin", "./weights.bin")))
        for key in ("offset", "length", rng.choice(("location", "__class__", "basepath", "offset"))):
            if rng.random() < 0.6:
                tensor.external_data.add(key=key, value=rng.choice(EVIL_NUMBERS))


def _make_external(rng: random.Random, tensor: TensorProto, location: str) -> None:
    for name in (
        "raw_data",
        "float_data",
        "int32_data",
        "int64_data",
        "double_data",
        "uint64_data",
        "string_data",
    ):
        if rng.random() < 0.95:
            tensor.ClearField(name)
    del tensor.external_data[:]
    tensor.data_location = TensorProto.EXTERNAL
    tensor.external_data.add(key="location", value=location)


def drop_initializer(rng: random.Random, model: ModelProto) -> None:
    graph = rng.choice(_graphs(model))
    if graph.initializer:
        del graph.initializer[rng.randrange(len(graph.initializer))]


def repeat_definition(rng: random.Random, model: ModelProto) -> None:
    graph = rng.choice(_graphs(model))
    chosen = rng.choice(
        (graph.initializer, graph.input, graph.node, graph.sparse_initializer, graph.value_info)
    )
    if chosen:
        chosen.add().CopyFrom(rng.choice(chosen))


def rename(rng: random.Random, model: ModelProto) -> None:
    if (node := _pick(rng, _nodes(model))) is not None:
        names = rng.choice((node.input, node.output))
        if names:
            names[rng.randrange(len(names))] = rng.choice(
                ("", "nowhere", "a\nb\x1b[31m", "x" * 10000, *names)
            )


def cycle(rng: random.Random, model: ModelProto) -> None:
    owner: Any = rng.choice([*_graphs(model), *model.functions])
    if owner.node and (source := _pick(rng, owner.node)).output:
        owner.node[rng.randrange(len(owner.node))].input.append(source.output[0])


def shuffle_nodes(rng: random.Random, model: ModelProto) -> None:
    owner: Any = rng.choice([*_graphs(model), *model.functions])
    order = list(owner.node)
    rng.shuffle(order)
    del owner.node[:]
    owner.node.extend(order)


def bad_attribute(rng: random.Random, model: ModelProto) -> None:
    if (attribute := _pick(rng, _attrs(model))) is not None:
        kind = rng.randrange(5)
        if kind == 0:
            attribute.type = rng.randrange(15)
        elif kind == 1:
            attribute.ints.extend([1, -(1 << 63)])
        elif kind == 2:
            attribute.ref_attr_name = "outer"
        elif kind == 3:
            attribute.name = rng.choice(("", "value", "\0"))
        else:
            attribute.Clear()


def repeat_attribute(rng: random.Random, model: ModelProto) -> None:
    if (node := _pick(rng, (node for node in _nodes(model) if node.attribute))) is not None:
        node.attribute.add().CopyFrom(rng.choice(node.attribute))


def nest_graphs(rng: random.Random, model: ModelProto) -> None:
    graph = model.graph
    for _ in range(rng.choice((5, 20, 30, 200))):
        node = graph.node.add(
            op_type="If", input=[graph.input[0].name] if graph.input else [], output=["deep"]
        )
        attribute = node.attribute.add(name="then_branch", type=AttributeProto.GRAPH)
        graph = attribute.g
        graph.name = "inner"


def nest_types(rng: random.Random, model: ModelProto) -> None:
    kind = model.graph.input.add(name="nested").type
    for _ in range(rng.choice((3, 40, 90, 300))):
        kind = rng.choice((kind.sequence_type, kind.optional_type)).elem_type
    kind.tensor_type.elem_type = rng.choice((1, 99))


def circular_functions(rng: random.Random, model: ModelProto) -> None:
    many = rng.choice((1, 2, 80))
    for number in range(many):
        function = model.functions.add(name=f"g{number}", domain="evil", input=["x"], output=["y"])
        function.opset_import.add(domain="", version=20)
        function.node.add(op_type=f"g{(number + 1) % many}", domain="evil", input=["x"], output=["y"])


def laughing_functions(rng: random.Random, model: ModelProto) -> None:
    for number in range(60):
        function = model.functions.add(name=f"h{number}", domain="evil", input=["x"], output=["y"])
        function.opset_import.add(domain="", version=20)
        for position in range(10):
            name, domain = (f"h{number + 1}", "evil") if number < 59 else ("Relu", "")
            source = "x" if position == 0 else f"t{position - 1}"
            target = "y" if position == 9 else f"t{position}"
            function.node.add(op_type=name, domain=domain, input=[source], output=[target])
    if model.graph.input:
        model.graph.node.add(op_type="h0", domain="evil", input=[model.graph.input[0].name], output=["laugh"])


def bad_function(rng: random.Random, model: ModelProto) -> None:
    if (function := _pick(rng, model.functions)) is not None:
        rng.choice(
            (
                lambda: function.ClearField("opset_import"),
                lambda: function.output.append("nowhere"),
                lambda: function.input.append(rng.choice((*function.input, ""))),
                lambda: function.ClearField("name"),
                lambda: model.functions.add().CopyFrom(function),
                lambda: function.ClearField("attribute"),
            )
        )()


def bad_versions(rng: random.Random, model: ModelProto) -> None:
    kind = rng.randrange(4)
    if kind == 0:
        model.ir_version = rng.choice((0, -1, 1, 2, 99, (1 << 63) - 1))
    elif kind == 1:
        del model.opset_import[:]
    else:
        model.opset_import.add(
            domain=rng.choice(("", "ai.onnx", "other")), version=rng.choice((0, -5, 1, 1 << 40))
        )


def bad_shape(rng: random.Random, model: ModelProto) -> None:
    infos: list[Any] = [*model.graph.input, *model.graph.output, *model.graph.value_info]
    if (info := _pick(rng, infos)) is not None:
        dim = info.type.tensor_type.shape.dim.add()
        dim.dim_value = rng.choice(EVIL_INTS)
        info.type.tensor_type.elem_type = rng.choice((0, 1, 29, 99, -1))


def bad_sparse(rng: random.Random, model: ModelProto) -> None:
    sparse = [entry for graph in _graphs(model) for entry in graph.sparse_initializer]
    sparse += [attribute.sparse_tensor for attribute in _attrs(model) if attribute.HasField("sparse_tensor")]
    if (tensor := _pick(rng, sparse)) is not None:
        if rng.random() < 0.5:
            tensor.dims.append(rng.choice(EVIL_INTS))
        else:
            tensor.indices.ClearField("raw_data")
            tensor.indices.int64_data[:] = [rng.choice(EVIL_INTS) for _ in range(2)]


def lost_graph(rng: random.Random, model: ModelProto) -> None:
    chosen: Any = rng.choice((model, model.graph, _pick(rng, _nodes(model)) or model))
    fields = [descriptor.name for descriptor, _ in chosen.ListFields()]
    if fields:
        chosen.ClearField(rng.choice(fields))


STRUCTURED: tuple[Callable[[random.Random, Any], Any], ...] = (
    bad_attribute,
    bad_dims,
    bad_function,
    bad_shape,
    bad_sparse,
    bad_type,
    bad_versions,
    circular_functions,
    cycle,
    drop_initializer,
    external_escape,
    external_range,
    laughing_functions,
    lost_graph,
    nest_graphs,
    nest_types,
    rename,
    repeat_attribute,
    repeat_definition,
    shuffle_nodes,
    two_value_fields,
    wrong_value_field,
)
