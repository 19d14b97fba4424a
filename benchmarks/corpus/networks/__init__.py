"""Networks of PyTorch that no package here has, as their papers or reference code describe them."""
