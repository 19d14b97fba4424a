"""`dlc_core.torch`: what this package adds to the public interface.

dlc.torch.report()          graphs that torch.compile handed over, and operators that run in torch
dlc.torch.reset()           forget them
"""

from dlc_frontend_torch.dynamo.report import report, reset

__all__ = ["report", "reset"]
