"""Arithmetic and functions of pairs of real and imaginary parts, by the formulas of torch on the CPU."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np

from dlc_core.graph.node import Node, constant
from dlc_core.op import std
from dlc_frontend_torch.complex_value import Complex


def like(x: Node, value: float) -> Node:
    """A number in the dtype of x."""
    return constant(np.asarray(value).astype(x.dtype.numpy))


def number(x: Node, value: complex) -> Complex:
    """A complex number with parts of the dtype of x."""
    return Complex(like(x, value.real), like(x, value.imag))


def plus(a: Complex, b: Complex) -> Complex:
    """a + b."""
    return Complex(std.add(a.real, b.real), std.add(a.imaginary, b.imaginary))


def minus(a: Complex, b: Complex) -> Complex:
    """a - b."""
    return Complex(std.sub(a.real, b.real), std.sub(a.imaginary, b.imaginary))


def times(a: Complex, b: Complex, product: Callable[[Node, Node], Node] = std.mul) -> Complex:
    """The product of a and b, of elements or by another bilinear operator."""
    return Complex(
        std.sub(product(a.real, b.real), product(a.imaginary, b.imaginary)),
        std.add(product(a.real, b.imaginary), product(a.imaginary, b.real)),
    )


def scaled(a: Complex, factor: Node) -> Complex:
    """a times a real number."""
    return a.map(lambda part: std.mul(part, factor))


def opposite(a: Complex) -> Complex:
    """-a."""
    return a.map(std.neg)


def conjugate(a: Complex) -> Complex:
    """a with the opposite imaginary part."""
    return Complex(a.real, std.neg(a.imaginary))


def turned(a: Complex) -> Complex:
    """i a."""
    return Complex(std.neg(a.imaginary), a.real)


def turned_back(a: Complex) -> Complex:
    """-i a."""
    return Complex(a.imaginary, std.neg(a.real))


def selected(condition: Node, a: Complex, b: Complex) -> Complex:
    """a where the condition is true, else b."""
    return Complex(std.where(condition, a.real, b.real), std.where(condition, a.imaginary, b.imaginary))


def is_zero(a: Complex) -> Node:
    """Whether both parts are 0."""
    zero = like(a.real, 0)
    return std.logical_and(std.equal(a.real, zero), std.equal(a.imaginary, zero))


def hypotenuse(a: Node, b: Node) -> Node:
    """The square root of the sum of squares, without overflow of the squares."""
    zero, one = like(a, 0), like(a, 1)
    a, b = std.abs(a), std.abs(b)
    large, small = std.maximum(a, b), std.minimum(a, b)
    infinite = std.logical_or(std.isinf(a), std.isinf(b))
    part = std.div(small, std.where(std.equal(large, zero), one, large))
    length = std.mul(large, std.sqrt(std.add(one, std.mul(part, part))))
    return std.where(infinite, like(a, math.inf), length)


def length(a: Complex) -> Node:
    """The absolute value."""
    return hypotenuse(a.real, a.imaginary)


def angle(a: Complex) -> Node:
    """The angle to the real axis, from -pi to pi."""
    return std.atan2(a.imaginary, a.real)


def divided(a: Complex, b: Complex) -> Complex:
    """a / b, where the smaller part of b is divided by the larger one first (Smith, "Algorithm 116: Complex
    division", 1962), so that squares do not overflow. A division by 0 divides both parts by 0.
    """
    zero, one = like(b.real, 0), like(b.real, 1)
    real_is_larger = std.greater_equal(std.abs(b.real), std.abs(b.imaginary))
    large = std.where(real_is_larger, b.real, b.imaginary)
    small = std.where(real_is_larger, b.imaginary, b.real)
    none = is_zero(b)
    ratio = std.div(small, std.where(none, one, large))
    whole = std.reciprocal(std.add(large, std.mul(small, ratio)))
    first = std.where(real_is_larger, a.real, a.imaginary)
    second = std.where(real_is_larger, a.imaginary, a.real)
    real = std.mul(std.add(first, std.mul(second, ratio)), whole)
    imaginary = std.mul(std.sub(second, std.mul(first, ratio)), whole)
    made = Complex(real, std.where(real_is_larger, imaginary, std.neg(imaginary)))
    return selected(none, a.map(lambda part: std.div(part, zero)), made)


def inverse(a: Complex) -> Complex:
    """1 / a."""
    return divided(number(a.real, 1), a)


def exponential(a: Complex) -> Complex:
    """e to the power a. A real argument has a real result, also an infinite one."""
    size = std.exp(a.real)
    is_real = std.equal(a.imaginary, like(a.real, 0))
    imaginary = std.where(is_real, a.imaginary, std.mul(size, std.sin(a.imaginary)))
    return Complex(std.where(is_real, size, std.mul(size, std.cos(a.imaginary))), imaginary)


def logarithm(a: Complex) -> Complex:
    """The natural logarithm with an angle from -pi to pi."""
    return Complex(std.log(length(a)), angle(a))


def logarithm_of_one_plus(a: Complex) -> Complex:
    """The logarithm of 1 + a, precise near 0."""
    one, half = like(a.real, 1), like(a.real, 0.5)
    around = Complex(std.add(a.real, one), a.imaginary)
    squares = std.add(std.mul(a.real, std.add(a.real, like(a.real, 2))), std.mul(a.imaginary, a.imaginary))
    near = std.less(std.abs(squares), half)
    kept = std.where(near, squares, like(a.real, 0))
    size = std.where(near, std.mul(half, std.log1p(kept)), std.log(length(around)))
    return Complex(size, angle(around))


def root(a: Complex) -> Complex:
    """The square root with a real part of at least 0."""
    zero, one, half = (like(a.real, value) for value in (0, 1, 0.5))
    large = std.sqrt(std.mul(half, std.add(length(a), std.abs(a.real))))
    none = std.equal(large, zero)
    small = std.div(std.mul(half, std.abs(a.imaginary)), std.where(none, one, large))
    positive = std.greater_equal(a.real, zero)
    real, imaginary = std.where(positive, large, small), std.where(positive, small, large)
    below = std.less(a.imaginary, zero)
    return Complex(real, std.where(below, std.neg(imaginary), imaginary))


def sine(a: Complex) -> Complex:
    """The sine."""
    above = std.mul(std.sin(a.real), std.cosh(a.imaginary))
    return Complex(above, std.mul(std.cos(a.real), std.sinh(a.imaginary)))


def cosine(a: Complex) -> Complex:
    """The cosine."""
    above = std.mul(std.cos(a.real), std.cosh(a.imaginary))
    return Complex(above, std.neg(std.mul(std.sin(a.real), std.sinh(a.imaginary))))


def hyperbolic_sine(a: Complex) -> Complex:
    """The hyperbolic sine, -i sin(i a)."""
    return turned_back(sine(turned(a)))


def hyperbolic_cosine(a: Complex) -> Complex:
    """The hyperbolic cosine, cos(i a)."""
    return cosine(turned(a))


def hyperbolic_tangent(a: Complex) -> Complex:
    """The hyperbolic tangent (Kahan, "Branch cuts for complex elementary functions", 1987). Far from 0 it is
    1 or -1, where the hyperbolic sine overflows.
    """
    one, far = like(a.real, 1), std.greater(std.abs(a.real), like(a.real, 20))
    slope, across = std.tan(a.imaginary), std.sinh(std.where(far, like(a.real, 0), a.real))
    square, stretch = std.mul(across, across), std.add(one, std.mul(slope, slope))
    whole = std.add(one, std.mul(stretch, square))
    above = std.mul(std.mul(stretch, std.sqrt(std.add(one, square))), across)
    near = Complex(std.div(above, whole), std.div(slope, whole))
    return selected(far, Complex(std.sign(a.real), like(a.real, 0)), near)


def tangent(a: Complex) -> Complex:
    """The tangent, -i tanh(i a)."""
    return turned_back(hyperbolic_tangent(turned(a)))


def power(a: Complex, b: Complex) -> Complex:
    """a to the power b, exp(b log a); 0 to the power 0 is 1, to another one 0."""
    one, zero = number(a.real, 1), number(a.real, 0)
    none = is_zero(a)
    known = selected(none, one, a)
    made = exponential(times(b, logarithm(known)))
    return selected(is_zero(b), one, selected(none, zero, made))


def to_unit(a: Complex) -> Complex:
    """a divided by its absolute value; 0 stays 0."""
    size, none = length(a), is_zero(a)
    divisor = std.where(none, like(a.real, 1), size)
    return a.map(lambda part: std.div(part, divisor))
