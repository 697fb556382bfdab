"""The three small languages and Go's way with text, as tables; what the controller does is from the conformance corpus."""

from __future__ import annotations

from typing import Any

import pytest

from workflows.render.grammar import depends, expr
from workflows.render.grammar.expr_eval import ExprError, evaluate
from workflows.render.grammar.gotext import display, fnv1a, json_text, number_text, parse_json, seconds
from workflows.render.grammar.tags import balanced, is_pure
from workflows.render.grammar.when import WhenError, should_execute

TRUE = [
    "", "true", "10 == 10", "10 == 10.0", "10 > 9", "abc == abc", "'abc' == abc", "'a b' == \"a b\"", "'abc' in ('abc', 'def')",
    "'v1.34.2' =~ '^v1[.][0-9]+[.][0-9]+$'", "'gpu001.rack-7' =~ '[.]rack-[0-9]+$'",
    "'abc' =~ '^a.c$'", "'abc' !~ '^b'", "true && (false || 10 >= 10)", "!false", "!(1 == 2)", "1 + 2 * 3 == 7", "2 ** 3 == 8",
    "7 % 4 == 3", "-1 < 0", "0x10 == 16", "a + b == ab", "'node-1' == 'node-1'", "1 == 1 == true", "'9' > '10'", "'' == ''",
]  # fmt: skip
FALSE = ["false", "10 == '10'", "'10' > '9'", "abc != abc", "x == y", "!('abc' == 'abc')", "1 == 1 && 1 == 2", "true == 'true'"]
FALSE += [f"'{'a' * 1000}' =~ '.*ok.*'"]  # Go's users write it so, and a repeat at the end takes no time
ERRORS = [
    ("1 + 1", "Expected boolean evaluation for '1 + 1'. Got 2"),
    ("node-1 == node-1", "Value 'node' cannot be used with the modifier '-', it is not a number"),
    ("a b == nope", "Cannot transition token types from VARIABLE [a] to VARIABLE [b]"),
    ("a ==", "Unexpected end of expression"),
    ("(a == b", "Unbalanced parenthesis"),
    ("a == 'x", "Unclosed string literal"),
    ("v1.2 == v1.2", "unexported field"),
    ("a <> b", "Invalid token: '<>'"),
    ("1.2.3 == 1", "Unable to parse numeric value"),
    ("'a' > 1", "cannot be used with the comparator '>'"),
    ("'a' in ('a')", "cannot be used with the comparator 'in'"),
    ("a && b", "cannot be used with the logical operator '&&'"),
    ("1 / 0 == 1", "no finite result"),
    ("'x' =~ '(?=x)'", "not supported by both engines"),
    ("'2026-11-21' == '2026-11-21'", "reads as a date"),
    ("$x == 1", "Invalid token"),
    ("9" * 400 + " == 1", "Unable to parse numeric value"),
    ("0x" + "f" * 400 + " == 1", "Unable to parse numeric value"),
    ("10 ** 300 * 10 ** 300", "Got +Inf"),
    ("(" * 3000 + "1" + ")" * 3000, "nested deeper"),
    ("-" + " + -".join("1" * 3000) + " == 1", "more than 200 operators"),
    # Go matches these in linear time, Python in exponential or cubic time
    (f"'{'a' * 40}' =~ '(a+)+b'", "may take too long on a text of 40 characters"),
    (f"'{'a' * 40}' =~ '(a|a)*b'", "may take too long"),
    (f"'{'a' * 40}' =~ '{'a?' * 40}{'a' * 40}'", "may take too long"),
    (f"'{'a' * 5000}' =~ '.*a.*b'", "may take too long"),
]


@pytest.mark.parametrize("text", TRUE)
def test_when_holds(text: str) -> None:
    assert should_execute(text)


@pytest.mark.parametrize("text", FALSE)
def test_when_does_not_hold(text: str) -> None:
    assert not should_execute(text)


