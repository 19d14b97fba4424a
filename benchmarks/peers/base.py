"""The interface of peers: `load(path, threads)` returns a session, `session(feeds)` outputs by name."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import partial
from importlib.metadata import PackageNotFoundError, version
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np

Array = np.ndarray[Any, Any]
Session = Callable[[Mapping[str, Array]], Mapping[str, Array]]


@dataclass(frozen=True)
class Peer:
    """`load` includes everything from the model's file to the first possible call.

    Every peer runs as its users run it: all graph optimisations, its own memory and thread pools, float32
    unless `at` changes it, and the requested number of threads. Only `load` imports its package.
    """

    name: str
    packages: tuple[str, ...]
    """Distributions that it needs; the first one's version is the peer's."""
    modules: tuple[str, ...]
    """Modules that it imports."""
    load: Callable[..., Session]
    """Takes the model's file, the number of threads, and as `precision` one of `precisions`."""
    together: bool = False
    """Whether it is measured in the benchmark's own process, beside the others that are."""
    precisions: tuple[str, ...] = ()
    """Besides float32, what it can be told to compute in."""
    serve: Callable[..., Session] | None = None
    """As `load`, from what a server would keep of the model; None where that is the model's file."""

    def at(self, precision: str) -> Peer:
        """The peer with another precision, if it supports that; else the unchanged peer, in float32."""
        if precision not in self.precisions:
            return self
        serve = None if self.serve is None else partial(self.serve, precision=precision)
        return replace(self, load=partial(self.load, precision=precision), serve=serve)

    @property
    def serving(self) -> Peer:
        """The peer as in a server, in a separate process."""
        return replace(self, load=self.serve or self.load, together=False)

    @property
    def version(self) -> str:
        return version(self.packages[0])

    @property
    def installed(self) -> bool:
        try:
            for package in self.packages:
                version(package)
            return all(find_spec(module) is not None for module in self.modules)
        except (PackageNotFoundError, ModuleNotFoundError):
            return False


def output_names(path: Path) -> list[str]:
    """Names of a model's outputs, in order."""
    import onnx

    return [each.name for each in onnx.load(path, load_external_data=False).graph.output]


def input_names(path: Path) -> list[str]:
    """Names of a model's inputs, in order, without the weights that old models list among them."""
    import onnx

    graph = onnx.load(path, load_external_data=False).graph
    constants = {each.name for each in graph.initializer}
    return [each.name for each in graph.input if each.name not in constants]
