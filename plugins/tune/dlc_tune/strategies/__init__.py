"""The search strategies of this package."""
