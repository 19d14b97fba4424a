"""Common parts of both levels: dtypes, expressions, buffers, types, modules, structural comparison, JSON."""
