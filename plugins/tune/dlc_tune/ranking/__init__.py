"""The learned cost model: features of lowered programs, and a model that ranks candidates by them."""
