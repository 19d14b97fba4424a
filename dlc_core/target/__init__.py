"""Targets, description records, and what code generators emit."""

from dlc_core.target.artifact import Artifact, Codegen
from dlc_core.target.target import STAGES, Description, Dot, Option, Target, TargetKind

__all__ = ["STAGES", "Artifact", "Codegen", "Description", "Dot", "Option", "Target", "TargetKind"]
