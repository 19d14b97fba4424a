"""The base classes of passes, and the context in which passes run.

    @dataclass(frozen=True)
    class Fuse(GraphPass):
        '''Group nodes into kernels.'''
        name = "fuse"
        max_ops: int = 256

        def run_function(self, function, context): ...

A pass is a pure function from module to module; its dataclass fields are its options. The core's passes run
in the order of the lists in `passes.default_pipelines`. A plugin's pass declares the pass `after` or `before`
which it runs.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextvars import ContextVar
from dataclasses import field, fields, replace
from types import MappingProxyType, TracebackType
from typing import Any, ClassVar

from dlc_core.diag import UsageError
from dlc_core.graph.node import CALL, Function, Node, functions_of, node, rewrite
from dlc_core.ir.module import IRModule
from dlc_core.op.declare import OpDecl
from dlc_core.support.record import record

_stack: ContextVar[tuple[PassContext, ...]] = ContextVar("dlc_pass_contexts", default=())


def _with_position(item: Any) -> tuple[str, Pass]:
    """Split an item of `PassContext.passes` into the text of its position and the pass.

    The text is empty if the class of the pass defines the position.
    """
    where, one = item if isinstance(item, tuple) and len(item) == 2 else ("", item)
    if not isinstance(one, Pass) or not isinstance(where, str):
        raise UsageError(
            f"PassContext.passes has {item!r}",
            hint='give passes, or pairs such as ("after lower_blocks", MyPass())',
        )
    return where, one


def _read_only(values: Mapping[str, Any]) -> Mapping[str, Any]:
    return values if isinstance(values, MappingProxyType) else MappingProxyType(dict(values))


@record(frozen=True, eq=False)
class PassContext:
    """The immutable settings that passes may read besides the module.

    `with PassContext(opt_level=1):` makes it the current one of this thread or task.
    """

    opt_level: int = 3
    """0 computes the model as written; 3 applies every optimisation that keeps results within tolerance."""
    disabled: tuple[str, ...] = ()
    """Names of passes, rewrite rules and schedule rules to leave out; a compile refuses unknown names."""
    config: Mapping[str, Any] = field(default_factory=dict)
    """Settings by name; a failing pass writes a reproducer into the folder `reproducer_dir`. Compiles refuse
    unknown names."""
    watchers: tuple[Any, ...] = ()
    """Called before and after each pass; see `passes.watch`."""
    target: Any = None
    """The target of the compile; None if no pass may depend on a target."""
    ops: Mapping[str, OpDecl] = field(default_factory=dict)
    """All known ops by name."""
    rules: tuple[Any, ...] = ()
    """Rewrite rules of plugins, which `simplify` applies in addition to its own."""
    schedule_rules: tuple[Any, ...] = ()
    """Rules that choose schedules, the preferred ones first."""
    tuner: Callable[[Any, Any], Any] | None = None
    """Called before the rules: `tuner(func, target)` returns the schedule of a kernel as a Trace, or None.

    A tuner may have a method `kernel_state(func, target)` that returns a text which determines the schedule.
    Compiled kernels are then kept in the cache, and only this method sees all kernels.
    """
    decider: Callable[[str, Sequence[str], int, Any], int] | None = None
    """Makes the decisions of graph passes that are not forced: `decider(name, options, preferred, target)`
    returns the index of an option; see `dlc_core.decisions.asking`."""
    tensor_intrins: Mapping[str, Any] = field(default_factory=dict)
    """The tensor intrinsics that rules may name."""
    placement: Any = None
    """The assignment of graph parts to several targets; see `passes.graph.partition`."""
    passes: tuple[Any, ...] = ()
    """Passes that compiles run in addition to the default ones. The class of a pass defines its position; in
    a pair `(where, pass)` the text does. See `passes.positions`."""

    def __post_init__(self) -> None:
        for name in ("config", "ops", "tensor_intrins"):
            object.__setattr__(self, name, _read_only(getattr(self, name)))
        for name in ("disabled", "watchers", "rules", "schedule_rules"):
            value = getattr(self, name)
            if isinstance(value, str):
                raise UsageError(f"PassContext.{name} is text", hint=f"write {name}=({value!r},)")
            object.__setattr__(self, name, tuple(value))
        object.__setattr__(self, "passes", tuple(_with_position(item) for item in self.passes))

    def with_(self, **changes: Any) -> PassContext:
        """Return a copy with these fields. `config` is merged into the current one."""
        if "config" in changes:
            changes["config"] = {**self.config, **changes["config"]}
        unknown = changes.keys() - {f.name for f in fields(self)}
        if unknown:
            known = ", ".join(f.name for f in fields(self))
            raise UsageError(f"PassContext has no field {min(unknown)!r}", hint=f"it has: {known}")
        return replace(self, **changes)

    def leaves_out(self, name: str) -> bool:
        """Whether the pass or rule with this name is disabled, here or by the kind of the target."""
        kind = getattr(self.target, "kind", None)  # the target may be text that is only printed
        return name in self.disabled or (kind is not None and kind.disables(name))

    @staticmethod
    def current() -> PassContext:
        """Return the innermost context that is entered, or the default one."""
        return PassContext.entered() or _DEFAULT

    @staticmethod
    def entered() -> PassContext | None:
        """Return the innermost context that is entered, if any."""
        stack = _stack.get()
        return stack[-1] if stack else None

    def __enter__(self) -> PassContext:
        _stack.set((*_stack.get(), self))
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        _stack.set(_stack.get()[:-1])


_DEFAULT = PassContext()


@record(frozen=True)
class Pass:
    """A function from module to module with options; see the module's text."""

    name: ClassVar[str] = ""
    stage: ClassVar[str] = "graph"
    """"graph" or "tir": which default pipeline it belongs to."""
    after: ClassVar[str | tuple[str, ...]] = ()
    before: ClassVar[str | tuple[str, ...]] = ()
    """Passes that it follows, or "begin", and that it precedes, or "end"; see `passes.positions`."""
    setting: ClassVar[str] = ""
    """The setting of the context without which default pipelines omit it."""
    settings: ClassVar[tuple[str, ...]] = ()
    """Further settings of the context that it reads. Compiles refuse settings that no pass declares."""
    min_level: ClassVar[int] = 0
    """The lowest `opt_level` at which it runs."""
    exact: ClassVar[bool] = True
    """Whether results are bitwise equal; else they are within tolerance."""
    separate: ClassVar[bool] = False
    """Whether the result for a PrimFunc depends on that function alone. Several processes may then process
    the kernels. (If a pass adds functions, names matter, and the compile continues in one process.)"""
    reads_kernels: ClassVar[bool] = True
    """Whether a pass of the stage "main" reads the bodies of kernels, and not only their calls."""
    checks_model: ClassVar[bool] = False
    """Whether its errors are about the model, so that they are not reported as defects of the pass."""
    drops_spans: ClassVar[bool] = False
    """Whether model nodes may vanish (because nothing depends on them any more)."""

    def __init_subclass__(cls, **more: Any) -> None:
        super().__init_subclass__(**more)
        if isinstance(cls.__dict__.get("place"), tuple):
            raise UsageError(
                f"pass {cls.name or cls.__name__!r} has a numeric position {cls.__dict__['place']}",
                hint='write after = "NAME" or before = "NAME" of a pass that `dlc passes --pipeline` prints, '
                'after = "begin", or before = "end"',
            )

    def run(self, module: IRModule, context: PassContext) -> IRModule:
        """Return the new module. The given one is not changed."""
        raise NotImplementedError(f"{type(self).__name__}.run")

    def __str__(self) -> str:
        return format_pass(self)


