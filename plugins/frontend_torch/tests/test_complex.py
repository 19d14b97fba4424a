"""Complex numbers and Fourier transforms, compiled by dlc, against eager."""

import dlc_frontend_torch.aten  # noqa: F401 (registers the converters)
import numpy as np
import pytest
import torch
from dlc_frontend_torch.aten.complex_numbers import FUNCTIONS
from dlc_frontend_torch.aten.complex_tensors import LINEAR
from dlc_frontend_torch.registry import COMPLEX, CONVERTERS

import dlc_core as dlc
from dlc_core.diag import UnsupportedError

pytestmark = pytest.mark.filterwarnings("ignore:.*LeafSpec:FutureWarning")  # torch.export warns of itself


@pytest.fixture(autouse=True)
def numbers():
    torch.manual_seed(0)


def values(*shape, dtype=torch.complex64):
    return torch.randn(shape, dtype=dtype)


def several(x):
    """All functions of one operand, where they are well conditioned."""
    y = x * 0.5
    made = [y.exp(), y.log(), y.log2(), y.log10(), y.log1p(), y.sqrt(), y.rsqrt(), y.sin(), y.cos(), y.tan()]
    made += [y.sinh(), y.cosh(), y.tanh(), y.sigmoid(), y.sgn(), y.neg(), y.reciprocal(), y.exp2()]
    return [*made, torch.nn.functional.silu(y), y.square(), y.abs(), y.angle(), y.conj(), y.isnan()]


@pytest.mark.parametrize("dtype", [torch.complex64, torch.complex128])
def test_functions_of_one_operand(same_as_eager, dtype):
    same_as_eager(several, values(7, 3, dtype=dtype), gradients=False, rtol=1e-5, atol=1e-5)


def test_functions_at_the_ends_of_the_range(same_as_eager):
    x = torch.tensor(
        [0, 1, -1, 1j, -1j, 300, -300, 300j, 1e30 + 1e30j, 1e-30, 40 + 1j], dtype=torch.complex64
    )

    def f(x):
        return x.sqrt(), x.abs(), x.sgn(), x.tanh(), x / (1e30 + 1e30j), x.log1p(), x.exp(), x.reciprocal()

    same_as_eager(f, x, gradients=False, rtol=1e-5, atol=1e-6)


def test_functions_of_two_operands(same_as_eager):
    def f(x, y, r):
        made = [x + y, x - r, x * y, x / y, x * 2, x + 3j, r * 1j, 1 - x, torch.add(x, y, alpha=2j)]
        made += [x**y, x**2, x**3, x**-1, x**0.5, 2**x, x**1.5, torch.addcmul(x, y, y, value=0.5)]
        return [*made, x == y, x != x.conj(), x.logical_and(y), torch.addcdiv(x, y, x)]

    same_as_eager(f, values(4, 3), values(4, 3), torch.randn(3), gradients=False, rtol=1e-4, atol=1e-5)


def test_making_and_taking_apart(same_as_eager):
    def f(a, b):
        z = torch.complex(a, b)
        w = torch.polar(a.abs(), b)
        v = torch.view_as_complex(torch.stack([a, b], -1))
        full = torch.full((2, 3), 1 + 2j) + torch.ones(2, 3, dtype=torch.complex64) + torch.eye(2, 3)
        return z, w, v, z.real, z.imag, torch.view_as_real(w), a.to(torch.complex64), z.conj().imag, full

    same_as_eager(f, torch.randn(2, 3), torch.randn(2, 3), gradients=False)


def test_moves_of_elements(same_as_eager):
    def f(x):
        y = torch.cat([x, x[:, :2].conj()], 1).transpose(0, 1).reshape(-1, 2)
        z = torch.where(x.real > 0, x, 0).flip(1)
        w = torch.nn.functional.pad(x, (1, 2), value=1)
        v = x.index_put((torch.tensor([0, 2]),), torch.tensor(1 + 1j, dtype=x.dtype))
        return (
            y,
            z,
            w,
            v,
            x[torch.tensor([2, 0])],
            x.tril(),
            x.roll(1, 0),
            x.unbind(0)[1],
            x.masked_fill(x.real > 0, 2),
        )

    same_as_eager(f, values(4, 4), gradients=False)


def test_products_and_sums(same_as_eager):
    def f(x, y, v):
        made = [
            x @ y,
            x[0] @ y[0],
            torch.addmm(y[0], x[0], y[0], beta=2j, alpha=0.5),
            x[0] @ v,
        ]
        made += [torch.vdot(v, v), torch.dot(v, v), torch.linalg.vector_norm(x), x.var(), x.std(1)]
        return [*made, x.sum(), x.sum(1), x.mean(0), x.prod(), x.prod(1), x.cumsum(1)]

    given = values(2, 3, 3), values(2, 3, 3), values(3)
    same_as_eager(f, *given, gradients=False, rtol=1e-4, atol=1e-5)


