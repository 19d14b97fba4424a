"""The cost model of the search: rankers that predict which candidates are fast.

ranker      the interface of rankers
lowered     the lowered program of a candidate
accesses    the accesses of its statements; touched: the memory that they reach; reuse: reuse distances
predict     the time that the core's cost model predicts
features    what a learned model sees of a lowered program
analytic    the ranker that needs no library
learned     the ranker that learns from measurements, by LightGBM
weights     files of models that were trained before
notes       features in the notes of records; train: weights from records
evaluate    how well kernels that were left out are ranked
"""

from dlc_tune.ranking.analytic import analytic_ranker
from dlc_tune.ranking.learned import default_ranker, learned_ranker
from dlc_tune.ranking.notes import FEATURES, features_text
from dlc_tune.ranking.ranker import Ranker, Scores

__all__ = [
    "FEATURES",
    "Ranker",
    "Scores",
    "analytic_ranker",
    "default_ranker",
    "features_text",
    "learned_ranker",
]
