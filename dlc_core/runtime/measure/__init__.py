"""Figures of an executable: times, profiles by kernel, explanations, and the memory of its calls."""
