"""Ours against installed peers, in one process, as ratios: `python -m benchmarks`."""
