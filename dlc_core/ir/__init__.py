"""What both levels share: dtypes, expressions, buffers, types, modules, structural comparison, JSON."""
