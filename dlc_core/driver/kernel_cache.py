"""The cache of compiled kernels, which models share: one file for each kernel, in `config.cache_dir/kernels`.

    cache = KernelCache.of(context, pipeline)       None if something of the context has no stable name
    path = cache.path(func)                         the file of a kernel
    cache.get(path, func) -> Result | None          its parameters, attributes and code
    cache.put(path, func, result)

A key covers the kernel's program, the target and its processor, the settings, the pipeline, and the code of
the compiler and of all plugins.  It does not cover the kernel's name: all kernels are compiled under one name
and renamed, unless a pass of a plugin or a forced decision may depend on the name.  Files are written
atomically, so processes may share the folder.  A damaged file counts as missing, and a failure to write is
ignored.  The least recently used files are removed when the folder exceeds a quarter of `config.cache_size`
or half of the free disk.

`encode_result` and `decode_result` are the form of a result in a file and in the pipe between processes.
Reading it executes nothing.
"""

from __future__ import annotations

import json
import zlib
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import field, replace
from hashlib import sha256
from pathlib import Path
from types import MappingProxyType
from typing import Any

from dlc_core.config import config
from dlc_core.decisions import AT, DECISIONS
from dlc_core.diag import ArtifactError, DlcError
from dlc_core.driver.key import kernel_state, pipeline_parts
from dlc_core.ir.expr import Var
from dlc_core.ir.json import EXPR_KINDS, EXPRS, Field, Kind, decode, encode
from dlc_core.ir.structural import structural_hash
from dlc_core.passes import PassContext, Pipeline
from dlc_core.schedule.index_map import IndexMap
from dlc_core.support.disk import read_checked, write_checked
from dlc_core.support.kept_files import KeptFiles
from dlc_core.support.record import record
from dlc_core.tir.json import tir_kinds
from dlc_core.tir.stmt import PrimFunc

Result = tuple[PrimFunc, bytes]
"""A compiled kernel without its body, and the code that the code generator's `emit_part` made of it."""

NAME = "dlc_kernel"
"""The name under which kernels are compiled."""
SHARE = 4
"""The kernels take at most this fraction of the cache."""
_MOST = 1 << 26
_LENGTH = 8
_LEVEL = 1
"""The compression level: decompression is fast at any level."""
_FRESH = 86400.0
"""Seconds during which the time of the last use of a file is not updated."""


_KINDS = (
    *EXPR_KINDS,
    *tir_kinds(),
    Kind(
        "index_map",
        IndexMap,
        (
            Field("inputs", "refs", (Var,)),
            Field("outputs", "refs", EXPRS),
            Field("parts", "refs", (IndexMap,)),
        ),
        IndexMap,
    ),
)


def encode_result(result: Result, func: PrimFunc) -> bytes:
    """A result as bytes.  The parameters of `func`, the kernel before its compile, keep their identity.

    Raises UsageError for attributes that have no JSON.
    """
    done, code = result
    head = json.dumps(encode(done, _KINDS, known=func.params)).encode()
    return len(head).to_bytes(_LENGTH, "little") + head + code


def decode_result(data: bytes, func: PrimFunc) -> Result:
    """Read what `encode_result` wrote.  Raises ArtifactError if it is malformed."""
    start = _LENGTH + int.from_bytes(data[:_LENGTH], "little")
    try:
        head = json.loads(data[_LENGTH:start])
    except ValueError as error:
        raise ArtifactError("the record of a kernel is malformed", why=str(error)) from error
    done = decode(head, _KINDS, known=func.params)
    if not isinstance(done, PrimFunc):
        raise ArtifactError("the record of a kernel is malformed")
    return done, data[start:]


def renamed(result: Result, name: str) -> Result:
    """A result under another name of the kernel, also in texts about its checks and choices."""
    done, code = result
    if done.name == name:
        return result
    return replace(done, name=name, attrs=_with_name(done.attrs, done.name, name)), code


def _with_name(value: Any, old: str, new: str) -> Any:
    match value:
        case str():
            return value.replace(old, new)
        case tuple():
            return tuple(_with_name(item, old, new) for item in value)
        case Mapping():
            return MappingProxyType({key: _with_name(item, old, new) for key, item in value.items()})
        case _:
            return value


@record(frozen=True)
class KernelCache:
    """The cached kernels of one target and one set of settings."""

    files: KeptFiles
    named: bool
    """Whether kernels depend on their names."""
    surroundings: str
    """The digest of everything that a kernel's code depends on besides its program."""
    state_of: Callable[[PrimFunc], str] = field(default=lambda _: "")
    """What the code of a kernel depends on besides, such as the schedule that a tuner has for it."""

    @staticmethod
    def of(context: PassContext, pipeline: Pipeline) -> KernelCache | None:
        """The cache of a context; None if kernels depend on something that has no stable name."""
        parts = pipeline_parts(context, pipeline)
        if parts is None:
            return None
        digest = sha256(json.dumps(parts, sort_keys=True).encode()).hexdigest()
        own = __name__.partition(".")[0]
        # Rules cannot depend on names: kernels that are equal but for their names are merged before.
        foreign = any(type(one).__module__.partition(".")[0] != own for one in pipeline.active(context))
        named = foreign or AT in str(context.config.get(DECISIONS, ""))
        states, target = kernel_state(context.tuner), context.target
        if states is None:
            return KernelCache(kept_kernels(), named, digest)
        return KernelCache(kept_kernels(), named, digest, lambda func: states(func, target))

    def nameless(self, func: PrimFunc) -> PrimFunc:
        """A kernel under the name under which it is compiled."""
        return func if self.named else replace(func, name=NAME)

    def path(self, func: PrimFunc) -> Path:
        """The file of a kernel."""
        state = self.state_of(func)
        own = f" {sha256(state.encode()).hexdigest()}" if state else ""
        key = f"{self.surroundings} {structural_hash(self.nameless(func))}{own}"
        return self.files.folder / sha256(key.encode()).hexdigest()[:40]

    def get(self, path: Path, func: PrimFunc) -> Result | None:
        """The compiled kernel, under its own name; None if it is not in the cache.  `path` is its file."""
        data = read_checked(path, _MOST, _FRESH)
        if data is None:
            return None
        try:
            return renamed(decode_result(zlib.decompress(data), func), func.name)
        except (ArtifactError, zlib.error):
            return None

    def put(self, path: Path, func: PrimFunc, result: Result) -> None:
        """Keep the result of `nameless(func)` in the kernel's file."""
        with suppress(DlcError):  # an attribute of a plugin's pass may have no JSON
            if write_checked(path, zlib.compress(encode_result(result, func), _LEVEL)):
                self.files.added(path)


def kept_kernels() -> KeptFiles:
    """The files of the cache."""
    return KeptFiles(config.cache_dir / "kernels", (config.cache_size << 20) // SHARE)


__all__ = [
    "NAME",
    "KernelCache",
    "Result",
    "decode_result",
    "encode_result",
    "kept_kernels",
    "renamed",
]
