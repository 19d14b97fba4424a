"""Compiled models as data and as files: `CompiledModel`, the container of sections, reading and writing."""