@pytest.mark.parametrize(("text", "sentence"), ERRORS)
def test_when_is_an_error(text: str, sentence: str) -> None:
    with pytest.raises(WhenError) as caught:
        should_execute(text)
    assert sentence in str(caught.value)


RESULTS = {"a": frozenset({"Succeeded"}), "b": frozenset({"Failed"}), "s": frozenset({"Skipped"}), "o": frozenset({"Omitted"})}


@pytest.mark.parametrize(
    ("text", "holds"),
    [
        ("a", True), ("b", False), ("s", True), ("o", False), ("!b.Succeeded", True),
        ("a.Succeeded || a.Succeeded && b.Succeeded", True), ("(a.Succeeded || a.Succeeded) && b.Succeeded", False),
        ("!a.Failed && (b.Succeeded || b.Failed)", True), ("!!a", True),
    ],
)  # fmt: skip
def test_depends(text: str, holds: bool) -> None:
    assert depends.read(text).holds(RESULTS) is holds


@pytest.mark.parametrize(
    "text",
    [
        "",
        "a &&",
        "a b",
        "(a",
        "a)",
        "a.Done",
        "a & b",
        "a.Succeeded.",
        "&& a",
        "!",
        "!" * 5000 + "a",
        "(" * 5000 + "a" + ")" * 5000,
    ],
)
def test_depends_does_not_parse(text: str) -> None:
    with pytest.raises(depends.DependsError):
        depends.read(text)


SCOPE = {"workflow.parameters.n": "41", "workflow.parameters.dash-name": "dashed", "tasks.a.status": "Skipped", "tasks.a.v": None,
         "obj": '{"a":{"b":"deep"},"l":[3,1,2]}', "lastRetry.exitCode": "75"}  # fmt: skip


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("asInt(workflow.parameters.n) + 1", 42),
        ("asInt(workflow.parameters.n) / 2", 20.5),
        ("asInt(workflow.parameters.n) > 40 ? 'big' : 'small'", "big"),
        ("workflow.parameters['dash-name']", "dashed"),
        ("toJson(map(fromJSON(obj).l, {# * 2}))", "[6,2,4]"),
        ("len(filter(fromJSON(obj).l, {# > 1}))", 2),
        ("jsonpath(obj, '$.a.b')", "deep"),
        ("jsonpath(obj, '$.l[1]')", 1.0),
        ("sprig.trim('  pad  ') + sprig.upper('x') + sprig.repeat(3, 'ab')", "padXababab"),
        ("string(1.0) + string(10000000)", "110000000"),
        ("tasks.a.status == 'Skipped' ? 'none' : tasks.a.v", "none"),
        ("tasks.a.v ?? 'z'", "z"),
        ("tasks.nosuch ?? 'z'", "z"),
        ("tasks.a.v == nil", True),
        ("asInt(lastRetry.exitCode) in [75, 76]", True),
        ("not (1 == 2) and true or false", True),
        ("!false && 1 < 2.5", True),
        ("7 % 4 + 2 ** 3", 11.0),
        ("-asFloat('1.5')", -1.5),
        ("'abc' contains 'b' && 'abc' startsWith 'a' && 'abc' endsWith 'c'", True),
        ("fromJSON(obj).l[-1] == 2", True),
        ("fromJSON(obj).x == '2'", False),
    ],
)
def test_expressions(text: str, value: Any) -> None:
    found = evaluate(expr.read(text), SCOPE)
    assert found == value
    assert type(found) is type(value)


