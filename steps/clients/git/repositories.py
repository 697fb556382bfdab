"""The Git client of a step: fetch one branch, read a tree, commit chosen files, push without force, create a tag.

The only user of dulwich, which is imported on first use: the step image has no git program.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from contextlib import ExitStack, closing, contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

from msgspec import Struct

from steps import timeouts
from steps.clients import bounded_answers, certificates
from steps.clients.git import errors as git_errors
from steps.clients.git import git_access, git_objects
from steps.clients.git.git_access import GitAccess
from steps.clients.git.git_objects import GitEntry
from steps.clients.private_folder import private_folder
from steps.contract.delivery import is_commit
from steps.errors import BadTask, StepError, Unreachable

if TYPE_CHECKING:
    import urllib3
    from dulwich.client import AuthCallbackPoolManager, GitClient
    from dulwich.objects import Commit
    from dulwich.repo import Repo

NOBODY = "0" * 40
"""Object id in the Git protocol that means "no object"."""
_FILE_MODE = 0o100644


class Author(Struct, frozen=True, kw_only=True):
    """Author of a commit, with its time in seconds since the epoch."""

    name: str
    mail: str
    when: float

    @property
    def line(self) -> bytes:
        """Return the author as a commit names it, without characters that would break the line."""
        name, mail = re.sub(r"[<>\n]", "", self.name), re.sub(r"[<>\s]", "", self.mail)
        return f"{name} <{mail}>".encode()


@contextmanager
def open_repository(access: GitAccess, most_bytes: int | None = None) -> Iterator[Git]:
    """Yield the client of a repository, with a temporary object store of its own. Leftovers of killed processes are removed.

    Errors are translated to those of bringup. Raises BadTask if a server sends more than `most_bytes`.
    """
    with ExitStack() as stack:
        folder = stack.enter_context(private_folder(sockets=False))
        command = stack.enter_context(git_access.ssh_command(access)) if access.is_ssh and access.local is None else ""
        with _translated(access):
            client, path = _client(access, command, stack, bounded=most_bytes is not None)
            repo = stack.enter_context(closing(git_objects.create_bare(folder / "objects", most_bytes)))
            yield Git(client, path, repo)


class Git:
    """A repository on a server, with the local store of objects that were fetched or made here."""

    def __init__(self, client: GitClient, path: str, repo: Repo) -> None:
        self._client = client
        self._path = path
        self._repo = repo

    def refs(self) -> dict[str, str]:
        """Return every branch and tag of the server with its target: `refs/heads/main` → id."""
        refs = self._client.get_refs(self._path.encode()).refs
        # NAME^{} is no ref: it gives the commit behind an annotated tag
        return {name.decode(): sha.decode() for name, sha in refs.items() if sha and not name.endswith(b"^{}")}

    def tip(self, branch: str) -> str:
        """Return the id of the newest commit of a branch, fetched without its history; empty if the server has no such branch."""
        sha = self.refs().get(f"refs/heads/{branch}", "")
        return self._fetched(sha) if sha else ""

    def resolve(self, revision: str) -> str:
        """Return the id of a tag's commit, or a full commit id, fetched without its history; empty if the server has none."""
        if is_commit(revision):
            return self._found(revision)
        sha = self.refs().get(f"refs/tags/{revision}", "")
        return self._fetched(sha) if sha else ""

    def read(self, commit: str, path: str = "") -> dict[str, str]:
        """Return path from the root → text for the files of a commit at or below `path`. Links and submodules are left out."""
        prefix = path.strip("/")
        files = (entry for entry in self.entries(commit) if entry.is_file)
        below = (entry for entry in files if not prefix or entry.path == prefix or entry.path.startswith(f"{prefix}/"))
        return {entry.path: entry.content.decode(errors="replace") for entry in below}

    def entries(self, commit: str, folder: str = "") -> Iterator[GitEntry]:
        """Yield the entries of a commit below a folder, folders before their content; nothing if there is no such folder.

        Submodules are left out, and objects are fetched without history. Raises BadTask if the server lacks objects that the commit
        names.
        """
        self._fetch({commit}, 1)
        try:
            yield from git_objects.below(self._repo.object_store, self._commit(commit).tree, folder)
        except KeyError as error:
            raise BadTask(
                f"the server lacks an object that commit {commit} names", hint="run git fsck in the repository on the server"
            ) from error

    def commit(self, parent: str, files: Mapping[str, str | None], message: str, author: Author) -> str:
        """Make a commit on top of `parent` (empty: the first one) and return its id. It is not pushed yet.

        `files` are replaced, or removed if their text is None.
        """
        from dulwich.object_store import commit_tree_changes
        from dulwich.objects import Blob, Commit, ObjectID, Tree

        store, changes = self._repo.object_store, []
        for path, text in sorted(files.items()):
            blob = None if text is None else _stored(store, Blob.from_string(text.encode()))
            changes.append((path.encode(), None if blob is None else _FILE_MODE, blob))
        before = self._commit(parent).tree if parent else _stored(store, Tree())
        new = Commit()
        new.tree = commit_tree_changes(store, before, changes)
        new.parents = [ObjectID(parent.encode())] if parent else []
        new.author = new.committer = author.line
        new.author_time = new.commit_time = int(author.when)
        new.author_timezone = new.commit_timezone = 0
        new.encoding, new.message = b"UTF-8", message.encode()
        return str(_stored(store, new).decode())

    def push(self, updates: Mapping[str, tuple[str, str]]) -> None:
        """Move refs: full name → (current id, empty for none; new id). Never by force.

        Raises git_errors.Raced if a ref has another current id, Refused if the server denies the push.
        """
        encoded = {name.encode(): (before.encode() or NOBODY.encode(), after.encode()) for name, (before, after) in updates.items()}

        def update(refs: dict[Any, Any]) -> dict[Any, Any]:
            for name, (before, _) in encoded.items():
                if (refs.get(name) or NOBODY.encode()) != before:
                    raise git_errors.Raced(f"{name.decode()} has moved meanwhile")
            return {name: after for name, (_, after) in encoded.items()}

        def packed(have: Any, want: Any, *, ofs_delta: bool = False, **_: Any) -> Any:
            return self._repo.generate_pack_data(set(have), set(want), ofs_delta=ofs_delta)

        result = self._client.send_pack(self._path.encode(), update, packed)
        for name, problem in (result.ref_status or {}).items():
            if problem:
                raise git_errors.refused_ref(name.decode(), problem)

    def _found(self, commit: str) -> str:
        """Fetch a commit and return its id; empty if the server does not have it.

        If the server gives out only commits of refs, all branches and tags are fetched.
        """
        from dulwich.errors import GitProtocolError, HangupException

        try:
            return self._fetched(commit)
        except (GitProtocolError, HangupException, KeyError):
            if not (refs := self.refs()):
                return ""
            self._fetch(set(refs.values()), None)
            return commit if self._has(commit) else ""

    def _fetched(self, sha: str) -> str:
        self._fetch({sha}, 1)
        return str(self._commit(sha).id.decode())

    def _fetch(self, shas: Iterable[str], depth: int | None) -> None:
        from dulwich.objects import ObjectID

        missing = [ObjectID(sha.encode()) for sha in shas if not self._has(sha)]

        def all_wanted(refs: Mapping[Any, Any], depth: int | None = None) -> list[ObjectID]:  # noqa: ARG001  # dulwich's form
            return missing

        if missing:
            self._client.fetch(self._path.encode(), self._repo, all_wanted, depth=depth)

    def _has(self, sha: str) -> bool:
        from dulwich.objects import ObjectID

        return ObjectID(sha.encode()) in self._repo.object_store

    def _commit(self, sha: str) -> Commit:
        """Return the commit object of an id, through annotated tags. Raises BadTask for another object."""
        from dulwich.objects import Commit, Tag

        target = self._repo[sha.encode()]
        while isinstance(target, Tag):
            target = self._repo[target.object[1]]
        if not isinstance(target, Commit):
            raise BadTask(f"{sha} is a {target.type_name.decode()}, not a commit")
        return target


