"""Failures at run time: what checks of generated code report, guard mode with its pages, fault reports."""
