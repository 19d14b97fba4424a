"""Host programs: steps in NumPy between native segments, and the values that stay on devices."""
