"""The target `dpu` for the deep-learning compiler dlc: a simulated card of threads and shared memory."""