def _stored(store: Any, new: Any) -> Any:
    """Add an object to the store and return its id."""
    store.add_object(new)
    return new.id


def _client(access: GitAccess, command: str, stack: ExitStack, *, bounded: bool) -> tuple[GitClient, str]:
    """Return the dulwich client of an address, and the path for it. Packs are whole if `bounded`: dulwich spools thin ones."""
    from dulwich import client

    if access.local is not None:
        if not access.local.exists():
            _create_local(access.local)
        return client.LocalGitClient(), str(access.local)
    if access.url.startswith(("http://", "https://")):
        pool = stack.enter_context(_pool(access))
        user, password = access.username or None, access.password or None

        return client.HttpGitClient(access.url, thin_packs=not bounded, pool_manager=pool, username=user, password=password), ""
    if access.is_ssh:
        return client.get_transport_and_path(access.url, thin_packs=not bounded, ssh_command=command)
    return client.get_transport_and_path(access.url, thin_packs=not bounded)


@contextmanager
def _pool(access: GitAccess) -> Iterator[urllib3.PoolManager | AuthCallbackPoolManager]:
    """Yield connections to a Git server, and close all of them at the end: dulwich leaves refused answers open."""
    import urllib3
    from dulwich.client import default_urllib3_manager

    answers: list[urllib3.BaseHTTPResponse] = []

    class Direct(urllib3.PoolManager):
        def urlopen(self, method: str, url: str, redirect: bool = True, **more: Any) -> urllib3.BaseHTTPResponse:  # type: ignore[override]  # the wider form of its base
            answers.append(super().urlopen(method, url, redirect, **more))
            return answers[-1]

    class Proxied(Direct, urllib3.ProxyManager):
        """A pool that goes through the proxy that the environment names."""

    pool = default_urllib3_manager(None, Direct, Proxied, base_url=access.url)
    pool.pool_classes_by_scheme = bounded_answers.pool_classes(timeouts.GIT_READ)  # type: ignore[union-attr]  # Direct
    if access.ca:
        pool.connection_pool_kw["ssl_context"] = certificates.trusting_context(access.ca)
    pool.connection_pool_kw["timeout"] = urllib3.Timeout(connect=timeouts.GIT_CONNECT, read=timeouts.GIT_READ)
    pool.connection_pool_kw["retries"] = urllib3.Retry(connect=2, read=0, redirect=3, other=0, backoff_factor=0.5)
    try:
        yield pool
    finally:
        for answer in answers:
            answer.close()
        pool.clear()