@record(frozen=True)
class GraphPass(Pass):
    """A pass that transforms each graph function independently, bodies of control flow first."""

    def run_function(self, function: Function, context: PassContext) -> Function:
        """Return the new function, with the same parameters and types."""
        raise NotImplementedError(f"{type(self).__name__}.run_function")

    def run(self, module: IRModule, context: PassContext) -> IRModule:
        return map_functions(module, lambda function: self.run_function(function, context))


def map_functions(
    module: IRModule, change: Callable[[Function], Function], *, groups: bool = False
) -> IRModule:
    """Apply `change` to each graph function and, innermost first, to the functions in attributes.

    Fused groups (functions of `call` nodes) are changed only if `groups` is true.
    """
    memo: dict[int, Function] = {}
    graphs: dict[str, Function] = module.of_kind(Function)
    changed = {name: _map_function(function, change, groups, memo) for name, function in graphs.items()}
    if all(changed[name] is graphs[name] for name in graphs):
        return module
    return module.with_functions(changed)


def _map_function(
    function: Function, change: Callable[[Function], Function], groups: bool, memo: dict[int, Function]
) -> Function:
    found = memo.get(id(function))
    if found is not None:
        return found
    body = function.body
    if body.has_functions:

        def visit(old: Node, args: tuple[Node, ...]) -> Node | None:
            if old.op is CALL and not groups:
                return None
            inner = functions_of(old)
            new = {id(f): _map_function(f, change, groups, memo) for f in inner}
            if all(new[id(f)] is f for f in inner):
                return None
            attrs = {k: new[id(v)] if isinstance(v, Function) else v for k, v in old.attrs.items()}
            return node(old.op, args, attrs, old.type)

        body = rewrite(body, visit)
    result = change(function if body is function.body else function.with_body(body))
    memo[id(function)] = result
    return result


def format_pass(value: Pass) -> str:
    """Return `name`, or `name{option=value, …}` with the options that differ from their defaults."""
    shown = [
        f"{f.name}={format_value(getattr(value, f.name))}"
        for f in fields(value)
        if not _same(getattr(value, f.name), f.default)
    ]
    return f"{value.name}{{{', '.join(shown)}}}" if shown else value.name


def _same(a: Any, b: Any) -> bool:
    return type(a) is type(b) and bool(a == b)


def format_value(value: Any) -> str:
    """Return an option's value as pipeline text: a Python literal with double quotes."""
    if isinstance(value, str):
        escaped = value.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n").replace("\t", "\\t")
        return f'"{escaped}"'
    if isinstance(value, tuple):
        inner = ", ".join(map(format_value, value))
        return f"({inner},)" if len(value) == 1 else f"({inner})"
    if value is None or isinstance(value, (bool, int, float)):
        return repr(value)
    raise UsageError(
        f"{value!r} cannot be an option of a pass",
        hint="use numbers, truth values, text, None, tuples of them",
    )
