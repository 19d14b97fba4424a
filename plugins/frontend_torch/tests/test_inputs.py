"""Arguments of compiled functions and executables: containers, numbers, memory layouts, wrong ones."""

import dataclasses

import numpy as np
import pytest
import torch
from torch.utils import _pytree as pytree

import dlc_core as dlc
from dlc_core.diag import DlcError, UnsupportedError, UsageError


@dataclasses.dataclass
class State:
    a: torch.Tensor
    b: torch.Tensor
    n: int = 3


def rows(*shape):
    return torch.randn(shape or (4, 6))


def add_in_place(x, y):
    x.add_(1)
    return x + y


def swap(x, y):
    kept = x.clone()
    x.copy_(y)
    y.copy_(kept)
    return x + y


def scaled(x, n):
    return x * n + n


def twice(x):
    return (x * 2).sum(-1), x * 3


def same():
    x = rows()
    return x, x


def overlapping():
    x = rows()
    return x[:3], x[1:]


CALLS = {
    "tree": (lambda d: {"s": d["a"] + d["b"][0], "t": [d["b"][1] * 2]},
             lambda: ({"a": rows(), "b": [rows(), rows()]},)),
    "dataclass": (lambda d: (d.a + d.b * d.n, d.a), lambda: (State(rows(), rows(), 5),)),
    "list": (lambda xs: ([x * 2 for x in xs], sum(xs)), lambda: ([rows(), rows()],)),
    "none": (lambda x, y=None: (x * 2 if y is None else x + y, None, 3, "s", 2.5), lambda: (rows(), None)),
    "str": (lambda x, mode: x.relu() if mode == "relu" else x.tanh(), lambda: (rows(), "relu")),
    "int": (scaled, lambda: (rows(), 3)),
    "float": (scaled, lambda: (rows(), 2.5)),
    "bool": (scaled, lambda: (rows(), True)),
    "large_int": (scaled, lambda: (torch.arange(4), 2**40)),
    "returned": (lambda x, y: (x, y, x + y, x), lambda: (rows(), rows())),
    "duplicated": (add_in_place, same),
    "overlapping": (add_in_place, overlapping),
    "mutated": (add_in_place, lambda: (rows(), rows())),
    "mutated_transposed": (add_in_place, lambda: (rows(6, 4).t(), rows())),
    "mutated_strided": (add_in_place, lambda: (rows(4, 12)[:, ::2], rows())),
    "swapped": (swap, lambda: (rows(), rows())),
    "empty": (twice, lambda: (rows(0, 6),)),
    "no_columns": (twice, lambda: (rows(4, 0),)),
    "scalar": (twice, lambda: (torch.randn(()),)),
    "strided": (twice, lambda: (rows(8, 6)[::2],)),
    "expanded": (twice, lambda: (rows(1, 6).expand(4, 6),)),
    "unaligned": (twice, lambda: (rows(25)[1:].view(4, 6),)),
    "channels_last": (torch.nn.functional.gelu,
                      lambda: (rows(2, 3, 4, 4).to(memory_format=torch.channels_last),)),
    "negated": (twice, lambda: (torch.randn(4, 6, dtype=torch.complex64).conj().imag,)),
    "parameter": (twice, lambda: (torch.nn.Parameter(rows()),)),
}  # fmt: skip


@pytest.fixture(autouse=True)
def fresh():
    torch._dynamo.reset()


def leaves(value):
    given = [dataclasses.astuple(v) if isinstance(v, State) else v for v in pytree.tree_leaves(value)]
    return pytree.tree_leaves(given)


def memory(values):
    """For each pair of tensors, whether they have the same memory."""
    places = [v.untyped_storage().data_ptr() for v in values if isinstance(v, torch.Tensor) and v.numel()]
    return [[one == other for other in places] for one in places]


@pytest.mark.parametrize("name", CALLS)
def test_a_call_is_that_of_eager(name):
    f, make = CALLS[name]
    found = []
    for g in (f, torch.compile(f, backend="dlc")):
        torch.manual_seed(1)
        given = make()
        found.append(leaves([g(*given), given]))
    assert memory(found[0]) == memory(found[1])
    for one, other in zip(*found, strict=True):
        assert type(one) is type(other)
        if isinstance(one, torch.Tensor):
            assert one.requires_grad == other.requires_grad
            torch.testing.assert_close(other, one, check_stride=False)
        else:
            assert one == other


@pytest.fixture(scope="module")
def product():
    class Product(torch.nn.Module):
        def forward(self, image, mask):
            return image * mask

    return dlc.compile(Product(), example_inputs=(rows(2, 3, 4), torch.ones(2, 3, 4)))


LAYOUTS = {
    "permuted": lambda x: x.permute(2, 1, 0).contiguous().permute(2, 1, 0),
    "expanded": lambda x: x[:1, :, :1].expand(2, 3, 4),
    "offset": lambda x: torch.cat([x, x])[1:3],
    "numpy_negative_strides": lambda x: x.numpy()[:, ::-1],
}


@pytest.mark.parametrize("name", LAYOUTS)
def test_layouts_of_arrays(product, name):
    x = LAYOUTS[name](rows(2, 3, 4))
    np.testing.assert_array_equal(product(x, torch.full((2, 3, 4), 2.0)), np.asarray(x) * 2)


WRONG = {
    "dtype": (lambda x: x.double(), "input 'image' is float64"),
    "rank": (lambda x: x[0], "input 'image' has shape"),
    "size": (lambda x: x[:, :2], "dim 1 is 2, not 3"),
    "meta": (lambda x: x.to("meta"), "input 'image'"),
    "sparse": (lambda x: x.to_sparse(), "input 'image'"),
    "gradient": (lambda x: x.requires_grad_(), "input 'image'.*detach"),
    "negated": (torch._neg_view, "input 'image'.* negated"),
    "list": (lambda x: x.tolist(), "input 'image' is a Python list"),
    "none": (lambda x: None, "input 'image' is None"),
}


@pytest.mark.parametrize("name", WRONG)
def test_wrong_arguments_are_named(product, name):
    make, text = WRONG[name]
    with pytest.raises(UsageError, match=f"(?s){text}"):
        product(make(rows(2, 3, 4)), torch.ones(2, 3, 4))


def test_tensors_without_data_are_refused():
    with pytest.raises(Exception, match="on the device meta"):
        torch.compile(scaled, backend="dlc")(rows().to("meta"), 2)
    module = torch.nn.Linear(4, 4, device="meta")
    program = torch.export.export(module, (torch.ones(1, 4, device="meta"),))
    with pytest.raises(DlcError, match="no data"):
        dlc.compile(program)


class Scaled(torch.nn.Module):
    def forward(self, x, n):
        return x * n


def test_numbers_that_differ_from_call_to_call_are_refused():
    program = torch.export.export(Scaled(), (rows(), 5), dynamic_shapes=(None, torch.export.Dim.DYNAMIC))
    with pytest.raises(UnsupportedError, match="argument 'n' is a number"):
        dlc.compile(program)
    exe = dlc.compile(Scaled(), example_inputs=(torch.ones(2), 5))
    np.testing.assert_array_equal(exe(torch.ones(2)), [5, 5])
