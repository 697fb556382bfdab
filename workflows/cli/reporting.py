"""What the commands about finished runs share: a run's report, in the form that was asked for."""

from collections.abc import Callable
from typing import Any

import msgspec

from steps.clients.store import Store
from steps.report import html, junit, model, public, source, text, timeline
from steps.report.build import build
from workflows.engines.folders import Home


class NoSuchForm(ValueError):
    """A report has no such form."""


def _json(made: model.Report) -> str:
    return msgspec.json.format(msgspec.json.encode(made)).decode()


def _yaml(made: model.Report) -> str:
    import yaml

    return yaml.safe_dump(msgspec.to_builtins(made), sort_keys=False, allow_unicode=True)


FORMS: dict[str, Callable[[model.Report], str]] = {
    "table": text.text,
    "json": _json,
    "yaml": _yaml,
    "html": html.html,
    "junit": lambda made: junit.junit(made).decode(),
}
"""What a report can be printed as."""


def report(home: Home, run: str, form: str, *, for_public: bool) -> str:
    """The report of a run; an empty name means the newest. Raises NoSuchRun, NoSuchForm."""
    if form not in FORMS:
        raise NoSuchForm(f"{form!r} is no form of a report; use {', '.join(FORMS)}")
    made = _made(home, run)
    return FORMS[form](public.public(made) if for_public else made)


def note(home: Home, run: str) -> str:
    """A draft of the post-incident note."""
    return timeline.note(_made(home, run)).rstrip()


def moments(home: Home, run: str) -> Any:
    """The timeline as plain data."""
    return msgspec.to_builtins(timeline.timeline(_made(home, run)))


def _made(home: Home, run: str) -> model.Report:
    return build(source.read(Store(home.store), home.find(run).name))
