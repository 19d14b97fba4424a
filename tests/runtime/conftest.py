"""Devices of every kind: arrays in and out, this process's memory, their own memory."""

from __future__ import annotations

import ctypes
import json
import math
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest

from dlc_core.arith import eval_expr
from dlc_core.config import config
from dlc_core.graph.node import Function, constant, make_tuple, param, post_order
from dlc_core.hooks import hookimpl
from dlc_core.ir.expr import Var
from dlc_core.ir.module import IRModule
from dlc_core.ir.types import tensor_type
from dlc_core.plugin.registry import fresh_registry, registry
from dlc_core.runtime.device import HostMemory
from dlc_core.script.json import from_json
from dlc_core.target import STAGES, Description
from dlc_core.target.reference import KIND, TENSOR
from dlc_core.tir.interpreter import run


class Program:
    """Loaded code: a module whose `main` the interpreter runs."""

    def __init__(self, artifact):
        self.module = from_json(json.loads(artifact.code))

    def entry(self, symbol):
        return SimpleNamespace(main=self.module[symbol], module=self.module)

    def close(self):
        pass


def run_main(entry, arrays, scalars):
    """Run on raw memory: each buffer is the first bytes of its memory, as many as its shape has."""
    main = entry.main
    env = dict(zip(main.scalars, scalars))
    views = []
    for buffer, raw in zip(main.buffers, arrays):
        shape = [eval_expr(d, env) for d in buffer.shape]
        size = math.prod(shape) * buffer.dtype.itemsize
        views.append(raw(size).view(buffer.dtype.numpy).reshape(shape))
    run(main, *views, *scalars, module=entry.module)


class Shared(HostMemory):
    """A device in this process's memory."""

    name = "shared"
    formats = (TENSOR,)

    def load(self, artifact):
        return Program(artifact)

    def launch(self, entry, buffers, scalars, threads):
        def raw(address):
            return lambda size: np.frombuffer((ctypes.c_char * size).from_address(address), np.uint8)

        run_main(entry, [raw(address) for address in buffers], scalars)


class Board:
    """A device with its own memory, whose handles are small numbers."""

    name = "board"
    formats = (TENSOR,)

    def __init__(self):
        self.memory = {}
        self.count = 0
        self.failing = False

    def alloc(self, size, align=64):
        self.count += 1
        self.memory[self.count] = np.zeros(size, np.uint8)
        return self.count

    def free(self, handle):
        del self.memory[handle]

    def write(self, handle, data, offset=0):
        source = np.frombuffer(data, np.uint8)
        self.memory[handle][offset : offset + source.size] = source

    def read(self, handle, out, offset=0):
        target = np.frombuffer(out, np.uint8)
        target[:] = self.memory[handle][offset : offset + target.size]

    def load(self, artifact):
        return Program(artifact)

    def launch(self, entry, buffers, scalars, threads):
        if self.failing:
            raise OSError("the board does not answer")
        run_main(entry, [lambda size, h=h: self.memory[h][:size] for h in buffers], scalars)

    def sync(self):
        pass


class Devices:
    """The plugin of these devices."""

    def __init__(self):
        self.board = Board()

    @hookimpl
    def dlc_targets(self):
        options = (replace(KIND.options[0], default="tir"), KIND.options[1])
        # Their entries do not branch: the host drives loops.
        plain = replace(KIND, options=options, stages=STAGES, describe=lambda _: Description(parallel=False))
        return [replace(plain, name=n, device=n) for n in ("shared", "board")]

    @hookimpl
    def dlc_devices(self):
        return [Shared(), self.board]


@pytest.fixture
def devices(tmp_path):
    """The targets `shared` and `board`, in addition to those of the core, with a cache of the test's own."""
    plugin = Devices()
    with fresh_registry({"devices": plugin}), _own_folders(tmp_path):
        yield plugin


def _own_folders(folder):
    return config.override(cache_dir=folder / "cache", reproducer_dir=folder / "reproducers")


@pytest.fixture(params=["reference", "reference -level=tir", "shared", "board"])
def target(request, devices):
    """The name of each target."""
    return request.param


def call(name, *args, **attrs):
    return registry().ops[name].build(*args, **attrs)


@pytest.fixture
def models(devices):
    """Small models by name, and their weight."""
    rng = np.random.default_rng(0)
    weight = rng.standard_normal((6, 4)).astype(np.float32)

    def dense():
        x = param("x", tensor_type((2, 6)))
        return module(call("relu", call("matmul", x, constant(weight))))

    def rows():
        n = Var("n")
        x = param("x", tensor_type((n, 6)))
        return module(call("relu", call("matmul", x, constant(weight))))

    def two():
        n = Var("n")
        a, b = param("a", tensor_type((n, 3))), param("b", tensor_type((n, 3)))
        return module(call("add", a, b), call("mul", a, b))

    def identity():
        x = param("x", tensor_type((3,)))
        return module(x)

    def module(*results):
        body = results[0] if len(results) == 1 else make_tuple(results)
        params = tuple(n for n in post_order(body) if n.op.name == "param")
        return IRModule({"main": Function("main", params, body)})

    return SimpleNamespace(dense=dense, rows=rows, two=two, identity=identity, module=module, weight=weight)
