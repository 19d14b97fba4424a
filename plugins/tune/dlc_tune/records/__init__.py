"""Records of what was measured.

record     one record: a kernel, a target, a schedule and its time
"""
