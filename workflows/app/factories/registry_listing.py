"""Images in a factory's registry, by the distribution specification: those that its spec does not push are lost with it.

Source: https://github.com/opencontainers/distribution-spec/blob/main/spec.md#listing-tags, and for the catalog
https://distribution.github.io/distribution/spec/api/#listing-repositories.
"""

import re
from collections.abc import Iterable, Iterator, Mapping

import msgspec
import urllib3
from msgspec import Struct

from steps.contract.canonical import UNREADABLE_JSON
from workflows.app.factories.registry_push import INDEX, MANIFEST, RegistryEndpoint, UnboundedAnswer, on_same_host, send
from workflows.spec.pipelines.factory_spec import BuilderImage

PAGE, MOST_NAMES = 500, 20_000
"""Names that are asked for at a time, and most repositories or tags that are read."""
MOST_PAGES = 1000
"""Most pages of one list: a registry may give fewer names at a time than it is asked for, and pages without any."""
CHECK = "bringup-check/"
"""Start of the repositories that the factory's own check pushes."""
_LINK = re.compile(r'<([^>]{1,2000})>;\s*rel="?next"?')
_NAME = re.compile(r"[a-z0-9]+([._-]+[a-z0-9]+)*(/[a-z0-9]+([._-]+[a-z0-9]+)*)*")
_SECONDS = urllib3.Timeout(connect=5, read=30)


class _Repositories(Struct, frozen=True):
    repositories: tuple[str, ...] | None = None


class _Tags(Struct, frozen=True):
    tags: tuple[str, ...] | None = None


class NotListed(ValueError):
    """Error for a registry that does not answer, or answers in another form than the specification says."""


def unplanned_images(target: RegistryEndpoint, images: Iterable[BuilderImage]) -> tuple[str, ...]:
    """Return the tagged images, NAME:TAG, in a registry that no entry of the spec pushes. Raises NotListed."""
    planned = {f"{image.name}:{image.tag}" for image in images}
    return tuple(sorted(reference for reference in references(target) if reference not in planned))


def overwritten_images(target: RegistryEndpoint, digests: Mapping[str, str]) -> tuple[str, ...]:
    """Return the images, NAME:TAG → digest of what the spec pushes, whose tags lead to something else. Raises NotListed."""
    try:
        with target.connect() as http:
            return tuple(
                reference for reference, digest in digests.items() if _digest(http, target.url, reference) not in ("", digest)
            )
    except urllib3.exceptions.HTTPError as error:
        raise NotListed(f"{target.url} does not answer: {error}") from error


def _digest(http: urllib3.PoolManager, registry: str, reference: str) -> str:
    """Return the digest that a tag leads to; empty if there is no such tag."""
    name, _, tag = reference.partition(":")
    headers = {**http.headers, "Accept": f"{INDEX}, {MANIFEST}"}
    answer = send(http, "HEAD", f"{registry}/v2/{name}/manifests/{tag}", headers=headers, timeout=_SECONDS)
    if answer.status not in (200, 404):
        raise NotListed(f"{registry} answered {answer.status} to HEAD of {reference}")
    return answer.headers.get("Docker-Content-Digest", "unknown") if answer.status == 200 else ""


def references(target: RegistryEndpoint, most_pages: int = MOST_PAGES) -> Iterator[str]:
    """Yield all tagged images, NAME:TAG, of a registry, without those of the factory's check. Raises NotListed."""
    try:
        with target.connect() as http:
            for name in _pages(http, target.url, f"/v2/_catalog?n={PAGE}", _Repositories, most_pages):
                if _NAME.fullmatch(name) and not name.startswith(CHECK):
                    tags = _pages(http, target.url, f"/v2/{name}/tags/list?n={PAGE}", _Tags, most_pages)
                    yield from (f"{name}:{tag}" for tag in tags)
    except urllib3.exceptions.HTTPError as error:
        raise NotListed(f"{target.url} does not answer: {error}") from error


def _pages(
    http: urllib3.PoolManager, registry: str, path: str, kind: type[_Repositories] | type[_Tags], most: int
) -> Iterator[str]:
    """Yield the names of a list, page by page. A repository without tags has none (404, or null)."""
    url, number = f"{registry}{path}", 0
    for _ in range(most):
        try:
            answer = send(http, "GET", url, timeout=_SECONDS)
        except UnboundedAnswer as error:
            raise NotListed(str(error)) from error
        if answer.status == 404 and kind is _Tags:
            return
        if answer.status != 200:
            raise NotListed(f"{registry} answered {answer.status} to GET {path}")
        for name in _names(answer.data, kind, path):
            if (number := number + 1) > MOST_NAMES:
                raise NotListed(f"{registry} lists more than {MOST_NAMES} names at {path}")
            yield name
        if not (url := _following(answer.headers.get("Link", ""), url)):
            return
    raise NotListed(f"{registry} gives the list at {path} in more than {most} pages")


def _names(data: bytes, kind: type[_Repositories] | type[_Tags], path: str) -> tuple[str, ...]:
    try:
        document = msgspec.json.decode(data, type=kind)
    except UNREADABLE_JSON as error:
        raise NotListed(f"the answer to GET {path} is no list of names: {error}") from error
    return (document.repositories if isinstance(document, _Repositories) else document.tags) or ()


def _following(link: str, url: str) -> str:
    """Return the address of the next page; empty after the last one, and if it leads to another host, which gets no login."""
    match = _LINK.search(link)
    following = on_same_host(url, match[1]) if match else ""
    return following if following != url else ""
