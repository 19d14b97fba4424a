"""The tensor level: statements, functions, their walkers, verifier and interpreter."""
