"""Convolution of few channels by row filters: minimal filtering of neighbouring rows of results.

A tile of m rows needs m + r - 1 products in place of m r for each column of a window of r taps.

It applies to float32 convolutions, channels last, ungrouped, with constant windows higher than one row and
the same stride in both directions, where the channels fill whole vectors.  It does not apply to machines
with thread axes, to dilated windows, to images of unknown size, and where the error would be over three
times that of the sum in order. The batch may be symbolic: plans are then made for one image.

Source: Winograd, Arithmetic Complexity of Computations, 1980.
"""
