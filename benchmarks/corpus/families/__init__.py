"""Recipes of networks at their published sizes with random weights, by kind of network.

Some are reduced, for memory and time: language models of more than 200 million parameters have four of their
layers, the image encoder of SAM four of its twelve blocks, the UNet of Stable Diffusion a third of its
channels.
"""
