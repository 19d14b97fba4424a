"""Convolution of 3 × 3 windows by tiles of results in a transformed domain, with fewer multiplications.

It applies to float32 convolutions, channels last, ungrouped, with constant 3 × 3 windows of stride 1 or 2, if
the channels fill whole vectors. Dilated and 3-D convolutions are converted to convolutions of images. It does
not apply to machines with thread axes, to images of unknown size, and if the error would be over three times
that of the sum in order. The batch may be symbolic: plans are then made for one image.

Source: Lavin and Gray, Fast Algorithms for Convolutional Neural Networks, 2015.
"""
