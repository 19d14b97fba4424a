"""Vector math as LLVM IR: the transcendental functions of dlc, without libm or libmvec.

    vm = VMath(machine_of(host_cpu()))                                one for each module
    lines, result = vm.emit("exp", ["%x"], "float32", 8, fresh)
    lines, result = vm.convert("%h", "float16", "float32", 8, fresh)
    vm.functions() -> str                        the functions that the lines call, to be added to the module
    vm.function("exp", "float32", 8) -> (name, text)                  an operation as an internal function

`emit` returns the lines (without newlines and indentation) that compute an operation on operands of the LLVM
type `<lanes x float>` (`float` for one lane), and the operand of the result. `fresh()` must return a new SSA
name at each call (`%12`, `%v12`); further names are derived from it. The operations in INLINE are emitted as
straight-line code. The others are calls of internal functions, which `functions()` defines. Intrinsics need
no declaration. float16 and bfloat16 are computed in float32. The number of lanes is a power of two. Vectors
that are wider than the target's registers are computed in register-sized parts one after the other, so that
temporaries stay in registers.

`ULP[op][dtype]` is the maximum error in units in the last place (ulp) over all finite arguments. The tests
measure it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import lru_cache

from dlc_backend_llvm.cpu import HostCpu
from dlc_backend_llvm.vmath import power, rounding, trig
from dlc_backend_llvm.vmath.code import Code, Machine
from dlc_core.diag import CodegenError
from dlc_core.target.vmath import FORMULAS, inverse_trig

_FORMULAS: dict[str, Callable[..., str]] = {
    **FORMULAS,
    "atan2": inverse_trig.atan2,
    "ceil": rounding.ceil,
    "cos": trig.cos,
    "floor": rounding.floor,
    "fmod": power.fmod,
    "pow": power.power,
    "round": rounding.round_even,
    "rsqrt": rounding.rsqrt,
    "sin": trig.sin,
    "sqrt": rounding.sqrt,
    "tan": trig.tan,
    "trunc": rounding.trunc,
}

INLINE = frozenset(
    [
        "ceil",
        "erf",
        "exp",
        "exp2",
        "expm1",
        "floor",
        "log",
        "log10",
        "log1p",
        "log2",
        "round",
        "rsqrt",
        "sigmoid",
        "sqrt",
        "tanh",
        "trunc",
    ]
)
"""The operations that `VMath.emit` emits inline; the others become calls."""

OPS: dict[str, int] = {name: 2 if name in ("atan2", "fmod", "pow") else 1 for name in _FORMULAS}
"""All operations, with their numbers of operands."""

ULP: dict[str, dict[str, float]] = {
    name: {"float32": single, "float64": double}
    for name, single, double in [
        ("acos", 1.3, 1.3),
        ("asin", 2.5, 2.5),
        ("atan", 2.2, 2.2),
        ("atan2", 2.2, 2.2),
        ("cos", 1.8, 1.0),
        ("fmod", 0.0, 0.0),
        ("pow", 0.6, 1.4),
        ("sin", 1.8, 1.0),
        ("tan", 3.3, 2.6),
        ("acosh", 2.5, 2.8),
        ("asinh", 2.0, 2.0),
        ("atanh", 2.2, 2.2),
        ("ceil", 0.0, 0.0),
        ("cosh", 1.6, 1.6),
        ("erf", 2.6, 1.5),
        ("exp", 1.2, 1.2),
        ("exp2", 1.2, 1.2),
        ("expm1", 1.8, 2.3),
        ("floor", 0.0, 0.0),
        ("log", 1.0, 1.0),
        ("log10", 2.0, 2.0),
        ("log1p", 1.2, 1.2),
        ("log2", 2.0, 2.0),
        ("round", 0.0, 0.0),
        ("rsqrt", 1.5, 1.5),
        ("sigmoid", 2.5, 2.5),
        ("sinh", 1.8, 1.8),
        ("sqrt", 0.5, 0.5),
        ("tanh", 2.8, 2.8),
        ("trunc", 0.0, 0.0),
    ]
}

_HELPERS = {trig.REDUCE: trig.REDUCE_TEXT, power.LONG_DIVISION: power.LONG_DIVISION_TEXT}
"""The functions that operations call, by name."""

_BITS = {"float16": 32, "bfloat16": 32, "float32": 32, "float64": 64}
_LLVM = {"float16": "half", "bfloat16": "bfloat", "float32": "float", "float64": "double"}


def machine_of(cpu: HostCpu) -> Machine:
    """The properties of a processor that the formulas depend on."""
    # The formulas need products that are rounded once, which relaxed SIMD does not promise.
    fma = cpu.fma and cpu.arch != "wasm32"
    return Machine(cpu.vector_bits, fma, cpu.rounding, cpu.float16)


def llvm_type(dtype: str, lanes: int) -> str:
    """The LLVM type, such as `<8 x float>`; `float` for one lane."""
    element = _LLVM[dtype]
    return element if lanes == 1 else f"<{lanes} x {element}>"


class VMath:
    """Emits math into one LLVM module, and records the functions that the module needs."""

    def __init__(self, machine: Machine) -> None:
        self.machine = machine
        self.needed: dict[str, str] = {}
        """The definitions of the functions that are needed, by name."""

    def emit(
        self, op: str, args: Sequence[str], dtype: str, lanes: int, fresh: Callable[[], str]
    ) -> tuple[list[str], str]:
        """(lines, result) of `op` (see the module). Raises CodegenError for an unknown operation or dtype, or
        a wrong number of arguments.
        """
        _check(op, len(args), dtype, lanes)
        if op in INLINE:
            return _instantiate(_inline(op, dtype, lanes, self.machine), args, fresh)
        name, _ = self.function(op, dtype, lanes)
        kind = llvm_type(dtype, lanes)
        result = _prefix(fresh)
        listed = ", ".join(f"{kind} {arg}" for arg in args)
        return [f"{result} = call {kind} @{name}({listed})"], result

    def convert(
        self, value: str, source: str, to: str, lanes: int, fresh: Callable[[], str]
    ) -> tuple[list[str], str]:
        """(lines, result) of a conversion between two floating-point dtypes, correctly rounded."""
        if source == to:
            return [], value
        return _instantiate(_conversion(source, to, lanes, self.machine), [value], fresh)

    def function(self, op: str, dtype: str, lanes: int) -> tuple[str, str]:
        """(name, definition) of `op` as an internal function. `functions()` includes the definition."""
        _check(op, OPS.get(op, 0), dtype, lanes)
        name, text = _function(op, dtype, lanes, self.machine)
        for helper, definition in _HELPERS.items():
            if helper in text:
                self.needed[helper] = definition
        self.needed[name] = text
        return name, text

    def functions(self) -> str:
        """The definitions of all functions that are needed so far."""
        return "\n".join(self.needed.values())


def _check(op: str, count: int, dtype: str, lanes: int) -> None:
    if OPS.get(op) != count:
        known = ", ".join(sorted(OPS))
        raise CodegenError(f"vector math has no {op!r} of {count} operands", hint=f"it has: {known}")
    if dtype not in _BITS:
        raise CodegenError(f"vector math does not support {dtype}", hint=f"it supports {', '.join(_BITS)}")
    if lanes < 1 or lanes & (lanes - 1):
        raise CodegenError(f"vector math supports powers of two of lanes, not {lanes}")


class _Template:
    """Lines with placeholders for names: operands `%@a0`, `%@a1`, temporaries `%@.N`."""

    def __init__(self, text: str, result: str) -> None:
        self.text = text
        self.result = result


def _prefix(fresh: Callable[[], str]) -> str:
    return "%m" + fresh().lstrip("%")


def _instantiate(template: _Template, args: Sequence[str], fresh: Callable[[], str]) -> tuple[list[str], str]:
    prefix = _prefix(fresh)
    text = template.text.replace("%@.", prefix + ".")
    for index, arg in enumerate(args):
        text = text.replace(f"%@a{index}", arg)
    return text.split("\n"), template.result.replace("%@.", prefix + ".")


@lru_cache(maxsize=512)
def _inline(op: str, dtype: str, lanes: int, machine: Machine) -> _Template:
    bits = _BITS[dtype]
    c = Code(bits, lanes, machine)
    args = [f"%@a{index}" for index in range(OPS[op])]
    result = _narrow(c, _in_parts(c, op, [_widen(c, arg, dtype) for arg in args]), dtype)
    return _Template("\n".join(c.lines), result)


@lru_cache(maxsize=64)
def _conversion(source: str, to: str, lanes: int, machine: Machine) -> _Template:
    if source not in _BITS or to not in _BITS:
        raise CodegenError(f"vector math does not convert {source} to {to}")
    c = Code(64 if "float64" in (source, to) else 32, lanes, machine)
    single = Code(32, lanes, machine, c.lines)
    value = "%@a0"
    if to in ("float16", "bfloat16"):
        if source == "float64":
            value = rounding.float64_to_float32_odd(c, value)
        else:
            value = _widen(single, value, source)
        value = _narrow(single, value, to)
        return _Template("\n".join(c.lines), value)
    value = _widen(single, value, source)
    if to == "float64":
        value = c.put(f"fpext {single.type} {value} to {c.type}")
    elif source == "float64":
        value = c.put(f"fptrunc {c.type} {value} to {single.type}")
    return _Template("\n".join(c.lines), value)


def _widen(c: Code, value: str, dtype: str) -> str:
    if dtype == "float16":
        return rounding.float16_to_float32(c, value)
    return rounding.bfloat16_to_float32(c, value) if dtype == "bfloat16" else value


def _narrow(c: Code, value: str, dtype: str) -> str:
    if dtype == "float16":
        return rounding.float32_to_float16(c, value)
    return rounding.float32_to_bfloat16(c, value) if dtype == "bfloat16" else value


def part_lanes(bits: int, lanes: int, machine: Machine) -> int:
    """The number of elements that are computed at once: those of one register, at most `lanes`."""
    return min(lanes, max(1, machine.vector_bits // bits))


def _in_parts(c: Code, op: str, args: list[str]) -> str:
    """Emit the formula for register-sized parts of the operands, and concatenate the results."""
    width = part_lanes(c.bits, c.lanes, c.machine)
    part = Code(c.bits, width, c.machine, c.lines)
    return in_parts(c, part, args, lambda pieces: _FORMULAS[op](part, *pieces))


def in_parts(c: Code, part: Code, args: Sequence[str], work: Callable[[list[str]], str]) -> str:
    """Apply `work` to parts of `args` of `part.lanes` lanes each, and concatenate the results."""
    if part.lanes == c.lanes:
        return work(list(args))
    starts = range(0, c.lanes, part.lanes)
    results = [work([_extract(c, part, arg, start) for arg in args]) for start in starts]
    joined = "poison"
    for index, result in enumerate(results):
        joined = _insert(c, part, joined, result, index * part.lanes)
    return joined


def _extract(c: Code, part: Code, value: str, start: int) -> str:
    if part.lanes == 1:
        return c.put(f"extractelement {c.type} {value}, i64 {start}")
    name = f"llvm.vector.extract.{part.mangled}.{c.mangled}"
    return c.put(f"call {part.type} @{name}({c.type} {value}, i64 {start})")


def _insert(c: Code, part: Code, joined: str, value: str, start: int) -> str:
    if part.lanes == 1:
        return c.put(f"insertelement {c.type} {joined}, {part.type} {value}, i64 {start}")
    name = f"llvm.vector.insert.{c.mangled}.{part.mangled}"
    return c.put(f"call {c.type} @{name}({c.type} {joined}, {part.type} {value}, i64 {start})")


@lru_cache(maxsize=512)
def _function(op: str, dtype: str, lanes: int, machine: Machine) -> tuple[str, str]:
    kind = llvm_type(dtype, lanes)
    suffix = {"float16": "f16", "bfloat16": "bf16", "float32": "f32", "float64": "f64"}[dtype]
    name = f"dlc_{op}_" + (suffix if lanes == 1 else f"v{lanes}{suffix}")
    c = Code(_BITS[dtype], lanes, machine)
    args = [_widen(c, f"%x{index}", dtype) for index in range(OPS[op])]
    result = _narrow(c, _in_parts(c, op, args), dtype)
    listed = ", ".join(f"{kind} %x{index}" for index in range(OPS[op]))
    body = "\n".join(c.lines).replace("@.", "t.")
    result = result.replace("@.", "t.")
    return name, f"define internal {kind} @{name}({listed}) nounwind {{\n{body}\nret {kind} {result}\n}}\n"


__all__ = ["INLINE", "OPS", "ULP", "Machine", "VMath", "llvm_type", "machine_of"]
