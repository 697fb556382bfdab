"""Verb publish: brings a rendered tree to its Git repository under a revision that never moves, and keeps which commit that is;
in stage `image_publish` a node image to the tree that nodes boot from (`image_publishing`), which `image_standing` asks first.

Whatever ends it at whatever moment, the next attempt finds what is there already: a tag with this tree is done, a branch with it
needs its tag only. Others may push at the same time; nothing is ever forced.
"""

from collections.abc import Mapping

import msgspec

from steps import timeouts
from steps.clients.git import access as git_access
from steps.clients.git import repositories
from steps.clients.git.errors import Raced
from steps.clients.git.repositories import Author, Git
from steps.clients.store import AlreadyWritten
from steps.contract import delivery
from steps.contract import run as runs
from steps.contract.canonical import canonical
from steps.contract.delivery import KUSTOMIZATIONS, Delivered, Publication
from steps.contract.exit import ExitCode
from steps.contract.plural import count
from steps.contract.stages.image_standing import ID as STANDING_STAGE
from steps.contract.verdict import FailureClass, Verdict, failed, passed
from steps.errors import BadTask, Temporary
from steps.verbs import rendered, reuse
from steps.verbs.context import Context

Changes = dict[str, str | None]
"""Path → its new text, None to remove it."""
IMAGE_STAGE = "image_publish"
MOST_NAMED = 200
"""Files that a record names."""


class Outcome(msgspec.Struct, frozen=True, kw_only=True):
    """What became of it: the commit (empty when refused), what was changed for it, and the verdict where it is no pass."""

    commit: str = ""
    changes: Changes = {}
    refused: Verdict | None = None


def run(context: Context) -> ExitCode:
    """Publish what differs; the record has the repository, revision, commit, tree and the files that were changed."""
    if context.task.stage == IMAGE_STAGE:
        from steps.verbs import image_publishing  # only an image pays for its builders

        return image_publishing.run(context)
    if context.task.stage == STANDING_STAGE:
        from steps.verbs import image_standing

        return image_standing.run(context)
    wanted = context.arguments(Publication)
    tree = _tree(context, wanted)
    access = git_access.of(context.environment, wanted.repo, wanted.credentials, wanted.known_hosts, wanted.ca)
    earlier = reuse.earlier(context)
    with repositories.opened(access) as repo:
        done = _found(context, repo, wanted, tree) if wanted.is_commit else _published(context, repo, wanted, tree)
    made = Delivered(
        repo=git_access.without_credentials(wanted.repo), revision=wanted.revision, commit=done.commit, tree=wanted.tree.digest
    )
    refused = done.refused or _kept(context, made)
    seen = {**msgspec.to_builtins(made), "branch": wanted.branch, "changed": sorted(done.changes)[:MOST_NAMED]}
    if refused is not None:
        context.record(refused, observation=seen)
        return ExitCode.GATE_FAILED
    reused = earlier.run if earlier is not None and not done.changes else ""
    said = f"{wanted.revision} of {made.repo} is {made.commit}, with {count(len(tree), 'file')} of {wanted.environment}"
    context.record(passed(_gate(context), said), observation=seen, reused=reused)
    return ExitCode.OK


def _gate(context: Context) -> str:
    return f"{context.task.stage}/{context.task.name}"


def _tree(context: Context, wanted: Publication) -> Mapping[str, str]:
    """What is to be published. Raises BadTask when it is not what the task was made for."""
    file, tree = wanted.tree.file, rendered.tree(context, wanted.tree.file)
    if delivery.tree_digest(tree) != wanted.tree.digest:
        raise BadTask(f"{file} is not the tree of this task", hint=rendered.HINT)
    below = f"{wanted.path.strip('./')}/".removeprefix("/")
    strangers = [path for path in tree if {"", ".", ".."} & set(path.split("/")) or not path.startswith(below)]
    if strangers:
        raise BadTask(f"{file} has {strangers[0]!r}, which does not lie below {wanted.path}")
    return tree


def changes(wanted: Publication, tree: Mapping[str, str], present: Mapping[str, str]) -> Changes:
    """What has to change so that a repository holds the tree: ours replaced or removed, the site's own only where it has none.

    A file that all environments share is replaced only where there is no other: two would write over each other's, run by run.
    """
    alone = not _has_others(wanted, present)
    found: Changes = {}
    for path, text in tree.items():
        if wanted.is_kept(path):
            stays = not present.keys().isdisjoint(_names_of(path))
        else:
            stays = path in present and (present[path] == text or not (alone or wanted.is_owned(path)))
        if not stays:
            found[path] = text
    ours = (path for path in present if wanted.is_owned(path) and path not in tree)
    return found | {path: None for path in ours if not (wanted.is_commit and wanted.names_revision(path))}


def _names_of(path: str) -> set[str]:
    """All paths at which the site may keep the file: Kustomize knows its own by three names, and builds nothing without one."""
    folder, _, name = path.rpartition("/")
    return {f"{folder}/{other}" for other in KUSTOMIZATIONS} if name in KUSTOMIZATIONS else {path}


def _has_others(wanted: Publication, present: Mapping[str, str]) -> bool:
    """Whether another environment lies beside this one's folder."""
    beside = tuple(f"{prefix.rstrip('/').rpartition('/')[0]}/" for prefix in wanted.owned)
    foreign = (path for path in present if not path.startswith(wanted.owned))
    return any("/" in path.removeprefix(folder) for path in foreign for folder in beside if path.startswith(folder))


