"""Verb publish: push a rendered Git folder to its repository under a revision that never moves, and record the commit.

A stage that belongs to a product publishes that product instead (`steps.runtime.product_tasks`). An attempt that was cut off can be
repeated: a tag with this content is complete, and a branch with it only needs its tag. Others may push at the same time; nothing is
ever forced.
"""

from collections.abc import Mapping

import msgspec

from steps import timeouts
from steps.clients.git import git_access, repositories
from steps.clients.git.errors import Raced
from steps.clients.git.repositories import Author, Git
from steps.clients.store import AlreadyWritten
from steps.contract import delivery, run_records
from steps.contract.canonical import canonical
from steps.contract.delivery import KUSTOMIZATIONS, Delivered, Publication
from steps.contract.exit import ExitCode
from steps.contract.plain_text import count
from steps.contract.verdict import FailureClass, Verdict, failed, passed
from steps.errors import BadTask, Temporary
from steps.runtime import delivery_inputs, product_tasks, reuse
from steps.runtime.context import Context

Changes = dict[str, str | None]
"""Changes to a repository: path → its new text, None to remove the file."""
MOST_NAMED = 200
"""Largest number of files that a record names."""


class _PublicationOutcome(msgspec.Struct, frozen=True, kw_only=True):
    """Result of a publication: the commit (empty if refused), the changed files, and the verdict if it is no pass."""

    commit: str = ""
    changes: Changes = {}
    refused: Verdict | None = None


def run(context: Context) -> ExitCode:
    """Publish the rendered Git folder if the repository does not hold it yet. Commit and changed files are recorded."""
    tasks = product_tasks.tasks_of(context.task.stage)
    if tasks is not None:
        return tasks.publish(context)
    target = context.arguments(Publication)
    tree = _tree(context, target)
    access = git_access.access_of(context.environment, target.repo, target.credentials, target.known_hosts, target.ca)
    earlier = reuse.earlier(context)
    with repositories.open_repository(access) as repo:
        done = _found(context, repo, target, tree) if target.is_commit else _published(context, repo, target, tree)
    delivered = Delivered(
        repo=git_access.without_credentials(target.repo), revision=target.revision, commit=done.commit, tree=target.tree.digest
    )
    refused = done.refused or _kept(context, delivered)
    seen = {**msgspec.to_builtins(delivered), "branch": target.branch, "changed": sorted(done.changes)[:MOST_NAMED]}
    if refused is not None:
        context.record(refused, observation=seen)
        return ExitCode.GATE_FAILED
    reused = earlier.run if earlier is not None and not done.changes else ""
    sentence = (
        f"{target.revision} of {delivered.repo} is {delivered.commit}, with {count(len(tree), 'file')} of {target.environment}"
    )
    context.record(passed(context.own_gate, sentence), observation=seen, reused=reused)
    return ExitCode.OK


def _tree(context: Context, target: Publication) -> Mapping[str, str]:
    """Return the rendered Git folder to publish (path → text). Raises BadTask if it is not the one that the task was made for."""
    file, tree = target.tree.file, delivery_inputs.tree(context, target.tree.file)
    if delivery.tree_digest(tree) != target.tree.digest:
        raise BadTask(f"{file} is not the tree of this task", hint=delivery_inputs.HINT)
    below = f"{target.path.strip('./')}/".removeprefix("/")
    strangers = [path for path in tree if {"", ".", ".."} & set(path.split("/")) or not path.startswith(below)]
    if strangers:
        raise BadTask(f"{file} has {strangers[0]!r}, which does not lie below {target.path}")
    return tree


def changes(target: Publication, tree: Mapping[str, str], present: Mapping[str, str]) -> Changes:
    """Return the changes after which a repository holds the rendered folder.

    bringup's own files are replaced or removed, the site's files only added. A file that all environments share is replaced only if
    no other environment exists, because two would overwrite each other's, run by run.
    """
    alone = not _has_others(target, present)
    changed: Changes = {}
    for path, text in tree.items():
        if target.is_kept(path):
            stays = not present.keys().isdisjoint(_names_of(path))
        else:
            stays = path in present and (present[path] == text or not (alone or target.is_owned(path)))
        if not stays:
            changed[path] = text
    ours = (path for path in present if target.is_owned(path) and path not in tree)
    return changed | {path: None for path in ours if not (target.is_commit and target.names_revision(path))}


def _names_of(path: str) -> set[str]:
    """Return all paths at which the site may keep this file: Kustomize accepts three names for its file."""
    folder, _, name = path.rpartition("/")
    return {f"{folder}/{other}" for other in KUSTOMIZATIONS} if name in KUSTOMIZATIONS else {path}


def _has_others(target: Publication, present: Mapping[str, str]) -> bool:
    """Return True if another environment's folder exists beside this one's."""
    beside = tuple(f"{prefix.rstrip('/').rpartition('/')[0]}/" for prefix in target.owned)
    foreign = (path for path in present if not path.startswith(target.owned))
    return any("/" in path.removeprefix(folder) for path in foreign for folder in beside if path.startswith(folder))