fft, rfft, irfft, ifft = torch.fft.fft, torch.fft.rfft, torch.fft.irfft, torch.fft.ifft
TRANSFORMS = {
    "fft": lambda x, z: fft(z),
    "normalized": lambda x, z: (fft(z, norm="ortho"), ifft(z), fft(z, norm="forward")),
    "of a length": lambda x, z: (fft(z, n=7, dim=0), rfft(x, n=9), irfft(z, n=5)),
    "real": lambda x, z: (rfft(x), fft(x), irfft(z), torch.fft.hfft(z)),
    "of dims": lambda x, z: (torch.fft.fft2(z), torch.fft.rfftn(x), torch.fft.irfftn(z), torch.fft.ifftn(z)),
    "shifted": lambda x, z: (torch.fft.fftshift(z), torch.fft.fftfreq(8) + x[0, 0, 0]),
}


@pytest.mark.parametrize("name", TRANSFORMS)
def test_transforms(same_as_eager, name):
    same_as_eager(
        TRANSFORMS[name], torch.randn(3, 4, 6), values(3, 4, 6), gradients=False, rtol=1e-4, atol=1e-5
    )


@pytest.mark.parametrize("count", [1, 2, 11, 97, 521, 1024, 1031, 2000])
def test_transforms_of_many_samples(same_as_eager, count):
    """521 and 1031 are prime: they are convolutions."""

    def f(x, z):
        return torch.fft.fft(z), torch.fft.ifft(z), torch.fft.rfft(x)

    given = torch.randn(2, count, dtype=torch.float64), values(2, count, dtype=torch.complex128)
    same_as_eager(f, *given, gradients=False, rtol=1e-10, atol=1e-10)


def test_short_time_transforms(same_as_eager):
    window = torch.hann_window(16)

    def f(x):
        made = torch.stft(x, 16, 4, window=window, return_complex=True)
        return made, made.abs(), torch.istft(made, 16, 4, window=window)

    same_as_eager(f, torch.randn(2, 64), gradients=False, rtol=1e-4, atol=1e-5)


def test_gradients_through_complex_numbers(same_as_eager):
    def f(x):
        z = torch.fft.rfft(x) * torch.polar(x[..., :5].abs(), x[..., :5])
        return torch.fft.irfft(z, n=8), z.abs().sum()

    same_as_eager(f, torch.randn(3, 8), rtol=1e-4, atol=1e-5)


def test_a_transposed_complex_input_and_a_written_one():
    def f(x, y):
        y.mul_(1j)
        return x.t() + y, x.conj()

    x, y = values(3, 4), values(4, 3)
    own, others = y.clone(), y.clone()
    compiled = torch.compile(f, backend="dlc", options={"fallback": False}, dynamic=False)
    with torch.no_grad():
        found, wanted = compiled(x.t().contiguous().t(), own), f(x, others)
    torch.testing.assert_close(found, wanted)
    torch.testing.assert_close(own, others)


def test_an_exported_program_has_parts_in_the_last_dim():
    class Model(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.register_buffer("factor", torch.tensor([1j, 2.0, 1 + 1j]))

        def forward(self, z):
            return torch.fft.fft(z * self.factor)

    model, z = Model(), values(2, 3)
    exe = dlc.compile(model, example_inputs=(z,))
    assert exe.signature.inputs[0].type.shape == (2, 3, 2)
    wanted = model(z)
    for given in (torch.view_as_real(z), z, z.numpy(), z.numpy().T.copy().T):
        found = exe(given)
        torch.testing.assert_close(torch.view_as_complex(torch.from_numpy(np.asarray(found))), wanted)


def test_operators_without_complex_numbers_are_refused_by_name():
    class Model(torch.nn.Module):
        def forward(self, z):
            return torch.asin(z)

    assert "aten.asin.default" not in COMPLEX
    with pytest.raises(UnsupportedError, match=r"aten\.asin\.default: the dtype complex64 is not supported"):
        dlc.compile(Model(), example_inputs=(values(3),))


def test_linear_operators_have_converters_of_real_numbers():
    names = [name for names in LINEAR.values() for name in names.split()]
    full = [f"aten.{name}" if "." in name else f"aten.{name}.default" for name in names]
    assert set(full) <= set(CONVERTERS)
    assert set(full) | {f"aten.{name}.default" for name in FUNCTIONS} <= set(COMPLEX)
