"""Ops on tensors of strings, which run on the host: constants, casts, joining, splitting, matching, cleaning.

Strings are compared by code points. Gather, reshape, concatenation and similar ops also accept strings.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from dlc_core.diag import RuntimeFailure
from dlc_core.ir.conditions import EQUAL
from dlc_core.ir.dtype import STRING, DType
from dlc_core.ir.expr import Var
from dlc_core.ir.types import TensorType, TupleType, Type
from dlc_core.op.assume import assume
from dlc_core.op.declare import (
    ALL,
    Attr,
    ErrorSample,
    NDArray,
    Sample,
    Tensor,
    op,
    tensor_types,
)
from dlc_core.op.infer import Attrs, broadcast_dims, check_dtype, check_rank, fail, of_input
from dlc_core.op.std.patterns import complaint, matcher

TEXT = ("string",)
_INT64 = DType("int64")


def _sample(*values: str, shape: tuple[int, ...] | None = None) -> Tensor:
    array = np.empty(len(values), object)
    array[:] = values
    return Tensor(shape if shape is not None else array.shape, array, "string")


def _objects(values: Sequence[str], shape: Sequence[int]) -> NDArray:
    made = np.empty(len(values), object)
    made[:] = values
    return made.reshape(tuple(shape))


def _each(x: NDArray, to: str, function: Callable[[str], Any]) -> NDArray:
    """Map each text to a number."""
    made: NDArray = np.empty(x.shape, to)
    made.reshape(-1)[:] = [function(text) for text in x.flat]
    return made


def _texts_infer(types: Sequence[Type], attrs: Attrs) -> Type:
    shape = attrs["shape"]
    if any(d < 0 for d in shape) or int(np.prod(shape, dtype=np.int64)) != len(attrs["values"]):
        raise fail(f"{len(attrs['values'])} texts in the shape {tuple(shape)}")
    return TensorType(tuple(shape), STRING)


TEXTS = op(
    "texts", "constant texts, row by row", [], [Attr("values", "strs"), Attr("shape", "ints")], kind="opaque",
    infer=_texts_infer, reference=lambda *, values, shape: _objects(values, shape), dtypes=TEXT,
    samples=(
        Sample((), {"values": ("a", "", "\u00e9t\u00e9"), "shape": (3,)}),
        Sample((), {"values": ("one",), "shape": ()}),
    ),
    error_samples=[ErrorSample((), {"values": ("a",), "shape": (2,)}, "1 texts")],
)  # fmt: skip


def _number_text(item: object) -> str:
    """A number as text: integers in decimal, floats with the fewest digits that identify them."""
    if isinstance(item, (bool, np.bool_)):
        return "1" if item else "0"
    if isinstance(item, (int, np.integer)):
        return str(int(item))
    number = float(item)  # type: ignore[arg-type]
    if number != number:
        return "NaN"
    if number in (float("inf"), float("-inf")):
        return "INF" if number > 0 else "-INF"
    return str(item)


TO_TEXT = op(
    "to_text", "numbers as texts: decimal digits, NaN, INF, -INF", ["x"], kind="opaque",
    infer=of_input(lambda x, attrs: x.with_dtype(STRING), (*ALL, "string")),
    reference=lambda x: _objects([i if isinstance(i, str) else _number_text(i) for i in x.flat], x.shape),
    dtypes=("float32", "int32"),
    samples=(Sample((Tensor((2, 3)),)), Sample((Tensor((24,), "special"),), {}, ("float32",)),
             Sample((Tensor((3,), "bool", "bool"),), {}, ("float32",))),
    error_samples=[ErrorSample((Tensor((2,), dtype="complex64"),), {}, "dtype")],
)  # fmt: skip


def _parse_reference(x: NDArray, *, to: DType) -> NDArray:
    made = np.empty(x.shape, np.float32 if to.is_float and to.bits < 32 else to.numpy)
    flat = made.reshape(-1)
    for index, text in enumerate(x.flat):
        try:
            flat[index] = float(text) if to.is_float else _parse_integer(text, to)
        except (ValueError, OverflowError):
            raise RuntimeFailure(f"the text {text[:40]!r} is no {to}") from None
    return made


def _parse_integer(text: str, to: DType) -> int | bool:
    try:
        number = int(text)
    except ValueError:
        number = int(float(text))
    return bool(number) if to.is_bool else number


PARSE_TEXT = op(
    "parse_text", "texts as numbers: decimal or scientific, NaN, INF; RuntimeFailure for other texts", ["x"],
    [Attr("to", "dtype")], kind="opaque",
    infer=of_input(lambda x, attrs: x.with_dtype(attrs["to"]), TEXT),
    reference=_parse_reference, dtypes=TEXT,
    samples=(
        Sample((_sample("1.5", "-INF", "NaN", "3e2"),), {"to": "float32"}),
        Sample((_sample("0.1", "65504"),), {"to": "float16"}),
        Sample((_sample("7", "-12", "3.9"),), {"to": "int64"}),
    ),
    error_samples=[ErrorSample((Tensor((2,)),), {"to": "float32"}, "dtype")],
)  # fmt: skip


def _concat_infer(types: Sequence[Type], attrs: Attrs) -> Type:
    a, b = tensor_types(types)
    for x in (a, b):
        check_dtype(x.dtype, TEXT)
    return TensorType(broadcast_dims(a.shape, b.shape), STRING)


TEXT_JOIN = op(
    "text_join", "each text of a followed by that of b", ["a", "b"], kind="opaque", infer=_concat_infer,
    reference=lambda a, b: np.asarray(np.add(a, b), object), dtypes=TEXT,
    samples=(
        Sample((_sample("a", "bc"), _sample("x", "y"))),
        Sample((_sample("a", "b", shape=(2, 1)), _sample("1", "2", "3"))),
        Sample((_sample("a", shape=()), _sample("z", shape=()))),
    ),
    error_samples=[ErrorSample((Tensor((2,)), Tensor((2,))), {}, "dtype")],
)  # fmt: skip


def _split_infer(x: TensorType, attrs: Attrs) -> Type:
    return TupleType((TensorType((*x.shape, attrs["max_parts"]), STRING), x.with_dtype(_INT64)))


def _split_reference(x: NDArray, *, delimiter: str, limit: int) -> tuple[NDArray, NDArray]:
    parts = [text.split(delimiter or None, limit) for text in x.flat]
    counts = np.array([len(p) for p in parts], np.int64).reshape(x.shape)
    length = max(map(len, parts), default=0)
    padded = [item for p in parts for item in (*p, *[""] * (length - len(p)))]
    return _objects(padded, (*x.shape, length)), counts


TEXT_SPLIT = op(
    "text_split",
    "the parts of each text between delimiters (runs of white space where `delimiter` is empty), at most"
    " `limit` + 1 (any number for -1), filled up with empty texts to `max_parts`; the number of parts",
    ["x"],
    [Attr("max_parts", "fresh"), Attr("delimiter", "str", ""), Attr("limit", "int", -1)],
    kind="opaque",
    infer=of_input(_split_infer, TEXT),
    reference=_split_reference,
    dtypes=TEXT,
    samples=(
        Sample((_sample("a,b,c", "d", "", ","),), {"max_parts": Var("n"), "delimiter": ","}),
        Sample((_sample(" two  words ", "x y z", shape=(2, 1)),), {"max_parts": Var("n"), "limit": 1}),
    ),
    error_samples=[ErrorSample((Tensor((2,)),), {"max_parts": Var("n")}, "dtype")],
)


def _check_pattern(pattern: str) -> None:
    found = complaint(pattern)
    if found is not None:
        raise fail(*found)


def _tokens_infer(x: TensorType, attrs: Attrs) -> Type:
    token, separators = attrs["token"], attrs["separators"]
    if bool(token) == bool(separators):
        raise fail("both or neither of `token` and `separators` are given", "give one of the two")
    for pattern in separators or (token,):
        _check_pattern(pattern)
    return TensorType((*x.shape, attrs["max_tokens"]), STRING)


def _split_between(text: str, separator: Any) -> Iterator[str]:
    """The texts between the matches. Empty matches do not separate."""
    begin = 0
    for found in separator.finditer(text):
        if found.group():
            yield text[begin : found.start()]
            begin = found.end()
    yield text[begin:]


def _tokens_reference(
    x: NDArray, *, separators: tuple[str, ...], token: str, min_length: int, pad: str, ends: tuple[str, ...]
) -> NDArray:
    found = []
    for text in x.flat:
        parts = [each.group() for each in matcher(token).finditer(text)] if token else [text]
        for separator in map(matcher, separators):
            parts = [piece for part in parts for piece in _split_between(part, separator)]
        found.append([part for part in parts if len(part) >= max(min_length, 1)])
    if ends and any(found):
        found = [[ends[0], *parts, ends[1]] for parts in found]
    length = max(map(len, found), default=0)
    return _objects([item for p in found for item in (*p, *[pad] * (length - len(p)))], (*x.shape, length))


TEXT_TOKENS = op(
    "text_tokens",
    "the tokens of each text, filled up with `pad` to `max_tokens`: the matches of the regular expression"
    " `token`, or the texts between matches of each of `separators`; tokens of fewer than `min_length`"
    " characters are left out. `ends` are put around the tokens of each text, unless no text has tokens",
    ["x"],
    [Attr("max_tokens", "fresh"), Attr("separators", "strs", ()), Attr("token", "str", ""),
     Attr("min_length", "int", 1), Attr("pad", "str", ""), Attr("ends", "strs", ())],
    kind="opaque",
    infer=of_input(_tokens_infer, TEXT),
    reference=_tokens_reference,
    dtypes=TEXT,
    samples=(
        Sample((_sample("a bc  def", "", "g;h"),),
               {"max_tokens": Var("n"), "separators": (" ", "[;,]"), "pad": "#", "ends": ("<", ">")}),
        Sample((_sample("one 2", "three4five", shape=(2, 1)),),
               {"max_tokens": Var("n"), "token": "[a-z]+", "min_length": 4}),
    ),
    error_samples=[
        ErrorSample((_sample("a"),), {"max_tokens": Var("n")}, "give one of the two", "string"),
        ErrorSample((_sample("a"),), {"max_tokens": Var("n"), "token": "("}, "no regular expression",
        "string"),
    ],
)  # fmt: skip


def _match_infer(x: TensorType, attrs: Attrs) -> TensorType:
    _check_pattern(attrs["pattern"])
    return x.with_dtype("bool")


def _match_reference(x: NDArray, *, pattern: str) -> NDArray:
    full = matcher(pattern).fullmatch
    return _each(x, "bool", lambda text: full(text) is not None)


TEXT_MATCH = op(
    "text_match", "whether a regular expression matches each text as a whole", ["x"],
    [Attr("pattern", "str")], kind="opaque", infer=of_input(_match_infer, TEXT), reference=_match_reference,
    dtypes=TEXT,
    samples=(Sample((_sample("cat", "cats", "", "Cat", shape=(2, 2)),), {"pattern": "[a-z]+t"}),),
    error_samples=[ErrorSample((_sample("a"),), {"pattern": "("}, "no regular expression", "string")],
)  # fmt: skip

_CASES: Mapping[str, Callable[[str], str]] = {"NONE": str, "LOWER": str.lower, "UPPER": str.upper}


def _clean_infer(x: TensorType, attrs: Attrs) -> TensorType:
    check_rank(x, 1, 2)
    if x.ndim == 2 and isinstance(x.shape[0], int) and x.shape[0] != 1:
        raise fail(f"the texts are {x}", "one row of texts is needed")
    if x.ndim == 2:
        assume(EQUAL, x.shape[0], 1, "one row of texts is needed")
    return TensorType((1, attrs["count"])[2 - x.ndim :], STRING)


def _clean_reference(x: NDArray, *, case: str, stopwords: tuple[str, ...], exact: bool) -> NDArray:
    fold = str if exact else str.lower
    dropped = {fold(word) for word in stopwords}
    remaining = [_CASES[case](text) for text in x.flat if fold(text) not in dropped]
    row = _objects(remaining or [""], (-1,))
    return row.reshape((1,) * (x.ndim - 1) + (-1,))


TEXT_CLEAN = op(
    "text_clean",
    "a vector (or one row) of texts without stop words, in another case; one empty text if none is left."
    " With `exact`, the comparison with stop words is case-sensitive",
    ["x"],
    [Attr("count", "fresh"), Attr("case", "str", "NONE", choices=tuple(_CASES)),
     Attr("stopwords", "strs", ()), Attr("exact", "bool", False)],
    kind="opaque",
    infer=of_input(_clean_infer, TEXT),
    reference=_clean_reference,
    dtypes=TEXT,
    samples=(
        Sample((_sample("Monday", "tuesday", "Friday"),),
               {"count": Var("n"), "case": "UPPER", "stopwords": ("monday",)}),
        Sample((_sample("a", "a", shape=(1, 2)),), {"count": Var("n"), "stopwords": ("a",), "exact": True}),
    ),
    error_samples=[ErrorSample((_sample("a", "b", shape=(2, 1)),), {"count": Var("n")}, "one row", "string")],
)  # fmt: skip


def _index_reference(x: NDArray, *, keys: tuple[str, ...], default: int) -> NDArray:
    indices = {key: index for index, key in enumerate(keys)}
    return _each(x, "int64", lambda text: indices.get(text, default))


TEXT_INDEX = op(
    "text_index", "the index of each text among the keys (of equal keys the last), else `default`", ["x"],
    [Attr("keys", "strs"), Attr("default", "int", -1)], kind="opaque",
    infer=of_input(lambda x, attrs: x.with_dtype(_INT64), TEXT), reference=_index_reference, dtypes=TEXT,
    samples=(Sample((_sample("b", "c", "z", "a", shape=(2, 2)),), {"keys": ("a", "b", "c", "b")}),),
    error_samples=[ErrorSample((Tensor((2,)),), {"keys": ("a",)}, "dtype")],
)  # fmt: skip

OPS = (TEXTS, TO_TEXT, PARSE_TEXT, TEXT_JOIN, TEXT_SPLIT, TEXT_TOKENS, TEXT_MATCH, TEXT_CLEAN, TEXT_INDEX)
