"""The Git client against real repositories: on disk, and over HTTP behind a password, with /usr/bin/git as the peer that checks."""

import base64
import errno
import hashlib
import os
import shutil
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from wsgiref.simple_server import WSGIRequestHandler, WSGIServer, make_server

import pytest
from dulwich.refs import Ref
from dulwich.repo import Repo
from dulwich.server import BackendRepo, DictBackend, UploadPackHandler
from dulwich.web import make_wsgi_chain

import steps
from steps.clients.environment import Environment
from steps.clients.git import errors, git_access, repositories
from steps.clients.git.errors import DELIVERY, Raced
from steps.clients.git.git_access import GitAccess
from steps.clients.git.repositories import Author, Git
from steps.contract import delivery
from steps.errors import BadTask, Conflict, Refused, StoreBusy, Unreachable

AUTHOR = Author(name="bringup", mail="gpu@example.org", when=1_795_000_000)
PASSWORD = "canary-7f3a9b2c1d"
GIT = shutil.which("git")


def program(*arguments: str, cwd: Path) -> str:
    """The git program: a peer that shares no code with the client."""
    done = subprocess.run(["git", *arguments], cwd=cwd, capture_output=True, text=True, check=True, timeout=30)
    return done.stdout.strip()


@pytest.fixture
def bare(tmp_path: Path) -> Path:
    """An empty bare repository."""
    folder = tmp_path / "server.git"
    folder.mkdir()
    Repo.init_bare(str(folder), default_branch=b"main").close()
    return folder


@pytest.fixture
def access(bare: Path) -> GitAccess:
    return GitAccess(url="https://git.example.org/apps.git", local=bare)


def publish(repo: Git, files: dict[str, str | None], *, branch: str = "main", tag: str = "") -> str:
    before = repo.tip(branch)
    made = repo.commit(before, files, "a change", AUTHOR)
    updates = {f"refs/heads/{branch}": (before, made)} | ({f"refs/tags/{tag}": ("", made)} if tag else {})
    repo.push(updates)
    return made


KILLED = """
import sys
from pathlib import Path
from steps.clients.git import repositories
from steps.clients.git.git_access import GitAccess
with repositories.open_repository(GitAccess(url="https://git.example.org/apps.git", local=Path(sys.argv[1]))):
    print("open", flush=True)
    sys.stdin.read()
"""


def test_the_place_of_a_killed_client_goes_with_the_next(bare: Path, tmp_path: Path) -> None:
    """A client removes the folder that a killed client left in TMPDIR, even if that path is too long for a socket."""
    place = tmp_path / ("long-" * 12)
    place.mkdir()
    environment = os.environ | {"TMPDIR": str(place), "PYTHONPATH": str(Path(steps.__file__).parents[1])}
    command = [sys.executable, "-c", KILLED, str(bare)]
    for _ in range(2):
        with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=environment) as child:
            assert child.stdout is not None
            assert child.stdout.readline() == b"open\n"
            child.kill()
        assert len(list(place.iterdir())) == 1
    subprocess.run(command, stdin=subprocess.DEVNULL, env=environment, check=True)
    assert not list(place.iterdir())


# ---- reading and writing -------------------------------------------------------------------------------------------------------


def test_what_is_pushed_is_what_git_shows(access: GitAccess, bare: Path) -> None:
    with repositories.open_repository(access) as repo:
        assert repo.tip("main") == ""
        assert repo.resolve("v1") == ""
        made = publish(repo, {"apps/a.yaml": "a: 1\n", "apps/deep/b.yaml": "b: 2\n", "README": "site\n"}, tag="v1")
        assert repo.read(made, "apps") == {"apps/a.yaml": "a: 1\n", "apps/deep/b.yaml": "b: 2\n"}
    if GIT:
        assert program("rev-parse", "main", "v1", cwd=bare).split() == [made, made]
        assert program("show", "main:apps/deep/b.yaml", cwd=bare) == "b: 2"
        assert (
            program("log", "-1", "--format=%an <%ae> %at %s", "main", cwd=bare) == "bringup <gpu@example.org> 1795000000 a change"
        )
        program("fsck", "--strict", cwd=bare)


def test_only_what_is_named_changes(access: GitAccess) -> None:
    with repositories.open_repository(access) as repo:
        publish(repo, {"apps/a.yaml": "1", "apps/old.yaml": "1", "other/c": "1"})
    with repositories.open_repository(access) as repo:
        made = publish(repo, {"apps/a.yaml": "2", "apps/old.yaml": None, "apps/new/d.yaml": "1"})
        assert repo.read(made) == {"apps/a.yaml": "2", "apps/new/d.yaml": "1", "other/c": "1"}


