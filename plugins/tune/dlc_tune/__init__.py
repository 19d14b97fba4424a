"""The tuner of dlc: search over schedules, measurements, and records of what was found.

dlc_tune.choices       a point of a search space: named choices, made one after the other
dlc_tune.space         what a search space is, and how a point of it becomes a candidate
dlc_tune.spaces        the spaces: decisions of rules, mutations of traces, sketches, templates
dlc_tune.strategy      what a search strategy is
dlc_tune.strategies    the strategies: random, grid, evolutionary, and an optimiser library
dlc_tune.ranking       the learned cost model: features of lowered programs, and a ranking model
dlc_tune.measuring     builders and runners in processes of their own or on a cluster
dlc_tune.records       what was measured: the database, files of records, packages of records
"""
