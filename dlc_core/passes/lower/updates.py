"""update_in_place: kernels that replace elements of an input write into its memory, and copy nothing.

Law: the function computes the same values.

    y = call(scatter, x, indices, updates)      =>      y = call(scatter_in_place, x, indices, updates)

An entry may request that an output is the new value of an input, in its memory (`graph.updates`). If the
output is the last of a chain of kernels that begin with a copy, and the chain begins with the input, these
kernels are replaced by ones without the copy (`tir.updates`). All other readers of a value must run before it
is overwritten. If one of them needs a result of the kernel that overwrites it, the chain keeps its copies.

The new value of any other kernel is copied to the memory of the input by a last step (`copy_results`). The
memory plan leaves this step out where the kernel itself can write there (`takeover`), such as pointwise
updates of running statistics.

A target without the description `control`, guard mode, and an entry with parts on the host update nothing in
place: the outputs have their own memory.
"""

from __future__ import annotations

from dataclasses import replace
from typing import ClassVar

from dlc_core.diag import UnsupportedError, UsageError
from dlc_core.graph.node import CALL_PRIM, Function, Node, node, post_order, rewrite
from dlc_core.graph.updates import REQUIRED, UPDATES, check_update, updates_of
from dlc_core.ir.module import IRModule
from dlc_core.ir.types import TensorType
from dlc_core.op.kernels import WINDOWS
from dlc_core.op.std.bands import JOIN_BANDS
from dlc_core.passes.base import Pass, PassContext
from dlc_core.passes.lower.control import is_step
from dlc_core.passes.lower.guard_layout import GuardLayout
from dlc_core.passes.lower.hazards import Hazards, TensorRef, memory_of, tensors_read
from dlc_core.passes.lower.host import native_entries
from dlc_core.passes.lower.joins import is_join
from dlc_core.passes.lower.names import unique_name
from dlc_core.passes.lower.views import origin, result_types
from dlc_core.support.record import record
from dlc_core.tir.stmt import PrimFunc
from dlc_core.tir.updates import IN_PLACE, copied_input, without_copy


@record(frozen=True)
class UpdateInPlace(Pass):
    """Replace kernels that copy an updated input by kernels that write into its memory."""

    name: ClassVar[str] = "update_in_place"
    stage: ClassVar[str] = "lower"

    def run(self, module: IRModule, context: PassContext) -> IRModule:
        entry = module.functions.get(module.entry)
        if not isinstance(entry, Function) or UPDATES not in entry.attrs:
            return module
        machine = None if context.target is None else context.target.describe()
        if machine is None or not machine.control:
            return _without_updates(module, entry, "the target does not work in the caller's memory")
        if module.entry not in native_entries(module):
            return _without_updates(module, entry, "parts of the model run on the host")
        if GuardLayout.of(context, machine) is not None:
            return _without_updates(module, entry, "guard mode copies the inputs")
        _check(entry)
        chains = _Chains(entry, module).run()
        kernels: dict[str, PrimFunc] = {}
        made: dict[tuple[str, tuple[int, ...]], str] = {}

        def visit(old: Node, args: tuple[Node, ...]) -> Node | None:
            if old not in chains:
                return None
            key = old.attrs["symbol"], tuple(chains[old])
            if key not in made:
                func: PrimFunc = module[key[0]]
                name = unique_name(f"{key[0]}_in_place", {**module.functions, **kernels})
                for output in key[1]:
                    func = without_copy(func, output, name)
                made[key], kernels[name] = name, func
            return node(CALL_PRIM, args, {**old.attrs, "symbol": made[key]}, old.type)

        if not chains:
            return module
        entry = entry.with_body(rewrite(entry.body, visit))
        changed = module.with_function(module.entry, entry).with_functions(kernels)
        called = {n.attrs["symbol"] for f in native_entries(changed).values() for n in _calls(f)}
        return changed.without(*({symbol for symbol, _ in made} - called))


def _without_updates(module: IRModule, entry: Function, why: str) -> IRModule:
    if entry.attrs.get(REQUIRED):
        raise UnsupportedError("inputs cannot be updated in place", why=why, hint="compile without `donate`")
    attrs = {name: value for name, value in entry.attrs.items() if name != UPDATES}
    return module.with_function(module.entry, replace(entry, attrs=attrs))