def _create_local(place: Path) -> None:
    """Create the bare repository of a rehearsal, unless another step has done so."""
    import shutil

    place.parent.mkdir(parents=True, exist_ok=True)
    with TemporaryDirectory(prefix=".", dir=place.parent) as folder:
        git_objects.create_bare(Path(folder, "new")).close()
        try:
            # renamed when complete, so that no other step sees half a repository
            Path(folder, "new").rename(place)
        except OSError:
            if not place.exists():
                raise
            shutil.rmtree(Path(folder, "new"))


# ---- errors --------------------------------------------------------------------------------------------------------------------


@contextmanager
def _translated(access: GitAccess) -> Iterator[None]:
    """Turn errors of dulwich, urllib3 and the system within the block into errors of bringup about the repository."""
    import urllib3
    from dulwich import client, errors

    where = git_access.without_credentials(access.url)
    try:
        yield
    except StepError:
        raise
    except (client.HTTPUnauthorized, client.HTTPProxyUnauthorized) as error:
        why = "the credentials are refused" if access.username else "it asks for credentials"
        raise git_errors.permission_error(where, why, access.keys) from error
    except errors.NotGitRepository as error:
        raise BadTask(
            f"{where}: there is no Git repository, or these credentials do not see it", hint=access.keys.check_address
        ) from error
    except errors.HangupException as error:
        lines = b"\n".join(error.stderr_lines or []).decode(errors="replace")
        raise git_errors.error_for(where, lines.strip() or "the server hung up", access.keys) from error
    except errors.GitProtocolError as error:
        raise git_errors.error_for(where, str(error), access.keys) from error
    except urllib3.exceptions.HTTPError as error:
        raise Unreachable(f"{where}: {error}", hint=git_errors.CHECK_WAY) from error
    except OSError as error:
        raise git_errors.lost(where, error) from error
