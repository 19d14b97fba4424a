"""`dlc_core.torch`: the functions that this package adds to the public interface.

dlc.torch.report()                              graphs of torch.compile, and operators that run in torch
dlc.torch.reset()                               forget them
dlc.torch.export(module, (x,), "m.so")          files that run without torch
dlc.torch.as_torch_op(DECL, backward=...)       an operator of dlc as one of torch
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from dlc_core.support.lazy import lazy
from dlc_frontend_torch.deploy import export
from dlc_frontend_torch.dynamo.report import report, reset

if TYPE_CHECKING:
    from dlc_core.op.declare import OpDecl
    from dlc_frontend_torch import library
else:
    library = lazy("dlc_frontend_torch.library")


def as_torch_op(decl: OpDecl, **options: Any) -> Any:
    """Register an operator of dlc as `torch.ops.dlc.<name>`; see `dlc_frontend_torch.library.as_torch_op`."""
    return library.as_torch_op(decl, **options)


__all__ = ["as_torch_op", "export", "report", "reset"]
