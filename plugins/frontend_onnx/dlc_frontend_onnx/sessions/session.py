"""Sessions with the interface of onnxruntime: `InferenceSession`, with its names and argument order.

    session = InferenceSession("model.onnx")
    (scores,) = session.run(None, {"image": image})

Errors are those of dlc, `DlcError`. A feed that is unknown, missing, or of a wrong dtype or shape raises a
UsageError before anything runs.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from threading import Thread
from typing import Any

import numpy as np

from dlc_core.cancel import entered
from dlc_core.diag import DlcError, UsageError
from dlc_core.driver import targets
from dlc_core.target import Target
from dlc_frontend_onnx.model import ValueInfo
from dlc_frontend_onnx.placement import target_of
from dlc_frontend_onnx.reader import Source
from dlc_frontend_onnx.sessions.binding import IOBinding, OrtValue
from dlc_frontend_onnx.sessions.naming import NodeArg, type_text
from dlc_frontend_onnx.sessions.options import (
    IgnoredOptionWarning,
    RunOptions,
    SessionOptions,
    compile_options,
)
from dlc_frontend_onnx.specialized import CallableModel

CPU = "CPUExecutionProvider"
_SUFFIX = "ExecutionProvider"

Array = np.ndarray[Any, Any]


@dataclass(frozen=True)
class ModelMetadata:
    """The metadata of a model."""

    producer_name: str
    graph_name: str
    domain: str
    description: str
    graph_description: str
    version: int
    custom_metadata_map: Mapping[str, str] = field(default_factory=dict)


class InferenceSession:
    """A model compiled for this machine and called with arrays by name.

    `path_or_bytes` is a path, the bytes of a file or an `onnx.ModelProto`. `sess_options` are
    `SessionOptions` of dlc or onnxruntime. `providers` are names in order of preference, or pairs of a name
    and options. "CPUExecutionProvider" is the best CPU target (`DLC_ONNX_TARGET` overrides it), and the text
    of any target is a provider too, such as "reference". The first usable provider is chosen, and a warning
    names those before it. `provider_options`, a dict per provider, are options of its target; a warning names
    unknown ones. `importers` are custom operators (see `custom`). `donate` is that of `dlc.compile`: donated
    inputs, such as `{"past_key_values.*": 2048}`, whose memory the outputs overwrite. `shapes` pins and
    bounds dims as in `dlc.compile`, `{"batch": (1, 8)}`, in addition to the free dimensions that the options
    override.

    Raises ModelError for malformed models, UnsupportedError for unsupported ones, UsageError for wrong
    arguments.
    """

    def __init__(
        self,
        path_or_bytes: Source,
        sess_options: Any = None,
        providers: Sequence[Any] | None = None,
        provider_options: Sequence[Mapping[str, Any]] | None = None,
        *,
        importers: Sequence[Any] = (),
        donate: Mapping[str, int] | None = None,
        shapes: Mapping[str, Any] | None = None,
        **kwargs: Any,
    ) -> None:
        if kwargs:
            _warn(f"ignored arguments of the session: {', '.join(kwargs)}")
        self._options = sess_options
        self._provider, self._target = _choose(providers, provider_options)
        self._source, self._importers, self._donate = path_or_bytes, tuple(importers), donate
        self._shapes = dict(shapes or {})
        self.model = self._compiled()
        """The compiled model, for features that sessions lack: `session.model.whole` is its executable."""

    def run(
        self, output_names: Sequence[str] | None, input_feed: Mapping[str, Any], run_options: Any = None
    ) -> list[Array]:
        """The named outputs as arrays, in the order of the names; all outputs for None or no names.

        Feeds are arrays or `OrtValue`s by input name.
        """
        known = [info.name for info in self.model.model.graph.outputs]
        for name in output_names or ():
            if name not in known:
                raise UsageError(f"unknown output {name!r}", hint=f"outputs: {', '.join(known)}")
        with entered(run_options.token if isinstance(run_options, RunOptions) else None):
            found = self.model(input_feed)
        if not output_names:
            return list(found)
        by_name = dict(zip(known, found))
        return [by_name[name] for name in output_names]

    def run_async(
        self,
        output_names: Sequence[str] | None,
        input_feed: Mapping[str, Any],
        callback: Callable[[list[Array], Any, str], None],
        user_data: Any,
        run_options: Any = None,
    ) -> None:
        """As `run`, in a new thread that calls `callback(outputs, user_data, error)` at the end.

        `error` is empty on success; else it is the error's text, and there are no outputs.
        """

        def work() -> None:
            try:
                found, error = self.run(output_names, input_feed, run_options), ""
            except DlcError as failure:
                found, error = [], str(failure)
            callback(found, user_data, error)

        Thread(target=work, daemon=True).start()

    def run_with_ort_values(
        self,
        output_names: Sequence[str] | None,
        input_dict_ort_values: Mapping[str, Any],
        run_options: Any = None,
    ) -> list[OrtValue]:
        """As `run`, with `OrtValue`s as inputs and outputs."""
        return [OrtValue(array) for array in self.run(output_names, input_dict_ort_values, run_options)]

    def io_binding(self) -> IOBinding:
        """A new binding to fixed memory, for calls without copies."""
        return IOBinding(self)

    def run_with_iobinding(self, iobinding: IOBinding, run_options: Any = None) -> None:
        """Run with a binding of this session."""
        with entered(run_options.token if isinstance(run_options, RunOptions) else None):
            iobinding.run()

    def get_inputs(self) -> list[NodeArg]:
        """The required inputs."""
        return [_described(info) for info in self.model.inputs]

    def get_overridable_initializers(self) -> list[NodeArg]:
        """The inputs with a default value that a call may override. The model is compiled again for each
        other value.

        Files before IR version 4 list all their weights among the inputs; for them the list is empty.
        """
        if self.model.model.ir_version < 4:
            return []
        return [_described(info) for info in self.model.defaults]

    def get_outputs(self) -> list[NodeArg]:
        """The outputs, with inferred types if the model declares none."""
        exe = self.model.whole
        inferred = {} if exe is None else {value.name: value for value in exe.outputs}
        found = []
        for info in self.model.model.graph.outputs:
            value = inferred.get(info.name)
            if value is None or (info.dtype is not None and info.shape is not None):
                found.append(_described(info))
            else:
                shape: list[int | str | None] = [d if isinstance(d, int) else str(d) for d in value.shape]
                found.append(NodeArg(info.name, shape, type_text(value.dtype.name)))
        return found

    def get_modelmeta(self) -> ModelMetadata:
        """The model's producer, names, descriptions, version and metadata."""
        read = self.model.model
        return ModelMetadata(
            producer_name=read.producer,
            graph_name=read.name,
            domain=read.domain,
            description=read.description,
            graph_description=read.graph_description,
            version=read.model_version,
            custom_metadata_map=dict(read.metadata),
        )

    def get_providers(self) -> list[str]:
        """The provider in use."""
        return [self._provider]

    def get_provider_options(self) -> dict[str, dict[str, Any]]:
        """The options of the target in use."""
        return {self._provider: dict(self._target.options)}

    def set_providers(
        self,
        providers: Sequence[Any] | None = None,
        provider_options: Sequence[Mapping[str, Any]] | None = None,
    ) -> None:
        """Compile the model again for other providers."""
        self._provider, self._target = _choose(providers, provider_options)
        self.model = self._compiled()

    def _compiled(self) -> CallableModel:
        options = compile_options(self._options)
        options["shapes"] = {**options.get("shapes", {}), **self._shapes}
        if self._donate is not None:
            options["donate"] = self._donate
        return CallableModel(self._source, self._target, importers=self._importers, **options)

    def disable_fallback(self) -> None:
        """Does nothing, because a session never changes its provider."""

    def enable_fallback(self) -> None:
        """Does nothing, because a session never changes its provider."""

    def get_session_options(self) -> Any:
        """The `sess_options`, or the default options."""
        return SessionOptions() if self._options is None else self._options


