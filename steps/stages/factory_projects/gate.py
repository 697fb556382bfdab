"""Gates of factory_projects: quotas and priorities are in force, and developers may submit and read, and do nothing else."""

from collections.abc import Iterator, Mapping

from steps.contract.plain_text import count
from steps.contract.verdict import FailureClass, Verdict, passed
from steps.stages.factory_projects.contract import (
    BUILDER,
    DEVELOPER,
    AccessExpectation,
    AccessObservation,
    ControlExpectation,
    ControlObservation,
    ProjectState,
    Question,
    WantedProject,
    questions,
)
from steps.stages.shared.finding import Finding, fail, unknown
from steps.stages.shared.quantities import quantity

CONTROL = "factory_projects/control"
ACCESS = "factory_projects/access"
AGAIN = "bringup factory up sets it again"


def control(seen: ControlObservation, want: ControlExpectation) -> Verdict:
    """Check that each project has its namespace, a quota that is counted, default requests, a priority and its accounts."""
    states = {project.name: project for project in seen.projects}
    finding = next((problem for wanted in want.projects for problem in _problems(states.get(wanted.name), wanted)), None)
    if not want.projects:
        finding = unknown(FailureClass.INPUT, "no project was asked for", "a project", "name one in projects of the spec")
    if finding is not None:
        return finding.verdict(CONTROL)
    return passed(CONTROL, f"{count(len(want.projects), 'project')} with quota and priority")


def access(seen: AccessObservation, want: AccessExpectation) -> Verdict:
    """Check that the authorizer lets developers submit and read logs, and refuses them everything else that was asked."""
    finding = next(_wrong(seen, want), None)
    if finding is not None:
        return finding.verdict(ACCESS)
    refused = sum(not answer.allowed for answer in seen.answers)
    return passed(
        ACCESS, f"developers of {count(len(want.projects), 'project')} submit and read logs; {refused} other deeds refused"
    )


def _problems(state: ProjectState | None, want: WantedProject) -> Iterator[Finding]:
    space = f"kubectl -n {want.name} get resourcequotas,limitranges,serviceaccounts"
    if state is None or not state.exists:
        yield unknown(FailureClass.DEPENDENCY, f"there is no namespace {want.name}", "it", AGAIN)
        return
    if not state.hard:
        seen = f"project {want.name} has no quota that the API server counts"
        yield unknown(FailureClass.COMPARISON, seen, _amounts(want.hard), f"{space}; without it a project takes every node")
    for resource, amount in want.hard.items():
        if state.hard and not _equal(state.hard.get(resource, ""), amount):
            seen = f"the quota of {want.name} on {resource} is {state.hard.get(resource, 'not set')}"
            yield fail(FailureClass.COMPARISON, seen, amount, f"{space}; find out who changed it: {AGAIN}")
    for resource, amount in want.requests.items():
        if not _equal(state.requests.get(resource, ""), amount):
            seen = f"containers of {want.name} that state none request {resource} {state.requests.get(resource, 'nothing')}"
            yield fail(FailureClass.COMPARISON, seen, amount, f"{space}; a quota refuses pods that request nothing")
    if state.priority != want.priority:
        priority = "no PriorityClass" if state.priority is None else f"the priority {state.priority}"
        step = f"kubectl get priorityclass project-{want.name}; the value of one cannot be changed, so delete it first"
        yield fail(FailureClass.COMPARISON, f"project {want.name} has {priority}", str(want.priority), step)
    if missing := [name for name in (BUILDER, DEVELOPER) if name not in state.accounts]:
        yield unknown(FailureClass.DEPENDENCY, f"project {want.name} has no account {missing[0]}", "it", space)


def _equal(text: str, wanted: str) -> bool:
    """Return True if two quantities are equal; the API server writes `1024Mi` as `1Gi`."""
    number = quantity(text)
    return number is not None and number == quantity(wanted)


def _amounts(hard: Mapping[str, str]) -> str:
    return ", ".join(f"{resource} {amount}" for resource, amount in hard.items())


def _wrong(seen: AccessObservation, want: AccessExpectation) -> Iterator[Finding]:
    """Yield what a developer may do and should not, then what one may not do and should, then questions without an answer."""
    if not want.projects:
        yield unknown(FailureClass.INPUT, "no project was asked for", "a project", "name one in projects of the spec")
    answers = {(answer.subject, answer.namespace, answer.deed): answer.allowed for answer in seen.answers}
    asked_questions = [(question, answers.get(_key(question))) for question in questions(want.projects, want.users)]
    for question, allowed in asked_questions:
        if allowed and not question.allowed:
            state = f"{question.subject} may {question.deed.text} in namespace {question.namespace}"
            step = "kubectl get rolebindings,clusterrolebindings -A -o wide: find the binding that gives this right, and remove it"
            yield fail(FailureClass.PERMISSION, state, "a refusal", step)
    for question, allowed in asked_questions:
        if allowed is False and question.allowed:
            state = f"{question.subject} may not {question.deed.text} in namespace {question.namespace}"
            yield fail(FailureClass.PERMISSION, state, "the right to submit builds and read their logs", AGAIN)
    if open_questions := [question for question, allowed in asked_questions if allowed is None]:
        first = open_questions[0]
        state = f"the authorizer did not answer if {first.subject} may {first.deed.text}"
        step = "see if the account of the run may create subjectaccessreviews"
        yield unknown(FailureClass.PERMISSION, f"{state} ({len(open_questions)} of {len(asked_questions)})", "an answer", step)


def _key(question: Question) -> tuple[str, str, str]:
    return question.subject, question.namespace, question.deed.text
