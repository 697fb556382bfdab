"""Tables for people and scripts: the versions of a node image, and the version that each node runs. Pure."""

import msgspec
from msgspec import Struct

from steps import timeouts
from steps.clients.releases import usage
from steps.clients.releases.release_tree import ReleaseTree
from steps.clients.releases.usage import UsageState
from steps.nodeimage.contract.image_tests import ImageTestResult
from steps.nodeimage.publishing import image_kind, image_versions


class ImageVersion(Struct, frozen=True, kw_only=True):
    """Version in the list that `bringup image` shows: the fields of `usage.VersionRow`, and some of manifest and test results.

    `key` and `tools` (that packed it) are the manifest's; `origin` of the recipe, `tests` (task → results) and the end of the
    certificate for iPXE, `signed_until`, are of `tests.json`.
    """

    image: str
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
    key: str
    origin: str
    tools: dict[str, str]
    tests: dict[str, list[ImageTestResult]]
    signed_until: str


class NodeRow(Struct, frozen=True, kw_only=True):
    """Node in the list that `bringup image` shows: its image and version, and how that compares with the current one (`stand`).

    `at` is the time of its boot, `told` that of its last report (UTC seconds), `age` the report's age in seconds, `mac` its
    address.
    """

    node: str
    version: str
    stand: UsageState
    image: str
    at: float
    told: int
    age: int
    mac: str


def versions(
    tree: ReleaseTree, signers: tuple[str, ...] = (), *, now: float, silence: float = timeouts.NODE_SILENCE
) -> tuple[ImageVersion, ...]:
    """Return the versions of an image, the newest first. Nodes whose report is older than `silence` seconds are in `stale`."""
    rows = []
    for row in usage.version_rows(image_kind.image_kind(), tree, signers, now=now, silence=silence):
        image, tested = image_versions.manifest_of(tree, row.version), image_versions.published_test_results(tree, row.version)
        fields = msgspec.structs.asdict(row)
        fields["image"] = fields.pop("product")
        fields["whole"] = row.whole and bool(image_versions.scripts(tree, row.version))
        key, tools = (image.key, image.tools) if image else ("", {})
        until = tested.signed_until
        rows.append(ImageVersion(**fields, key=key, origin=tested.origin, tools=tools, tests=tested.results, signed_until=until))
    return tuple(rows)


def nodes(trees: tuple[ReleaseTree, ...], *, now: float, silence: float = timeouts.NODE_SILENCE) -> tuple[NodeRow, ...]:
    """Return a row for each node that reported, sorted by name; `trees` has the release folder as read for each image.

    A report that is older than `silence` seconds is stale.
    """
    return tuple(
        NodeRow(
            node=row.node,
            version=row.version,
            stand=row.state,
            image=row.product,
            at=row.at,
            told=row.reported_at,
            age=row.age,
            mac=row.address,
        )
        for row in usage.node_usage(image_kind.image_kind(), trees, now=now, silence=silence)
    )
