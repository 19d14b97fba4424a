"""Random valid models for comparing compilers; see `differential` for the command."""
