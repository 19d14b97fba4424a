"""Passes, pipelines of them, and the watchers that observe them."""

from dlc_core.passes.base import GraphPass, Pass, PassContext, map_functions
from dlc_core.passes.default_pipelines import default_pipeline
from dlc_core.passes.pipeline import Pipeline

__all__ = ["GraphPass", "Pass", "PassContext", "Pipeline", "default_pipeline", "map_functions"]
