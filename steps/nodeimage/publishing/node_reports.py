"""Node images in rows for people and scripts: versions of an image, and the version that each node runs. Pure."""

import msgspec
from msgspec import Struct

from steps import timeouts
from steps.clients.releases import usage
from steps.clients.releases.release_tree import ReleaseTree
from steps.clients.releases.usage import UsageState
from steps.nodeimage.contract.image_tests import ImageTestResult
from steps.nodeimage.publishing import image_kind, image_versions


class ImageVersion(Struct, frozen=True, kw_only=True):
    """A version of an image: the fields of `usage.VersionRow`, and those of its manifest and its tests (key, origin of the recipe,
    tools that packed it, results of tests by task)."""

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


class NodeRow(Struct, frozen=True, kw_only=True):
    """A node: the version that it runs and of which image, how that compares with the current version (`stand`), time of its boot
    (`at`) and of its last report (`told`, UTC seconds both), age of the report in seconds, and its MAC address."""

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
    """Return the versions of an image, the newest first. A node whose report is older than `silence` seconds is stale."""
    rows = []
    for row in usage.version_rows(image_kind.image_kind(), tree, signers, now=now, silence=silence):
        image, tested = image_versions.manifest_of(tree, row.version), image_versions.published_test_results(tree, row.version)
        fields = msgspec.structs.asdict(row)
        fields["image"] = fields.pop("product")
        fields["whole"] = row.whole and bool(image_versions.scripts(tree, row.version))
        key, tools = (image.key, image.tools) if image else ("", {})
        rows.append(ImageVersion(**fields, key=key, origin=tested.origin, tools=tools, tests=tested.results))
    return tuple(rows)


def nodes(trees: tuple[ReleaseTree, ...], *, now: float, silence: float = timeouts.NODE_SILENCE) -> tuple[NodeRow, ...]:
    """Return the nodes that reported, by name. `trees` has one part of the tree for each image. A report that is older than
    `silence` seconds is stale."""
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
