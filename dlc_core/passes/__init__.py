"""Passes, pipelines of them, and the watchers that observe them."""

from dlc_core.passes.base import GraphPass, Pass, PassContext, map_functions
from dlc_core.passes.pipeline import Pipeline, default_pipeline

__all__ = ["GraphPass", "Pass", "PassContext", "Pipeline", "default_pipeline", "map_functions"]
