"""host_foreign: run calls of foreign functions on the host if the target cannot make them.

Law: the function computes the same values.

    call_dps(x){function=vendor.sort}      =>      call_dps_on_host(x){function=vendor.sort}

Kernels of devices can only call functions whose text is in their language. All other functions run on the
host by the op's reference, as ops without a lowering do, and `dlc explain` says so. The module's attribute
`foreign` lists these functions, so that opening a saved model can check them.
"""

from __future__ import annotations

from typing import ClassVar

from dlc_core.foreign.declare import Source
from dlc_core.foreign.lookup import get_foreign
from dlc_core.foreign.needed import FOREIGN
from dlc_core.graph.node import Function, Node, rewrite
from dlc_core.ir.module import IRModule
from dlc_core.op.std.foreign_call import CALL_DPS, CALL_ON_HOST, called_functions
from dlc_core.passes.base import Pass, PassContext
from dlc_core.support.record import record


@record(frozen=True)
class HostForeign(Pass):
    """Run calls of foreign functions on the host if the kernels of the target cannot make them."""

    name: ClassVar[str] = "host_foreign"

    def run(self, module: IRModule, context: PassContext) -> IRModule:
        languages = None if context.target is None else context.target.kind.foreign
        if languages is None:
            return module

        def visit(old: Node, args: tuple[Node, ...]) -> Node | None:
            if old.op is not CALL_DPS:
                return None
            implementations = get_foreign(old.attrs["function"]).implementations
            if any(isinstance(one, Source) and one.language in languages for one in implementations):
                return None
            return CALL_ON_HOST.build(*args, **old.attrs)

        graphs: dict[str, Function] = module.of_kind(Function)
        made = {name: f.with_body(rewrite(f.body, visit)) for name, f in graphs.items()}
        if all(made[name].body is graphs[name].body for name in graphs):
            return module
        changed = module.with_functions(made)
        on_host = called_functions(IRModule(made, entry=module.entry), CALL_ON_HOST)
        return changed.with_attrs(**{FOREIGN: on_host})


__all__ = ["HostForeign"]
