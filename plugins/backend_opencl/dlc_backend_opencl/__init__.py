"""The OpenCL backend of dlc: the target kind `opencl`."""
