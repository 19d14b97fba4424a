"""Schedule rules for machines that launch groups of threads."""

from dlc_core.schedule.rules.base import ScheduleRule
from dlc_core.schedule.rules.gpu.contraction import ContractionRule
from dlc_core.schedule.rules.gpu.loops import LoopsRule, SingleThreadRule
from dlc_core.schedule.rules.gpu.maps import MapRule
from dlc_core.schedule.rules.gpu.matrix import MatrixRule
from dlc_core.schedule.rules.gpu.rows import RowsRule
from dlc_core.schedule.rules.gpu.skinny_gemm import SkinnyGemmRule
from dlc_core.schedule.rules.gpu.windows import WindowsRule

GPU_RULES: tuple[ScheduleRule, ...] = (
    SkinnyGemmRule(),
    MatrixRule(),
    ContractionRule(),
    WindowsRule(),
    RowsRule(),
    MapRule(),
    LoopsRule(),
    SingleThreadRule(),
)
"""The rules, highest priority first."""
