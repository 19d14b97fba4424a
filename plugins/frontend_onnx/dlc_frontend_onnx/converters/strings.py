"""Operators on strings."""

from __future__ import annotations

from collections.abc import Sequence

from dlc_core.graph.node import Node, get_item
from dlc_core.ir.expr import Var
from dlc_core.op import std
from dlc_frontend_onnx.converters.base import MICROSOFT, Call, converter


@converter("StringNormalizer", 10)
def string_normalizer(c: Call, x: Node) -> Node:
    c.ignore("locale")
    return std.text_clean(
        x,
        count=Var("kept"),
        case=c.choice("case_change_action", "NONE", ("NONE", "LOWER", "UPPER")),
        stopwords=c.texts("stopwords", None) or (),
        exact=c.flag("is_case_sensitive"),
    )


@converter("StringConcat", 20)
def string_concat(c: Call, a: Node, b: Node) -> Node:
    return std.text_join(a, b)


@converter("StringSplit", 20)
def string_split(c: Call, x: Node) -> Sequence[Node]:
    limit = c.integer("maxsplit", -1)
    made = std.text_split(x, max_parts=Var("parts"), delimiter=c.text("delimiter", ""), limit=max(limit, -1))
    return [get_item(made, 0), get_item(made, 1)]


@converter("RegexFullMatch", 20)
def regex_full_match(c: Call, x: Node) -> Node:
    return std.text_match(x, pattern=c.text("pattern", ""))


@converter("Tokenizer", 1, MICROSOFT)
def tokenizer(c: Call, x: Node) -> Node:
    """Patterns are Python regular expressions. A single empty separator splits into characters."""
    separators, token = tuple(c.texts("separators", None) or ()), c.text("tokenexp", "")
    least = c.integer("mincharnum")
    if bool(separators) == bool(token):
        raise c.error("one of the attributes separators and tokenexp is needed")
    if least < 1 or (separators == ("",) and least > 1):
        raise c.error(f"mincharnum is {least}", hint="1 or more; characters are of 1")
    if separators == ("",):
        separators, token = (), "(?s)."
    elif "" in separators:
        raise c.unsupported("an empty separator among others")
    return std.text_tokens(
        x,
        max_tokens=Var("tokens"),
        separators=separators,
        token=token,
        min_length=least,
        pad=c.text("pad_value"),
        ends=("\x02", "\x03") if c.flag("mark") else (),
    )
