"""Targets, description records, and what code generators emit."""

from dlc_core.target.artifact import Artifact, Codegen
from dlc_core.target.target import COMPUTED, STAGES, Description, Dot, Option, Target, TargetKind

__all__ = [
    "COMPUTED",
    "STAGES",
    "Artifact",
    "Codegen",
    "Description",
    "Dot",
    "Option",
    "Target",
    "TargetKind",
]
