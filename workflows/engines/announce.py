"""Tells approvers that an approval waits: a command or a webhook, once for each approval, beside the run and never in its way."""

import threading
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import msgspec
from msgspec import Struct

from steps import timeouts
from steps.clients import process
from steps.contract import approval
from steps.errors import StepError
from workflows.engines import inputs
from workflows.engines.local.result import News, NodeNews, NodeStatus, wall_text
from workflows.spec import ClusterSpec
from workflows.spec.fields import SecretRef
from workflows.stages.access import SecretFile

Say = Callable[[str], None]
Claim = Callable[[str], bool]
"""Whether the announcement of this node (full name) is ours to make: true exactly once, whoever follows the run."""


class Channel(Struct, frozen=True, kw_only=True):
    """One way to tell: a command without a shell, which gets the message on standard input, or a URL to POST it to."""

    command: tuple[str, ...] = ()
    webhook: str = ""

    def __repr__(self) -> str:
        return f"Channel({self.command or 'webhook'})"  # such URLs are secrets


class Message(Struct, frozen=True, kw_only=True):
    """What approvers are told; `text` alone is what chat systems show."""

    text: str
    run: str
    cluster: str
    stage: str
    since: str
    approvers: tuple[str, ...]
    how: str


def channels(
    spec: ClusterSpec, folder: Path, environ: Mapping[str, str], read_key: Callable[[str, str], bytes] | None = None
) -> dict[str, tuple[Channel, tuple[str, ...]]]:
    """How approvals are announced, by the stage that waits, with the names of those who may answer.

    `read_key` reads a key of a Kubernetes Secret of home. Raises SecretMissing.
    """
    found = {}
    for one in spec.approvals:
        if one.announce is not None:
            url = _webhook(one.announce.webhook, folder, environ, read_key) if one.announce.webhook else ""
            names = tuple(approver.name for approver in one.approvers)
            found[str(one.before)] = (Channel(command=one.announce.command, webhook=url), names)
    return found


def _webhook(ref: SecretRef, folder: Path, environ: Mapping[str, str], read_key: Callable[[str, str], bytes] | None) -> str:
    name = "webhook of an announcement"
    if ref.secret is not None and read_key is not None:
        return read_key(ref.secret.name, ref.secret.key).decode().strip()
    secret, key = (ref.secret.name, ref.secret.key) if ref.secret else ("", "")
    file = SecretFile(name=name, path=ref.file or "", variable=ref.env or "", secret=secret, key=key)
    return inputs.secret(file, folder, environ).decode().strip()


class Announcer:
    """An observer of a run's news. Each announcement has a thread of its own; what goes wrong is a warning through `say`."""

    def __init__(
        self, run: str, cluster: str, channels: Mapping[str, tuple[Channel, tuple[str, ...]]], claim: Claim, say: Say
    ) -> None:
        self._run, self._cluster, self._channels, self._claim, self._say = run, cluster, channels, claim, say
        self._threads: list[threading.Thread] = []

    def observe(self, news: News) -> None:
        """Announce an approval that has just opened, or is open when the run is first looked at."""
        if not isinstance(news, NodeNews) or not news.waits or not news.node.name.startswith(approval.NODE_PREFIX):
            return
        stage = news.node.name.removeprefix(approval.NODE_PREFIX).replace("-", "_")
        if stage in self._channels:
            self._threads.append(threading.Thread(target=self._announce, args=(stage, news.node), daemon=True))
            self._threads[-1].start()

    def beside(self, observer: Callable[[News], None]) -> Callable[[News], None]:
        """An observer that tells this one and another."""

        def observe(news: News) -> None:
            observer(news)
            self.observe(news)

        return observe

    def close(self) -> None:
        """Give announcements that are under way their time."""
        for thread in self._threads:
            thread.join(timeouts.ANNOUNCE)

    def _announce(self, stage: str, node: NodeStatus) -> None:
        channel, approvers = self._channels[stage]
        how = f"bringup approve {self._run} --as NAME"
        since = wall_text(node.started)
        text = f"{self._cluster}: run {self._run} waits for an approval before {stage} since {since}: {how}"
        message = Message(text=text, run=self._run, cluster=self._cluster, stage=stage, since=since, approvers=approvers, how=how)
        try:
            problem = tell(channel, message) if self._claim(node.path) else ""
        except StepError as error:
            problem = str(error)
        if problem:
            self._say(f"warning: the approval before {stage} could not be announced: {problem}")


def tell(channel: Channel, message: Message) -> str:
    """Send it; why it did not arrive, empty when it did. Never says the URL."""
    data = msgspec.json.encode(message)
    if channel.command:
        done = process.run(channel.command, data=data, seconds=timeouts.ANNOUNCE)
        return "" if done.code == 0 else f"{channel.command[0]} ended with {done.code}: {done.err.strip()[-200:]}"
    import urllib3

    try:
        answer: Any = urllib3.PoolManager(1, retries=False).request(
            "POST", channel.webhook, body=data, headers={"Content-Type": "application/json"}, timeout=timeouts.ANNOUNCE
        )
    except urllib3.exceptions.HTTPError as error:
        return f"the webhook does not answer ({type(error).__name__})"
    return "" if answer.status < 300 else f"the webhook answered {answer.status}"


def local_claim(folder: Path) -> Claim:
    """A claim by a file in this folder, for runs that one machine knows."""

    def claim(node: str) -> bool:
        folder.mkdir(parents=True, exist_ok=True)
        try:
            (folder / node.replace("/", "_")).touch(exist_ok=False)
        except FileExistsError:
            return False
        return True

    return claim
