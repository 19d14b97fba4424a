"""Networks of PyTorch that are not in installed packages, as described by their papers or reference code."""
