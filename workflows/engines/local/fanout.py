"""Fan-out of a task: the items of withItems, withParam and withSequence, their display names, and a call for each."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from typing import Any

from workflows.engines.local.model import NumberSequence, TaskModel
from workflows.engines.local.run_state import FanOutBranch
from workflows.engines.local.scopes import ABSENT, MutableScope
from workflows.engines.local.substitution import ALL, LENIENT, TASKS, Scope, SubstitutionError, substitute
from workflows.engines.local.working_run import CallError
from workflows.render.grammar.gotext import MOST_ITEMS, SEQUENCE_FORMAT, json_text, parse_json
from workflows.render.grammar.tags import is_pure
from workflows.render.grammar.when import WhenError, should_execute


class Number(str):
    """A JSON number as text in its original spelling, so that `1.0` stays `1.0` in names and `{{item}}`."""


def resolve(task: TaskModel, scope: Scope) -> TaskModel:
    """Return the task with references to other tasks replaced by their values.

    If its `when` is already false, nothing else is replaced. Raises CallError with the message for the node that cannot start.
    """
    when = task.when
    try:
        if when:
            when = substitute(when, scope, TASKS)
            try:
                if not should_execute(when):
                    return replace(task, when=when)
            except WhenError as err:
                if not task.expands:  # in a fan-out `when` may need {{item}}: each branch evaluates it again
                    raise CallError(str(err)) from None
        hook = task.exit_hook
        marked = tuple(
            replace(item, value=ABSENT) if item.value is not None and _absent(item.value, scope) else item
            for item in task.arguments
        )
        # not the exit handler's arguments yet: they may refer to outputs of this very task
        resolved = substitute(replace(task, arguments=marked, exit_hook=None), scope, TASKS)
    except SubstitutionError as err:
        raise CallError(str(err)) from None
    return replace(resolved, exit_hook=hook)


def _absent(value: str, scope: Scope) -> bool:
    name = is_pure(value)
    return name is not None and name in scope and scope[name] is None


def branches(task: TaskModel, scope: MutableScope) -> list[FanOutBranch]:
    """Return the calls of a resolved task: one, or one per item.

    Raises CallError if the items are not a list, unless `when` is false anyway: then there are no calls.
    """
    if not task.expands:
        return [FanOutBranch(task.name, task.arguments, task.when)]
    try:
        items = _items(task)
    except (ValueError, CallError) as err:
        try:
            runs = should_execute(task.when)
        except WhenError:
            runs = True
        if runs:
            raise CallError(str(err)) from None
        return []
    return [_branch(task, index, item, scope) for index, item in enumerate(items)]


def _items(task: TaskModel) -> list[Any]:
    if task.with_items:
        return list(task.with_items)
    if task.with_sequence is not None:
        return _sequence(task.with_sequence)
    text = task.with_param
    try:
        items = parse_json(text, Number)
    except ValueError as err:
        raise CallError(f"withParam value could not be parsed as a JSON list: {text.strip()}: {err}") from None
    if items is None:
        return []
    if not isinstance(items, list):
        kind = {dict: "object", str: "string", bool: "bool", Number: "number"}[type(items)]
        reason = f"json: cannot unmarshal {kind} into Go value of type []v1alpha1.Item"
        raise CallError(f"withParam value could not be parsed as a JSON list: {text.strip()}: {reason}")
    return items


def _sequence(sequence: NumberSequence) -> list[Any]:
    start = _whole_number(sequence.start or "0")
    if sequence.end:
        end = _whole_number(sequence.end)
    else:
        count = _whole_number(sequence.count)
        if count == 0:
            return []
        end = start + count - 1
    step = 1 if start <= end else -1
    if abs(end - start) >= MOST_ITEMS:
        raise CallError(f"withSequence has {abs(end - start) + 1} items; the engines run {MOST_ITEMS} at most")
    return [_formatted(sequence.format, number) for number in range(start, end + step, step)]


def _whole_number(text: str) -> int:
    if not re.fullmatch(r"[-+]?[0-9]{1,18}", text):
        raise CallError(f"withSequence: '{text[:40]}' is not a whole number of 18 digits at most")
    return int(text)


def _formatted(form: str, number: int) -> str:
    if not form:
        return str(number)
    match = SEQUENCE_FORMAT.fullmatch(form)
    if match is None:
        raise CallError(f"withSequence format '{form}' is not supported by both engines (supported: %d, %03d, %x)")
    before, zero, width, kind, after = match.groups()
    return before.replace("%%", "%") + format(number, f"{zero}{width}{kind}") + after.replace("%%", "%")


def item_json(value: Any, sort: bool = False) -> str:
    """Return an item as compact JSON, with numbers in their original spelling and map keys sorted only if `sort` is True."""
    if isinstance(value, Number):
        return str(value)
    if isinstance(value, dict):
        keys = sorted(value) if sort else list(value)
        return "{" + ",".join(f"{json_text(key)}:{item_json(value[key])}" for key in keys) + "}"
    if isinstance(value, list):
        return "[" + ",".join(item_json(item) for item in value) + "]"
    return json_text(value)


def display_text(value: Any) -> str:
    """Return an item as Argo shows it in a display name: text keeps JSON escapes but not quotes, other items are JSON."""
    if isinstance(value, str) and not isinstance(value, Number):
        return json.dumps(value, ensure_ascii=False)[1:-1]
    text = item_json(value)
    return text.replace("\\u003c", "<").replace("\\u003e", ">").replace("\\u0026", "&")


def _described(item: Any) -> str:
    if isinstance(item, dict):
        return ",".join(sorted(f"{key}:{display_text(value)}" for key, value in item.items()))
    if isinstance(item, list):
        return "[" + " ".join(display_text(value) for value in item) + "]"
    return display_text(item)


def _branch(task: TaskModel, index: int, item: Any, scope: MutableScope) -> FanOutBranch:
    values: MutableScope = dict(scope)
    if isinstance(item, dict):
        values.update({f"item.{key}": display_text(value) for key, value in item.items()})
    values["item"] = item if isinstance(item, str) else item_json(item, sort=True)
    # the controller also removes parentheses from the item in a display name
    name = f"{task.name}({index}:{_described(item).replace('(', '').replace(')', '')})"
    try:
        skipped = not should_execute(task.when)
    except WhenError:
        skipped = False
    try:
        if skipped:
            values = {key: value for key, value in values.items() if value is not None}
            arguments, when = substitute((task.arguments, task.when), values, LENIENT)
        else:
            arguments, when = substitute((task.arguments, task.when), values, ALL)
    except SubstitutionError as err:
        raise CallError(str(err)) from None
    return FanOutBranch(name, arguments, when)