def _check(entry: Function) -> None:
    """Raise UsageError for updates that contradict each other or the types."""
    pairs = updates_of(entry)
    if any(not isinstance(result.type, TensorType) for result in entry.results):
        raise UsageError("inputs cannot be updated in place", why="a result is a tuple")
    for source, output in pairs:
        what = f"input {entry.params[source].attrs['name']!r} cannot be updated in place"
        check_update(entry, source, output, what)
        if any((source == s) != (output == o) for s, o in pairs):
            raise UsageError(what, why="it has two new values, or shares one with another input")


def updated_tensor(tensor: TensorRef, module: IRModule) -> TensorRef:
    """The tensor in whose memory kernels wrote a tensor in place; itself if there is none."""
    while tensor[0].op is CALL_PRIM:
        call, output = tensor
        pairs = dict(map(reversed, module[call.attrs["symbol"]].attrs.get(IN_PLACE, ())))
        arguments = arguments_of(call)
        if len(arguments) + output not in pairs:
            break
        tensor = arguments[pairs[len(arguments) + output]]
    return tensor


def arguments_of(call: Node) -> list[TensorRef]:
    """The tensors that a kernel call takes, in the order of its parameters."""
    return [origin(arg, index) for arg in call.args for index in range(len(result_types(arg)))]


def _calls(function: Function) -> list[Node]:
    return [n for n in post_order(function.body) if n.op is CALL_PRIM]


class _Chains:
    """Finds the calls of kernels that update an input: for each the outputs, as indices of its buffers."""

    def __init__(self, entry: Function, module: IRModule) -> None:
        self.entry, self.module = entry, module
        nodes = list(post_order(entry.body))
        self.hazards = Hazards(entry.body, [n for n in nodes if is_step(n)])
        self.results = [memory_of(result) for result in entry.results]
        self.inner = {memory_of(arg) for n in nodes if is_join(n) or n.op is JOIN_BANDS for arg in n.args}
        """Tensors that are parts of others."""

    def run(self) -> dict[Node, list[int]]:
        found: dict[Node, list[int]] = {}
        for source, output in updates_of(self.entry):
            chain = self._chain(source, output)
            if self._ordered(chain):
                for call, _, written in chain:
                    found.setdefault(call, []).append(written)
        return found

    def _chain(self, source: int, output: int) -> list[tuple[Node, TensorRef, int]]:
        """The calls from the input to the output: each with the tensor that it overwrites, and its output.
        Empty if there is no such chain.
        """
        tensor, first = origin(self.entry.results[output]), (self.entry.params[source], 0)
        chain: list[tuple[Node, TensorRef, int]] = []
        if self.results.count(tensor) > 1:
            return []
        while tensor != first:
            found = self._overwritten(tensor)
            if found is None or (chain and tensor in self.results):
                return []
            chain.append((tensor[0], *found))
            tensor = found[0]
        return chain[::-1]

    def _overwritten(self, tensor: TensorRef) -> tuple[TensorRef, int] | None:
        """The tensor that a kernel copies before it changes the copy, and the index of the copy's buffer."""
        call, output = tensor
        if call.op is not CALL_PRIM or tensor in self.inner:
            return None
        func, arguments = self.module[call.attrs["symbol"]], arguments_of(call)
        written = len(arguments) + output
        if WINDOWS in func.attrs or len(func.buffers) != len(arguments) + len(result_types(call)):
            return None
        source = copied_input(func, written)
        if source is None or source >= len(arguments):
            return None
        # No other argument may be in the memory that is overwritten.
        read = [memory for arg in call.args for memory in tensors_read(arg)]
        alone = read[source] == arguments[source] and read.count(read[source]) == 1
        return (arguments[source], written) if alone else None

    def _ordered(self, chain: list[tuple[Node, TensorRef, int]]) -> bool:
        """Whether all calls of a chain can run after the other readers of what they overwrite."""
        before = self.hazards.copy()
        for call, tensor, _ in chain:
            if not self.hazards.overwrite(tensor, call):
                self.hazards = before
                return False
        return True


__all__ = ["UpdateInPlace", "arguments_of", "updated_tensor"]
