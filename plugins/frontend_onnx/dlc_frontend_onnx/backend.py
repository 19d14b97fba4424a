"""dlc as an ONNX backend with the interface of `onnx.backend.base`: this module itself, or `DlcBackend`.

    import onnx.backend.test
    import dlc_frontend_onnx.backend

    suite = onnx.backend.test.BackendTest(dlc_frontend_onnx.backend, __name__)
    globals().update(suite.test_cases)

The device "CPU" is the best target of this machine, or the one in `DLC_ONNX_TARGET`. Any other target is a
device under its own text, such as "reference". Unsupported models raise a `DlcError` with the reason.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import onnx
from onnx import NodeProto, defs, helper
from onnx.backend.base import Backend, BackendRep

from dlc_core.diag import DlcError, UnsupportedError, UsageError
from dlc_frontend_onnx.convert import domain_of
from dlc_frontend_onnx.custom import importers_for
from dlc_frontend_onnx.dtypes import number_of
from dlc_frontend_onnx.flattening import dtype_of, fed, has_parts
from dlc_frontend_onnx.importer import import_parts
from dlc_frontend_onnx.placement import target_of
from dlc_frontend_onnx.reader import Source, read_model
from dlc_frontend_onnx.specialized import CallableModel, has_open_dims, may_decide
from dlc_frontend_onnx.support import check_support, live_nodes

_OPTIONS = ("target", "num_threads", "opt_level", "shapes", "config", "importers")
_OF_TESTS = ("rtol", "atol")
"""Arguments of ONNX's suite for the comparison; the backend ignores them."""


class DlcBackendRep(BackendRep):
    """A compiled model; `model` has its executables."""

    def __init__(self, model: CallableModel) -> None:
        self.model = model

    def run(self, inputs: Any, **kwargs: Any) -> tuple[Any, ...]:
        """The outputs for inputs given as a list in the order of the graph, a dict by name, or one array.

        A list contains either all inputs, or those without an initializer.
        """
        if kwargs:
            raise UsageError(f"run has no option {next(iter(kwargs))!r}")
        return self.model(self._feeds(inputs))

    def _feeds(self, inputs: Any) -> Mapping[str, Any]:
        if isinstance(inputs, Mapping):
            return inputs
        given = list(inputs) if isinstance(inputs, (list, tuple)) else [inputs]
        required = [info.name for info in self.model.inputs]
        every = [info.name for info in self.model.model.graph.inputs]
        names = required if len(given) <= len(required) else every
        if not len(required) <= len(given) <= len(every):
            wanted = f"{len(required)}" if len(required) == len(every) else f"{len(required)} to {len(every)}"
            raise UsageError(
                f"{len(given)} inputs given, {wanted} needed", hint=f"inputs: {', '.join(every) or 'none'}"
            )
        return dict(zip(names, given))


class DlcBackend(Backend):
    """`onnx.backend.base.Backend` by dlc.

    Keywords are those of `dlc.compile` (`target`, `num_threads`, `opt_level`, `shapes`, `config`,
    `importers`); `target` takes precedence over `device`.
    """

    @classmethod
    def supports_device(cls, device: str) -> bool:
        """Whether models can be compiled for a device and run on it on this machine."""
        try:
            target_of(device)
        except DlcError:
            return False
        return True

    @classmethod
    def is_compatible(cls, model: Source, device: str = "CPU", **kwargs: Any) -> bool:
        """Whether a model can be imported.

        If the import depends on values of inputs, the answer is only whether all operators are supported.
        """
        if not cls.supports_device(device):
            return False
        try:
            read = read_model(model)
            read.importers = importers_for(kwargs.get("importers", ()))
            check_support(read, live_nodes(read.graph))
            try:
                import_parts(read, kwargs.get("shapes"), {})
            except UnsupportedError:
                return any(
                    may_decide(info) or has_parts(info.type) or has_open_dims(info)
                    for info in read.graph.required_inputs
                )
        except DlcError:
            return False
        return True

    @classmethod
    def prepare(cls, model: Source, device: str = "CPU", **kwargs: Any) -> DlcBackendRep:
        """Compile a model: an `onnx.ModelProto`, its bytes, or a path.

        Raises ModelError if it violates the standard, and UnsupportedError, which names all unsupported
        nodes.
        """
        options = {name: value for name, value in kwargs.items() if name not in _OF_TESTS}
        unknown = [name for name in options if name not in _OPTIONS]
        if unknown:
            raise UsageError(f"prepare has no option {unknown[0]!r}", hint=f"options: {', '.join(_OPTIONS)}")
        target = options.pop("target", None)
        return DlcBackendRep(CallableModel(model, target_of(device) if target is None else target, **options))

    @classmethod
    def run_model(cls, model: Source, inputs: Any, device: str = "CPU", **kwargs: Any) -> tuple[Any, ...]:
        """Compile a model and run it once."""
        return cls.prepare(model, device, **kwargs).run(inputs)

    @classmethod
    def run_node(
        cls,
        node: NodeProto,
        inputs: Any,
        device: str = "CPU",
        outputs_info: Sequence[tuple[Any, tuple[int, ...]]] | None = None,
        **kwargs: Any,
    ) -> tuple[Any, ...]:
        """Run one node on arrays: a dict, or a list in the order of its inputs without those omitted by "".

        `opset_version` is that of the node's domain, by default the newest known one. `outputs_info`, the
        dtypes and shapes of the outputs, is optional; they are inferred.
        """
        version = kwargs.pop("opset_version", None)
        names = list(dict.fromkeys(name for name in node.input if name))
        given = _by_name(names, inputs)
        feeds = [
            helper.make_tensor_value_info(name, number_of(dtype_of(given[name])), given[name].shape)
            for name in names
        ]
        results = [onnx.ValueInfoProto(name=name) for name in node.output if name]
        graph = helper.make_graph([node], node.name or "node", feeds, results)
        opsets = [helper.make_opsetid("", defs.onnx_opset_version())]
        domain = domain_of(node.domain)
        if domain:
            opsets.append(helper.make_opsetid(domain, version or _newest(domain)))
        elif version is not None:
            opsets = [helper.make_opsetid("", version)]
        model = helper.make_model(graph, opset_imports=opsets)
        return cls.run_model(model, given, device, **kwargs)


def _by_name(names: Sequence[str], inputs: Any) -> dict[str, Any]:
    if isinstance(inputs, Mapping):
        inputs = [inputs[name] for name in names if name in inputs]
    given = list(inputs) if isinstance(inputs, (list, tuple)) else [inputs]
    if len(given) != len(names):
        raise UsageError(f"{len(given)} inputs given, the node has {len(names)}", hint=", ".join(names))
    return {name: fed(value, f"input {name!r}") for name, value in zip(names, given)}


def _newest(domain: str) -> int:
    return max((s.since_version for s in defs.get_all_schemas() if s.domain == domain), default=1)


is_compatible = DlcBackend.is_compatible
prepare = DlcBackend.prepare
run_model = DlcBackend.run_model
run_node = DlcBackend.run_node
supports_device = DlcBackend.supports_device

__all__ = [
    "DlcBackend",
    "DlcBackendRep",
    "is_compatible",
    "prepare",
    "run_model",
    "run_node",
    "supports_device",
]