def test_history_is_not_fetched_and_still_extended(access: GitAccess, bare: Path) -> None:
    for number in range(3):
        with repositories.open_repository(access) as repo:
            publish(repo, {"count": str(number)})
    with Repo(str(bare)) as stored:
        head = stored[stored.refs[Ref(b"refs/heads/main")]]
        assert len(list(stored.get_walker(include=[head.id]))) == 3


def test_a_commit_and_an_annotated_tag_are_found(access: GitAccess, bare: Path) -> None:
    with repositories.open_repository(access) as repo:
        first, second = publish(repo, {"a": "1"}), publish(repo, {"a": "2"})
    if GIT:
        program("-c", "user.name=x", "-c", "user.email=x@y", "tag", "-a", "-m", "said", "v1", first, cwd=bare)
    with repositories.open_repository(access) as repo:
        assert repo.resolve(first) == first
        assert repo.resolve(second) == second
        assert repo.read(first) == {"a": "1"}
        assert repo.resolve("0123456789" * 4) == ""
        assert not GIT or repo.resolve("v1") == first


def test_a_push_that_comes_too_late_is_told_and_changes_nothing(access: GitAccess) -> None:
    with repositories.open_repository(access) as one, repositories.open_repository(access) as two:
        before = one.tip("main")
        late = two.commit(two.tip("main"), {"b": "2"}, "two", AUTHOR)
        made = one.commit(before, {"a": "1"}, "one", AUTHOR)
        one.push({"refs/heads/main": (before, made)})
        with pytest.raises(Raced):
            two.push({"refs/heads/main": ("", late), "refs/tags/v1": ("", late)})
        assert one.refs() == {"refs/heads/main": made} | ({"HEAD": made} if "HEAD" in one.refs() else {})


def test_a_tag_is_never_moved(access: GitAccess) -> None:
    with repositories.open_repository(access) as repo:
        publish(repo, {"a": "1"}, tag="v1")
        with pytest.raises(Raced):
            publish(repo, {"a": "2"}, tag="v1")


# ---- over HTTP -----------------------------------------------------------------------------------------------------------------


class _Giving(UploadPackHandler):
    """As Git's own server: thin packs are an offer."""

    @classmethod
    def required_capabilities(cls) -> tuple[bytes, ...]:
        return tuple(one for one in super().required_capabilities() if one != b"thin-pack")


class _Quiet(WSGIRequestHandler):
    def log_message(self, *_: Any) -> None:
        """Say nothing."""


@pytest.fixture
def served(bare: Path) -> Iterator[dict[str, Any]]:
    """A Git server with basic authentication; `answer` in what it yields makes it answer with that status instead."""
    stored = Repo(str(bare))
    repositories: dict[str, BackendRepo] = {"/apps.git": stored}
    backend = DictBackend(repositories)
    git_server = make_wsgi_chain(backend, handlers={b"git-upload-pack": _Giving})
    wanted = "Basic " + base64.b64encode(f"ada:{PASSWORD}".encode()).decode()
    state: dict[str, Any] = {"answer": ""}

    def guarded(environ: dict[str, Any], start: Any) -> Any:
        status = state["answer"] or ("" if environ.get("HTTP_AUTHORIZATION") == wanted else "401 Unauthorized")
        if not status:
            return git_server(environ, start)
        start(status, [("WWW-Authenticate", 'Basic realm="apps"'), ("Content-Type", "text/plain")])
        return [f"no entry for {environ.get('HTTP_AUTHORIZATION')}".encode()]

    server = make_server("127.0.0.1", 0, guarded, WSGIServer, _Quiet)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    state["url"] = f"http://127.0.0.1:{server.server_port}/apps.git"
    yield state
    server.shutdown()
    thread.join()
    server.server_close()
    stored.close()


def test_http_with_the_password(served: dict[str, Any]) -> None:
    with repositories.open_repository(GitAccess(url=served["url"], username="ada", password=PASSWORD)) as repo:
        assert repo.tip("main") == ""
        made = publish(repo, {"apps/a.yaml": "1"}, tag="v1")
    with repositories.open_repository(GitAccess(url=served["url"], username="ada", password=PASSWORD)) as repo:
        assert repo.tip("main") == repo.resolve("v1") == repo.resolve(made) == made
        assert repo.read(made) == {"apps/a.yaml": "1"}
        second = publish(repo, {"apps/a.yaml": "2"})
        assert repo.resolve(made) == made != second