# ---- a commit is found as it is ------------------------------------------------------------------------------------------------


def _found(context: Context, repo: Git, target: Publication, tree: Mapping[str, str]) -> _PublicationOutcome:
    commit = repo.resolve(target.revision)
    if commit:
        return _compared(context, repo, target, tree, commit)
    seen = f"{git_access.without_credentials(target.repo)} has no commit {target.revision}"
    expected, step = "the commit that delivery.argo_cd.revision names", "push it, or name a tag: then it is made for you"
    return _PublicationOutcome(refused=_refusal(context, seen, expected, step))


def _refusal(context: Context, seen: str, expected: str, next_step: str) -> Verdict:
    return failed(context.own_gate, FailureClass.COMPARISON, seen=seen, expected=expected, next_step=next_step, final=True)


def _compared(context: Context, repo: Git, target: Publication, tree: Mapping[str, str], commit: str) -> _PublicationOutcome:
    """Return the outcome for a commit or tag that exists already: a refusal unless it holds the rendered folder."""
    names = sorted(changes(target, tree, repo.read(commit, target.path)))
    if not names:
        return _PublicationOutcome(commit=commit)
    kind = "commit" if target.is_commit else "tag"
    seen = f"{kind} {target.revision} is there already (commit {commit}) and differs in {count(len(names), 'file')}: {names[0]}"
    seen += f" and {len(names) - 1} more" if len(names) > 1 else ""
    step = "bringup render --gitops shows it; give delivery.argo_cd.revision a new tag: one that is there is never moved"
    return _PublicationOutcome(commit=commit, refused=_refusal(context, seen, "the tree of this plan", step))


# ---- a tag is made -------------------------------------------------------------------------------------------------------------


def _published(context: Context, repo: Git, target: Publication, tree: Mapping[str, str]) -> _PublicationOutcome:
    """Create the tag, on a new commit if the branch does not hold the rendered folder yet. Return the outcome.

    Raises Temporary if others push faster at every try.
    """
    if f"refs/heads/{target.revision}" in repo.refs():
        seen = f"{git_access.without_credentials(target.repo)} has a branch {target.revision}"
        expected = "a tag's name that no branch has: Argo CD would take the branch, which moves"
        step = "give delivery.argo_cd.revision another name, or remove that branch"
        return _PublicationOutcome(refused=_refusal(context, seen, expected, step))
    for _ in range(timeouts.GIT_TRIES):
        # somebody else, or an attempt that was cut off, may have created the tag meanwhile
        if tagged := repo.resolve(target.revision):
            return _compared(context, repo, target, tree, tagged)
        try:
            return _push(context, repo, target, tree)
        except Raced as error:
            context.say(f"pushed by somebody else meanwhile, once more: {error}")
    raise Temporary(f"branch {target.branch} changes all the time", hint="others push to it; the engine tries again")


def _push(context: Context, repo: Git, target: Publication, tree: Mapping[str, str]) -> _PublicationOutcome:
    """Push the branch, then its tag; return the outcome.

    In a common push a server may accept the tag and refuse a branch that has moved. The tag would then mark a publication as
    complete that the branch does not have.
    """
    tip = repo.tip(target.branch)
    changed = changes(target, tree, repo.read(tip, target.path) if tip else {})
    commit = repo.commit(tip, changed, _message(context, target), _author(context)) if changed or not tip else tip
    if commit != tip:
        repo.push({f"refs/heads/{target.branch}": (tip, commit)})
        context.did(f"pushed {commit} to {target.branch}: {count(len(changed), 'file')} changed")
    repo.push({f"refs/tags/{target.revision}": ("", commit)})
    context.did(f"created tag {target.revision} at {commit}")
    return _PublicationOutcome(commit=commit, changes=changed)


def _message(context: Context, target: Publication) -> str:
    return (
        f"{target.environment}: {target.revision}\n\n"
        f"Rendered by bringup; run {context.environment.run}.\n\nBringup-Tree: {target.tree.digest}\n"
    )


def _author(context: Context) -> Author:
    """Return the author of bringup's commits, with the mail address of the cluster's owner."""
    header = context.store.read(run_records.header_key(context.environment.run))
    owner = run_records.decode_header(header).owner if header else ""
    return Author(name="bringup", mail=owner or "bringup@localhost", when=context.clock.now())


# ---- what this run delivered ---------------------------------------------------------------------------------------------------


def _kept(context: Context, delivered: Delivered) -> Verdict | None:
    """Store the delivery record, once; return a failed verdict if this run delivered something else before, else None."""
    key = delivery.key(context.environment.run)
    try:
        context.store.write(key, canonical(delivered))
    except AlreadyWritten:
        before = delivery.decode(context.store.read(key) or b"{}")
        if before != delivered:
            seen = f"this run delivered commit {before.commit} as {before.revision} before, now it is {delivered.commit}"
            step = f"see who moved {delivered.revision}, and start a new run"
            return _refusal(context, seen, "the same commit: a tag is never moved", step)
    return None
