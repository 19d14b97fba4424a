"""The graph level: nodes, functions, builder, verifier."""
