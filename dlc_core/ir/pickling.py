"""Parts of programs as bytes for another process of the same compile.

    data = dumps(value, shared)         in one process
    value = loads(data, shared)         in the other, which interns the expressions

`shared` are the variables and buffers that both processes have, in the same order. They keep their identity;
all others become new ones. Use it only for a pipe between a process and its child: never read such data from
other sources, because pickles can run code.
"""

from __future__ import annotations

import io
import pickle
from collections.abc import Sequence
from types import MappingProxyType
from typing import Any

from dlc_core.ir import expr as ex
from dlc_core.ir.buffer import Buffer

Shared = Sequence[ex.Var | Buffer]


def dumps(value: Any, shared: Shared = ()) -> bytes:
    """Serialise numbers, strings, containers, expressions and buffers. Raises pickle's errors for other
    values.
    """
    file = io.BytesIO()
    _Writer(file, shared).dump(value)
    return file.getvalue()


def loads(data: bytes, shared: Shared = ()) -> Any:
    """Read what `dumps` wrote in a process with the same `shared`."""
    return _Reader(io.BytesIO(data), shared).load()


class _Writer(pickle.Pickler):
    def __init__(self, file: io.BytesIO, shared: Shared) -> None:
        super().__init__(file, pickle.HIGHEST_PROTOCOL)
        self._numbers = {id(one): number for number, one in enumerate(shared)}

    def persistent_id(self, value: Any) -> int | None:
        return self._numbers.get(id(value)) if isinstance(value, (ex.Var, Buffer)) else None

    def reducer_override(self, value: Any) -> Any:
        if isinstance(value, MappingProxyType):
            return _read_only, (dict(value),)
        if isinstance(value, Buffer):
            return _buffer, (
                value.name, value.shape, value.dtype, value.strides, value.scope, value.offset, value.align,
            )  # fmt: skip
        return (value.make, value.values) if isinstance(value, ex.Expr) else NotImplemented


class _Reader(pickle.Unpickler):
    def __init__(self, file: io.BytesIO, shared: Shared) -> None:
        super().__init__(file)
        self._shared = shared

    def persistent_load(self, number: Any) -> Any:
        return self._shared[number]


def _read_only(values: dict[Any, Any]) -> MappingProxyType[Any, Any]:
    return MappingProxyType(values)


def _buffer(
    name: str, shape: Any, dtype: Any, strides: Any, scope: str, offset: ex.Expr, align: int
) -> Buffer:
    return Buffer(name, shape, dtype, strides=strides, scope=scope, offset=offset, align=align)


__all__ = ["Shared", "dumps", "loads"]
