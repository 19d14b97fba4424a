"""Failures at run time: failed checks of generated code, guard mode, fault reports."""