# ---- a commit is found as it is ------------------------------------------------------------------------------------------------


def _found(context: Context, repo: Git, wanted: Publication, tree: Mapping[str, str]) -> Outcome:
    commit = repo.resolve(wanted.revision)
    if not commit:
        return Outcome(refused=_absent(context, wanted))
    return _compared(context, repo, wanted, tree, commit)


def _absent(context: Context, wanted: Publication) -> Verdict:
    return failed(
        _gate(context),
        FailureClass.COMPARISON,
        seen=f"{git_access.without_credentials(wanted.repo)} has no commit {wanted.revision}",
        expected="the commit that delivery.argo_cd.revision names",
        next_step="push it, or name a tag: then it is made for you",
        final=True,
    )


def _compared(context: Context, repo: Git, wanted: Publication, tree: Mapping[str, str], commit: str) -> Outcome:
    """Whether a commit that is there already holds the tree."""
    differing = changes(wanted, tree, repo.read(commit, wanted.path))
    if not differing:
        return Outcome(commit=commit)
    names = sorted(differing)
    kind = "commit" if wanted.is_commit else "tag"
    verdict = failed(
        _gate(context),
        FailureClass.COMPARISON,
        seen=f"{kind} {wanted.revision} is there already (commit {commit}) and differs in {count(len(names), 'file')}: {names[0]}"
        + (f" and {len(names) - 1} more" if len(names) > 1 else ""),
        expected="the tree of this plan",
        next_step="bringup render --gitops shows it; give delivery.argo_cd.revision a new tag: one that is there is never moved",
        final=True,
    )
    return Outcome(commit=commit, refused=verdict)


# ---- a tag is made -------------------------------------------------------------------------------------------------------------


def _published(context: Context, repo: Git, wanted: Publication, tree: Mapping[str, str]) -> Outcome:
    """Make the tag, on a new commit where the branch does not hold the tree. Raises Temporary when others are always quicker."""
    if f"refs/heads/{wanted.revision}" in repo.refs():
        return Outcome(refused=_branch(context, wanted))
    for _ in range(timeouts.GIT_TRIES):
        if tagged := repo.resolve(wanted.revision):
            return _compared(context, repo, wanted, tree, tagged)
        try:
            return _push(context, repo, wanted, tree)
        except Raced as error:
            context.say(f"pushed by somebody else meanwhile, once more: {error}")
    raise Temporary(f"branch {wanted.branch} changes all the time", hint="others push to it; the engine tries again")


def _branch(context: Context, wanted: Publication) -> Verdict:
    """Where a branch and a tag have one name, Argo CD takes the branch, which moves."""
    return failed(
        _gate(context),
        FailureClass.COMPARISON,
        seen=f"{git_access.without_credentials(wanted.repo)} has a branch {wanted.revision}",
        expected="a tag's name that no branch has: Argo CD would take the branch, which moves",
        next_step="give delivery.argo_cd.revision another name, or remove that branch",
        final=True,
    )


def _push(context: Context, repo: Git, wanted: Publication, tree: Mapping[str, str]) -> Outcome:
    """The branch first, then its tag. In one push a server may take the tag and refuse a branch that has moved: the tag would
    then say that all is done, beside a branch without it."""
    tip = repo.tip(wanted.branch)
    found = changes(wanted, tree, repo.read(tip, wanted.path) if tip else {})
    commit = repo.commit(tip, found, _message(context, wanted), _author(context)) if found or not tip else tip
    if commit != tip:
        repo.push({f"refs/heads/{wanted.branch}": (tip, commit)})
        context.did(f"pushed {commit} to {wanted.branch}: {count(len(found), 'file')} changed")
    repo.push({f"refs/tags/{wanted.revision}": ("", commit)})
    context.did(f"created tag {wanted.revision} at {commit}")
    return Outcome(commit=commit, changes=found)


def _message(context: Context, wanted: Publication) -> str:
    return (
        f"{wanted.environment}: {wanted.revision}\n\n"
        f"Rendered by bringup; run {context.environment.run}.\n\nBringup-Tree: {wanted.tree.digest}\n"
    )


def _author(context: Context) -> Author:
    """Us, with the address of whoever owns the cluster."""
    header = context.store.read(runs.header_key(context.environment.run))
    owner = runs.decode_header(header).owner if header else ""
    return Author(name="bringup", mail=owner or "bringup@localhost", when=context.clock.now())


# ---- what this run delivered ---------------------------------------------------------------------------------------------------


def _kept(context: Context, made: Delivered) -> Verdict | None:
    """Keep it, once; None when this run delivered nothing else before."""
    key = delivery.key(context.environment.run)
    try:
        context.store.write(key, canonical(made))
    except AlreadyWritten:
        before = delivery.decode(context.store.read(key) or b"{}")
        if before != made:
            return failed(
                _gate(context),
                FailureClass.COMPARISON,
                seen=f"this run delivered commit {before.commit} as {before.revision} before, now it is {made.commit}",
                expected="the same commit: a tag is never moved",
                next_step=f"see who moved {made.revision}, and start a new run",
                final=True,
            )
    return None