def get_available_providers() -> list[str]:
    """The providers of this machine: its targets, and the aliases of the best one."""
    usable = [name for name, kind in targets().items() if kind.problem() is None]
    return [CPU, *sorted(usable)]


def get_device() -> str:
    """The device of sessions without providers."""
    return "CPU"


def _choose(
    providers: Sequence[Any] | None, options: Sequence[Mapping[str, Any]] | None
) -> tuple[str, Target]:
    names, given = [], []
    wanted = providers or [CPU]
    if isinstance(wanted, (str, bytes)):
        raise UsageError("providers is a string", hint=f"give a list: [{wanted!r}]")
    for item in wanted:
        name, own = item if isinstance(item, tuple) else (item, {})
        names.append(str(name))
        given.append(dict(own))
    if options:
        if len(options) != len(names):
            raise UsageError(f"{len(options)} provider_options for {len(names)} providers")
        given = [{**own, **more} for own, more in zip(given, options)]
    left = []
    for name, own in zip(names, given):
        try:
            target = target_of(name.removesuffix(_SUFFIX))
        except DlcError as error:
            left.append((name, error))
            continue
        if left:
            _warn("providers that cannot be used here: " + ", ".join(name for name, _ in left))
        return name, _with_options(target, own)
    raise UsageError(
        "none of the providers can be used here: " + ", ".join(names),
        why="; ".join(str(error.why or error.what) for _, error in left),
        hint="providers: " + ", ".join(get_available_providers()),
    )


def _with_options(target: Target, wanted: Mapping[str, Any]) -> Target:
    known = {option.name.replace("-", "_") for option in target.kind.options}
    unknown = [name for name in wanted if name.replace("-", "_") not in known]
    if unknown:
        _warn(f"ignored options of the provider: {', '.join(unknown)}")
    own = {name.replace("-", "_"): value for name, value in wanted.items() if name not in unknown}
    return target.with_options(**own) if own else target


def _described(info: ValueInfo) -> NodeArg:
    return NodeArg(info.name, list(info.shape or ()), type_text(info.type))


def _warn(text: str) -> None:
    warnings.warn(text, IgnoredOptionWarning, stacklevel=4)


__all__ = ["InferenceSession", "ModelMetadata", "get_available_providers", "get_device"]
