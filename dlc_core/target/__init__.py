"""Targets, description records, and the artefact border between code generators and devices."""

from dlc_core.target.artifact import Artifact, Codegen, Device, Loaded
from dlc_core.target.target import Description, Option, Target, TargetKind

__all__ = ["Artifact", "Codegen", "Description", "Device", "Loaded", "Option", "Target", "TargetKind"]
