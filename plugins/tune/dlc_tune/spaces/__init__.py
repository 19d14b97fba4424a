"""The search spaces of this package."""
