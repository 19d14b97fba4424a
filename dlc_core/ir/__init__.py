"""The parts of the IR that both levels share: dtypes, expressions, buffers, types, modules, structural
comparison, JSON."""
