"""Plugins: discovery, loading, and the registry of all declarations."""
