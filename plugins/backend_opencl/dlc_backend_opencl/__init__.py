"""Models on OpenCL devices: the target kind `opencl` of dlc."""
