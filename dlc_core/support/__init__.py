"""Helpers that know nothing of compilers: lazy imports, cheap frozen dataclasses, disk quotas."""