@pytest.mark.parametrize(
    "text",
    ["asInt('abc')", "1 + 'a'", "'1' == 1", "nosuch.thing", "1 ? 2 : 3", "'a' && true", "1 / 0", "jsonpath(obj, '$.zz')",
     "fromJSON('{')", "len(1)", "map('x', {#})", "filter([1], {#})", "-'a'", "!1", "5 % 2.5", "sprig.repeat('a', 'b')",
     "9223372036854775807 + 1", "-(0 - 9223372036854775807 - 1)", "99999999999 * 99999999999", "asInt('99999999999999999999')",
     "asInt('" + "9" * 5000 + "')", "asInt('\u0663')", "int(1.0e308 * 10.0)", "toJson(1.0e308 * 10.0)", "fromJSON('1e999')",
     "fromJSON('NaN')", "fromJSON(sprig.repeat(10000, '[') + sprig.repeat(10000, ']'))", "fromJSON(sprig.repeat(200, '[') +"
     " sprig.repeat(200, ']'))", "sprig.repeat(10000, sprig.repeat(10000, 'a'))"],
)  # fmt: skip
def test_expressions_without_a_value(text: str) -> None:
    with pytest.raises(ExprError):
        evaluate(expr.read(text), SCOPE)


@pytest.mark.parametrize(
    "text",
    ["", "1 +", "a b", "now()", "a.b(1)", "map([1], 2)", "len(1, 2)", "'\\x41'", "a ?? b || c", "{a: 1}", "a | upper()", "(1", "[1",
     "let x = 1; x", "1..3", "a ? b", "9" * 5000, "1.0e999", "(" * 3000 + "1" + ")" * 3000, "!" * 3000 + "true",
     "+".join("1" * 3000), "**".join("1" * 3000), ".".join("a" * 3000)],
)  # fmt: skip
def test_expressions_outside_of_the_subset(text: str) -> None:
    with pytest.raises(expr.ExprSyntaxError):
        expr.read(text)


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (1.0, "1"),
        (20.5, "20.5"),
        (1e20, "100000000000000000000"),
        (1e21, "1e+21"),
        (1.5e-7, "1.5e-07"),
        (-0.25, "-0.25"),
        (0.0, "0"),
    ],
)
def test_numbers(value: float, text: str) -> None:
    assert number_text(value) == text


def test_json_and_display() -> None:
    assert json_text([1.5e-7, 1e21]) == "[1.5e-7,1e+21]"
    assert json_text({"b": "<a>&", "a": [1, True, None, 2.0]}) == '{"a":[1,true,null,2],"b":"\\u003ca\\u003e\\u0026"}'
    assert display([1.0, "a", True, None, {"k": "v"}]) == "[1 a true <nil> map[k:v]]"
    assert fnv1a("a") == 0xE40C292C


@pytest.mark.parametrize(("text", "value"), [("600", 600), ("1h30m", 5400), ("1.5s", 1.5), ("250ms", 0.25), (".5m", 30)])
def test_durations(text: str, value: float) -> None:
    assert seconds(text) == value


@pytest.mark.parametrize("text", ["", "soon", "5 m", "-5s", "1d", "5m3", "1.2.3s"])
def test_no_durations(text: str) -> None:
    with pytest.raises(ValueError, match="is not a duration"):
        seconds(text)


def test_tags() -> None:
    assert is_pure("{{ a.b }}") == "a.b"
    assert is_pure("{{a}}{{b}}") is None
    assert is_pure("{{=a}}") is None
    assert balanced('{{ foo }} {{.Names}} {{}} {{ "x" }} {# }}')
    assert not balanced("{{a {{b}}")


@pytest.mark.parametrize("text", ["9" * 400, "9999999999999h", "1h30", "\u0663s", "\u0663"])
def test_durations_that_argo_cannot_count(text: str) -> None:
    with pytest.raises(ValueError, match="duration"):
        seconds(text)


def test_json_of_a_step_is_read_as_go_reads_it() -> None:
    assert parse_json('{"a": ["\\ud800", 1e3, "\\ud83d\\ude00"]}') == {"a": ["\ufffd", 1000.0, "\U0001f600"]}
    for text in ("[" * 100_000 + "]" * 100_000, "[" * 200 + "]" * 200, "[NaN]", "[-Infinity]", "["):
        with pytest.raises(ValueError):  # the words are those of the reader
            parse_json(text)
