"""Operators: declaration, samples, references; `std` is the inventory."""
