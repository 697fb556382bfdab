"""Verb report: turn the run's evidence into its acceptance report in HTML, JSON, JUnit and text."""

from steps.contract.canonical import canonical
from steps.contract.exit import ExitCode
from steps.report import html, junit, source, text
from steps.report.assembly import build
from steps.runtime.context import Context


def run(context: Context) -> ExitCode:
    """Write the four files. They are derived from evidence, hence replaceable if a run is resumed."""
    name = context.environment.run
    report = build(source.read(context.store, name), context.inputs.get("status", ""))
    prefix = f"runs/{name}/report"
    forms = {
        "report.json": canonical(report),
        "report.html": html.html(report).encode(),
        "junit.xml": junit.junit(report),
        "report.txt": text.text(report).encode(),
    }
    for file, data in forms.items():
        context.store.replace(f"{prefix}/{file}", data)
        context.say(f"wrote {prefix}/{file}, {len(data)} bytes")
    context.say(f"{report.status}: {report.sentence}")
    return ExitCode.OK
