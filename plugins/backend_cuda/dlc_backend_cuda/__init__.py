"""The CUDA backend of dlc: the target kind `cuda`."""
