"""Models on CUDA devices: the target kind `cuda` of dlc."""
