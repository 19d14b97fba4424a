"""Building and running of candidates in processes of their own, here or on a cluster.

job        what is measured, what comes out, and what a measurer is
"""
