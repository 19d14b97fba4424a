"""Plugins: which are installed, how each is loaded, and the registry of all that they declare."""
