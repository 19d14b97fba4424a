"""Recipes of reduced networks, and of models that packages ship, which check exporters and importers."""
