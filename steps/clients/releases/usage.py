"""Usage of published versions: which version each node reported to run, and which nodes run a version. Pure."""

from enum import StrEnum

from msgspec import Struct

from steps import timeouts
from steps.clients.releases import release_signatures, verification
from steps.clients.releases.release_kind import ReleaseKind, files_found
from steps.clients.releases.release_tree import ReleaseTree
from steps.contract import release_layout
from steps.contract.release_layout import Switch, UsageReport


class UsageState(StrEnum):
    """Comparison of the version that a node runs with the current one.

    `unknown`: no version in the tree. `unreadable`: the report cannot be read. `stranger`: the machine may not use this product, so
    no version is kept for it. `stale`: the last report is too old to tell whether the node still runs that version, or runs at all.
    """

    CURRENT = "current"
    OLDER = "older"
    NEWER = "newer"
    UNKNOWN = "unknown"
    UNREADABLE = "unreadable"
    STRANGER = "stranger"
    STALE = "stale"


class NodeUsage(Struct, frozen=True, kw_only=True):
    """Usage of one node: the product and version that it runs, and how that compares with the current version (`state`).

    `address` is the machine's, as reported, `at` the start of the use, `reported_at` the time of the last report (both UTC
    seconds), `age` the report's age in seconds. The clocks of the file server and of this machine may differ a little.
    """

    node: str
    product: str
    version: str
    state: UsageState
    address: str
    at: float
    reported_at: int
    age: int


class VersionRow(Struct, frozen=True, kw_only=True):
    """A published version, as a list of versions shows it.

    `digest` is its manifest's, `size` the bytes of all its files. `whole`: all files are there, as far as names and sizes tell.
    `switched` is the last switch to it (UTC seconds, 0: never) by the run or command `by`. `signature` is the state of its
    signatures. `nodes` reported to run it, `stale` ones among them too long ago.
    """

    product: str
    version: str
    digest: str
    size: int
    whole: bool
    current: bool
    switched: float
    by: str
    signature: str
    nodes: tuple[str, ...]
    stale: tuple[str, ...]


class VersionIndex(Struct, frozen=True, kw_only=True):
    """Index of a tree's versions by the digests that reports of nodes name; made once for any number of reports.

    `digests` are those of each version, empty for an unreadable manifest. Several versions may have one digest: the first in
    `order` counts, which begins with the current version and then the newest. `machines` may use the product; None: any.
    """

    order: tuple[str, ...]
    digests: dict[str, frozenset[str]]
    places: dict[str, int]
    machines: frozenset[str] | None

    def version_on(self, report: UsageReport) -> str:
        """Return the version that a node runs; empty if the tree has no such version.

        The named version counts, unless its digest is another one. A report without a name, as older releases send, or with a name
        that does not fit, is matched by a digest.
        """
        own = self.digests.get(report.version)
        if own is not None and (not own or not report.digest or report.digest in own):
            return report.version
        if report.version and own is None:
            return ""
        places = [self.places[digest] for digest in (report.digest, report.manifest) if digest in self.places]
        return self.order[min(places)] if places else ""

    def allows(self, report: UsageReport) -> bool:
        """Return True if the machine that sent the report may use the product."""
        return self.machines is None or report.machine in self.machines


def version_index(kind: ReleaseKind, tree: ReleaseTree) -> VersionIndex:
    """Return the index by which versions of a tree are found from the reports of nodes."""
    versions, current = tree.versions, tree.current
    order = tuple(dict.fromkeys((*((current,) if current in versions else ()), *reversed(versions))))
    digests: dict[str, frozenset[str]] = {}
    places: dict[str, int] = {}
    for place, version in enumerate(order):
        contents = kind.contents_of(tree, version)
        digests[version] = contents.digests | {tree.manifest_digest(version)} if contents else frozenset()
        for digest in digests[version]:
            places.setdefault(digest, place)
    return VersionIndex(order=order, digests=digests, places=places, machines=kind.machines(tree))


