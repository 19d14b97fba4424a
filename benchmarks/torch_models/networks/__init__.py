"""Classic networks of torch.nn, which no package has."""
