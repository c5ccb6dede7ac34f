"""Rules about axes that are split together: their text, and what Shardy is told."""

import pytest

from tracebridge.core.errors.argument_errors import ArgumentTypeError, ArgumentValueError
from tracebridge.core.sharding.axis_rules import (
    BATCHING,
    ArrayMapping,
    CompoundFactor,
    SdyShardingRule,
    parse_rule,
    rule_text,
)


@pytest.mark.parametrize(
    ("text", "options", "shapes", "expected"),
    [
        ("i j, j k -> i k", {"reduction_factors": ("j",)}, ([(8, 2), (2, 4)], [(8, 4)]),
         "([i, j], [j, k])->([i, k]) {i=8, j=2, k=4} reduction={j}"),
        ("... a -> ...", {"need_replication_factors": ("a",)}, ([(2, 3, 5)], [(2, 3)]),
         "([i, j, k])->([i, j]) {i=2, j=3, k=5} need_replication={k}"),
        ("(p q) -> p q", {}, ([(6,)], [(2, 3)]), "([ij])->([i, j]) {i=2, j=3}"),
        ("(p q), -> (p q)", {"p": 2, "q": 3}, ([(6,), ()], [(6,)]),
         "([ij], [])->([ij]) {i=2, j=3}"),
        ("...1 a, ...2 b -> ...1 b", {}, ([(2, 3), (4, 5, 6)], [(2, 6)]),
         "([i, j], [k, l, m])->([i, m]) {i=2, j=3, k=4, l=5, m=6}"),
        ("n -> n", {"permutation_factors": ("n",)}, ([(8,)], [(6,)]),
         "([i])->([i]) {i=6} permutation={i}"),
    ],
)  # fmt: skip
def test_texts(text: str, options: dict, shapes: tuple, expected: str) -> None:
    """Factors get Shardy's letters and sizes, in the order in which they come."""
    found = rule_text(parse_rule(text, **options), *shapes)

    assert f"#sdy.op_sharding_rule<{expected}, custom>" == found


def test_rules_as_objects() -> None:
    """Tuples are mappings; many factors have more letters."""
    rule = SdyShardingRule(((BATCHING, "i"),), ((BATCHING, CompoundFactor("i", "j")),), j=2)

    assert (ArrayMapping(BATCHING, "i"),) == rule.operand_mappings
    assert "j=2" in repr(rule)
    assert "{i=4, j=3, k=2}" in rule_text(rule, [(4, 3)], [(4, 6)])
    many = " ".join([f"f{k}" for k in range(20)])
    assert "z, z_1, z_2]" in rule_text(parse_rule(f"{many} -> "), [(1,) * 20], [()])


@pytest.mark.parametrize(
    ("text", "options", "words"),
    [
        ("i j", {}, "0 arrows"),
        ("i (j -> i", {}, "brackets"),
        ("i) -> i", {}, "brackets"),
        ("((i j) k) -> i", {}, "brackets"),
        ("(i) -> i", {}, "at least two"),
        ("i + j -> i", {}, r"has '\+'"),
        ("2i -> i", {}, "has '2'"),
        ("i ... -> i", {}, "can only be the first"),
        ("(i j) -> i", {}, "'j' is no whole axis"),
        ("i -> i", {"i": 3}, "whole axis"),
        ("i -> i", {"k": 3}, "no axis"),
        ("i -> i", {"reduction_factors": ("k",)}, "in no axis"),
        ("i -> i", {"reduction_factors": ("i", "i")}, "twice"),
    ],
)
def test_texts_that_are_no_rules(text: str, options: dict, words: str) -> None:
    """The message says what is wrong with them."""
    with pytest.raises(ArgumentValueError, match=words):
        parse_rule(text, **options)


def test_rules_that_do_not_fit() -> None:
    """Other numbers of arrays or axes, or sizes that are no products."""
    with pytest.raises(ArgumentValueError, match="1 operands, the operation 2"):
        rule_text(parse_rule("i -> i"), [(2,), (2,)], [(2,)])
    with pytest.raises(ArgumentValueError, match="with 1 axes"):
        rule_text(parse_rule("i -> i"), [(2, 3)], [(2,)])
    with pytest.raises(ArgumentValueError, match="the product 4"):
        rule_text(parse_rule("(i j) -> (i j)", i=2, j=2), [(5,)], [(5,)])
    with pytest.raises(ArgumentTypeError, match="expected: a tuple of names"):
        parse_rule("i -> i", reduction_factors=["i"])