def usage_reports(kind: ReleaseKind, tree: ReleaseTree) -> tuple[UsageReport, ...]:
    """Return the reports of all nodes. An unreadable report names no version.

    Of several reports with one machine address only the last one counts, because a machine that gets another name leaves its
    earlier file behind.
    """
    if kind.usage is None:
        return ()
    reports = []
    for file, data in sorted(tree.nodes.items()):
        node, report = file.removesuffix(".json"), kind.usage(file, data)
        reports.append(report if report is not None and report.node == node else UsageReport(node=node))
    last = {report.machine: report for report in sorted(reports, key=lambda report: (reported_at(tree, report), report.at))}
    return tuple(report for report in reports if not report.machine or last[report.machine] is report)


def reported_at(tree: ReleaseTree, report: UsageReport) -> int:
    """Return when a node's report was written (UTC seconds); 0 if unknown, because its file was gone at once."""
    return tree.reported_at.get(f"{report.node}.json", 0)


def in_use(kind: ReleaseKind, tree: ReleaseTree) -> tuple[str, ...]:
    """Return the versions that nodes reported to run, which retention keeps.

    Reports of machines that may not use the product do not count, so that no stranger can keep versions alive.
    """
    reports = usage_reports(kind, tree)
    if not reports:
        return ()
    index = version_index(kind, tree)
    return tuple(sorted({index.version_on(report) for report in reports if index.allows(report)} - {""}))


def node_usage(
    kind: ReleaseKind, trees: tuple[ReleaseTree, ...], *, now: float, silence: float = timeouts.NODE_SILENCE
) -> tuple[NodeUsage, ...]:
    """Return a row for each node that reported, with the version that it runs.

    `trees` are the products of one release tree. A report that is older than `silence` seconds is stale, by the time of its file,
    whatever the node says.
    """
    if not trees:
        return ()
    products = [(tree.product, tree.current, version_index(kind, tree)) for tree in trees]
    rows = []
    for report in usage_reports(kind, trees[0]):
        product, version, state = "", report.version, UsageState.UNKNOWN if report.is_readable else UsageState.UNREADABLE
        for name, current, index in products:
            if running := index.version_on(report):
                product, version = name, running
                state = _compared(running, current) if index.allows(report) else UsageState.STRANGER
                break
        time = reported_at(trees[0], report)
        if now - time > silence and state not in (UsageState.UNREADABLE, UsageState.STRANGER):
            state = UsageState.STALE
        rows.append(
            NodeUsage(
                node=report.node,
                product=product,
                version=version,
                state=state,
                address=report.address,
                at=report.at,
                reported_at=time,
                age=max(0, int(now - time)),
            )
        )
    return tuple(rows)


def version_rows(
    kind: ReleaseKind, tree: ReleaseTree, signers: tuple[str, ...] = (), *, now: float, silence: float = timeouts.NODE_SILENCE
) -> tuple[VersionRow, ...]:
    """Return the versions of a product, the newest first. A node whose report is older than `silence` seconds is stale."""
    switched = {switch.to: switch for switch in tree.history}
    reports, index = usage_reports(kind, tree), version_index(kind, tree)
    running: dict[str, list[str]] = {}
    for report in reports:
        running.setdefault(index.version_on(report), []).append(report.node)
    stale = {report.node for report in reports if now - reported_at(tree, report) > silence}
    rows = []
    for version in reversed(tree.versions):
        switch, nodes = switched.get(version, Switch(to=version)), running.get(version, [])
        rows.append(
            VersionRow(
                product=tree.product,
                version=version,
                digest=tree.manifest_digest(version),
                size=sum(file.size for file in files_found(tree, version)),
                whole=verification.has_all_files(kind, tree, version),
                current=version == tree.current,
                switched=switch.at,
                by=switch.by,
                signature=release_signatures.state(kind, tree, version, signers),
                nodes=tuple(nodes),
                stale=tuple(node for node in nodes if node in stale),
            )
        )
    return tuple(rows)


def _compared(version: str, current: str) -> UsageState:
    if version == current:
        return UsageState.CURRENT
    return UsageState.OLDER if release_layout.number_of(version) < release_layout.number_of(current) else UsageState.NEWER
