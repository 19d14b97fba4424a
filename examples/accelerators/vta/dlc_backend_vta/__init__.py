"""A tensor processor similar to VTA: instruction set, simulators, compiler and device, for dlc.

Source of the idea: T. Moreau et al., VTA: An Open Hardware-Software Stack for Deep Learning, 2018.
"""
