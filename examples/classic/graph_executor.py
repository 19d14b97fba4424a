"""The idiom of a graph executor: `set_input`, `run`, `get_output`, by name and by index."""

import tempfile
from pathlib import Path

import numpy as np

import dlc_core as dlc
from dlc_core.testing.networks import mlp

exe = dlc.compile(mlp(), target="llvm")
with tempfile.TemporaryDirectory() as folder:
    exe.save(Path(folder, "model.dlc"))  # or exe.export("model.so"), opened by dlc.load_library
    m = dlc.open(Path(folder, "model.dlc"))

(name, *_), shape = (value.name for value in m.signature.inputs), m.signature.inputs[0].type.static_shape()
x = np.random.default_rng(0).standard_normal(shape, np.float32)
m.set_input(name, x)
m.run()
first = m.get_output(0)
out = np.empty_like(first)
m.set_input(0, x)
m.run()
m.get_output(0, out)
np.testing.assert_array_equal(out, first)
np.testing.assert_array_equal(exe(x), first)
print("output", first.shape, "of", name, shape)

session = m.session()  # a thread that shares the model with others has a session of its own
session.set_input(**{name: x})
session.run()
np.testing.assert_array_equal(session.get_output(0), first)
