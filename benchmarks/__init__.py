"""The times of dlc relative to those of installed peers, in one process: `python -m benchmarks`."""