def test_more_than_there_is_room_for_is_refused_as_it_comes(served: dict[str, Any]) -> None:
    access = GitAccess(url=served["url"], username="ada", password=PASSWORD)
    large = "".join(hashlib.sha256(bytes([n])).hexdigest() for n in range(100))  # packs to half of its 6,400 bytes
    with repositories.open_repository(access) as repo:
        made = publish(repo, {"apps/a.yaml": "1", "films/large": large})
    with repositories.open_repository(access, 10_000) as repo:
        assert repo.tip("main") == made
    with (
        pytest.raises(BadTask, match=r"than 0\.000976562 MiB, all of its folders") as caught,
        repositories.open_repository(access, 1024) as repo,
    ):
        repo.tip("main")
    assert "a repository of their own" in (caught.value.hint or "")


@pytest.mark.parametrize(("user", "password"), [("ada", "wrong-canary-5d8e"), ("", "")])
def test_refused_credentials_are_a_matter_of_permission(served: dict[str, Any], user: str, password: str) -> None:
    with (
        pytest.raises(Refused) as caught,
        repositories.open_repository(GitAccess(url=served["url"], username=user, password=password)) as repo,
    ):
        repo.tip("main")
    assert "canary" not in f"{caught.value}{caught.value.hint}"
    assert served["url"] in str(caught.value)


@pytest.mark.parametrize(
    ("answer", "kind"),
    [("403 Forbidden", Refused), ("404 Not Found", BadTask), ("503 Busy", Unreachable), ("429 Slow", Unreachable)],
)
def test_what_the_server_answers_decides(served: dict[str, Any], answer: str, kind: type[Exception]) -> None:
    served["answer"] = answer
    with (
        pytest.raises(kind) as caught,
        repositories.open_repository(GitAccess(url=served["url"], username="ada", password=PASSWORD)) as repo,
    ):
        repo.refs()
    assert PASSWORD not in str(caught.value)


def test_a_server_that_is_away_is_temporary() -> None:
    with pytest.raises(Unreachable), repositories.open_repository(GitAccess(url="http://127.0.0.1:9/apps.git")) as repo:
        repo.refs()


# ---- what a server says, by its words ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "kind"),
    [
        ("git@git.example.org: Permission denied (publickey).", Refused),
        ("Host key verification failed.", BadTask),
        ("ssh: Could not resolve hostname git.example.org: Name or service not known", Unreachable),
        ("ssh: connect to host git.example.org port 22: Connection refused", Unreachable),
        ("Repository not found.", BadTask),
        ("the server hung up", Unreachable),
    ],
)
def test_words_of_ssh(text: str, kind: type[Exception]) -> None:
    assert type(errors.error_for("git@git.example.org:a/b", text, DELIVERY)) is kind


def test_an_unknown_host_key_is_no_matter_of_credentials() -> None:
    text = "No ED25519 host key is known for git.example.org and you have requested strict checking.\nHost key verification failed."
    hint = errors.error_for("git@git.example.org:a/b", text, DELIVERY).hint
    assert "delivery.argo_cd.known_hosts" in hint
    assert "credentials" not in hint


@pytest.mark.parametrize(
    ("problem", "kind"),
    [
        ("failed to update ref", Raced),
        ("non-fast-forward", Raced),
        ("pre-receive hook declined", Refused),
        ("protected branch hook declined", Refused),
        ("something of its own", Conflict),
    ],
)
def test_words_about_a_ref(problem: str, kind: type[Exception]) -> None:
    assert type(errors.refused_ref("refs/heads/main", problem)) is kind


# ---- access --------------------------------------------------------------------------------------------------------------------


def environment(folder: Path, git_root: Path | None = None) -> Environment:
    (folder / "secrets").mkdir(exist_ok=True)
    return Environment(
        tasks=folder, fleet=folder, secrets=folder / "secrets", store=folder, out=folder, run="r", engine="local", git_root=git_root
    )


def test_credentials_come_from_a_secret_file(tmp_path: Path) -> None:
    here = environment(tmp_path)
    (tmp_path / "secrets/both").write_text(f"ada:{PASSWORD}\n")
    (tmp_path / "secrets/token").write_text("glpat-123456\n")
    (tmp_path / "secrets/key").write_text("-----BEGIN OPENSSH PRIVATE KEY-----\nAAAA\n-----END OPENSSH PRIVATE KEY-----")
    url = "https://git.example.org/a.git"
    both, token = git_access.access_of(here, url, "both"), git_access.access_of(here, url, "token")
    assert (both.username, both.password, token.username, token.password) == ("ada", PASSWORD, "git", "glpat-123456")
    ssh = git_access.access_of(here, "git@git.example.org:a/b.git", "key", "hosts")
    assert (ssh.is_ssh, ssh.key, ssh.known_hosts) == (True, tmp_path / "secrets/key", tmp_path / "secrets/hosts")
    with git_access.ssh_command(ssh) as command:
        words = command.split()
        private = Path(words[words.index("-i") + 1])
        assert private.parts[1:4:2] == ("proc", "fd")  # in memory: after a kill nothing of it stays
        assert private.stat().st_mode & 0o777 == 0o600
        assert private.read_text() == (tmp_path / "secrets/key").read_text() + "\n"
        assert "StrictHostKeyChecking=yes" in words
        assert f"UserKnownHostsFile={tmp_path}/secrets/hosts" in words
    assert not private.exists()


def test_a_rehearsal_never_leaves_this_machine(tmp_path: Path) -> None:
    here = environment(tmp_path, tmp_path / "git")
    one = git_access.access_of(here, "https://Git.example.org/platform/apps.git", "not-there")
    two = git_access.access_of(here, "https://git.example.org/platform/apps")
    assert one.local == two.local == tmp_path / "git/git-example-org-platform-apps.git"
    with repositories.open_repository(one) as repo:
        made = publish(repo, {"a": "1"}, tag="v1")
    with repositories.open_repository(two) as repo:
        assert repo.resolve("v1") == made


@pytest.mark.parametrize(
    "url",
    [
        *("ext::sh -c id", "/etc", "https://ada:canary-1@git.example.org/a", "https://token@git.example.org/a", ""),
        *("-oProxyCommand=x", "-oProxyCommand=x@git.example.org:a", "ada@-oProxyCommand=x:a"),
        *("ssh://-oProxyCommand=x/a", "ssh://ada@-oProxyCommand=x/a", "ssh://-oProxyCommand=x@git.example.org/a"),
    ],
)
def test_addresses_that_are_none(tmp_path: Path, url: str) -> None:
    with pytest.raises(BadTask) as caught:
        git_access.access_of(environment(tmp_path), url)
    assert "canary" not in str(caught.value)


@pytest.mark.parametrize("name", ["../x", "a/b", ".hidden", "missing", "empty", "large"])
def test_secret_files_that_are_none(tmp_path: Path, name: str) -> None:
    here = environment(tmp_path)
    (tmp_path / "secrets/empty").write_text("\n")
    (tmp_path / "secrets/large").write_text("x" * 100_000)
    with pytest.raises(BadTask):
        git_access.access_of(here, "https://git.example.org/a.git", name)


def test_a_full_disk_is_no_matter_of_the_server() -> None:
    full = errors.lost("https://git.example.org/a.git", OSError(errno.ENOSPC, "No space left on device"))
    assert (type(full), "no room here" in str(full)) == (StoreBusy, True)
    assert type(errors.lost("https://git.example.org/a.git", OSError(errno.EPIPE, "Broken pipe"))) is Unreachable


def test_advice_names_no_key_of_a_spec_that_has_none() -> None:
    """A caller who says nothing of a spec gives no advice on Argo CD's."""
    assert GitAccess(url="https://git.example.org/a.git").keys.of("ca") == "ca"


@pytest.mark.parametrize("tail", [f"?private_token={PASSWORD}", f"#{PASSWORD}", f"?a=1\n#{PASSWORD}"])
def test_a_query_or_fragment_is_refused_and_never_shown(tail: str) -> None:
    with pytest.raises(BadTask, match=r"query or a fragment|no address") as raised:
        git_access.check(f"https://git.example.org/p.git{tail}", DELIVERY)
    assert PASSWORD not in str(raised.value)
    assert PASSWORD not in git_access.without_credentials(f"https://git.example.org/p.git{tail}")


@pytest.mark.parametrize(
    ("url", "host"),
    [
        ("git@Git.example.org:p.git", "git.example.org"),
        ("ssh://git@git.example.org/p.git", "git.example.org"),
        ("ssh://git@git.example.org:22/p.git", "git.example.org"),
        ("ssh://git.example.org:7999/p.git", "[git.example.org]:7999"),
    ],
)
def test_a_host_as_known_hosts_files_name_it(url: str, host: str) -> None:
    assert delivery.ssh_host(url) == host
