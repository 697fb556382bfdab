"""Pushes of OCI archives to a factory's registry, by the distribution specification, from the machine of an admin.

Source: https://github.com/opencontainers/distribution-spec/blob/main/spec.md#pushing-manifests
"""

import json
import os
import re
import tarfile
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any
from urllib.parse import urlencode, urljoin, urlsplit

import urllib3

from steps.clients import bounded_answers, certificates
from steps.contract.exit import ExitCode
from steps.errors import StepError
from workflows.engines import run_secrets
from workflows.spec import FactorySpec, Issue, SecretRef
from workflows.spec.pipelines.factory_spec import BuilderImage
from workflows.stages.host_access import secret_file

INDEX = "application/vnd.oci.image.index.v1+json"
MANIFEST = "application/vnd.oci.image.manifest.v1+json"
LARGEST_DOCUMENT, MOST_BLOBS = 4 << 20, 500
"""Largest index or manifest in bytes (the limit of registries), and most blobs of an image."""
LONGEST_ANSWER = 300.0
"""Seconds within which a whole answer must come; a registry may check a large blob before it answers."""
SECONDS = urllib3.Timeout(connect=10, read=300)
RULE, SOURCE = "builder_images", "https://github.com/opencontainers/image-spec/blob/main/image-layout.md"
_DIGEST = re.compile(r"sha256:[0-9a-f]{64}")


class NotPushed(ValueError):
    """Error for an archive that is no OCI image, or that the registry did not take."""

    exit_code = ExitCode.GATE_FAILED
    hint = "the factory is built; `bringup factory up` pushes what is missing"


class NoArchive(ValueError):
    """Error for archives of a spec that do not exist, found before anything is built or removed."""


class UnboundedAnswer(NotPushed):
    """Error for an answer that no registry gives: too large, too slow, or compressed although nobody asked for that."""


@dataclass(frozen=True, kw_only=True)
class RegistryAnswer:
    """The answer to one request: its status, headers and bounded body."""

    status: int
    headers: Mapping[str, str]
    data: bytes


@dataclass(frozen=True, kw_only=True)
class PushedImage:
    """An image in the registry: its reference, its digest, and how many blobs were uploaded; 0 if all were there."""

    reference: str
    digest: str
    uploaded: int

    @property
    def sentence(self) -> str:
        """Return what was done, as one line."""
        how = f"pushed with {self.uploaded} new blobs" if self.uploaded else "is in the registry already"
        return f"{self.reference} {how}: {self.digest}"


def missing_archives(spec: FactorySpec, folder: Path) -> Iterator[Issue]:
    """Yield a warning for each image of a spec whose archive does not exist below `folder`.

    A spec may be checked where its archives are not built; `factory up` refuses to start without them.
    """
    for index, image in enumerate(spec.registry.images):
        if not (folder / image.archive).is_file():
            problem, fix = f"there is no file {image.archive}", "build the archive, or remove the image"
            yield Issue(RULE, "warning", f"registry.images[{index}].archive", problem, fix, SOURCE)


def require_archives(spec: FactorySpec, folder: Path) -> None:
    """Raise NoArchive if an archive of the spec does not exist."""
    if issues := list(missing_archives(spec, folder)):
        raise NoArchive("; ".join(f"{issue.path}: {issue.problem}" for issue in issues))


@dataclass(frozen=True, kw_only=True)
class RegistryEndpoint:
    """The registry that pushes go to: its URL, the name and CA certificates of its own certificate, and a login.

    Without `name` the registry speaks HTTP; without `authorities` those that this machine trusts verify its certificate.
    """

    url: str
    name: str = ""
    authorities: tuple[str, ...] = ()
    login: str = ""

    def connect(self) -> urllib3.PoolManager:
        """Return a pool of connections that verify the certificate and log in."""
        headers = urllib3.make_headers(basic_auth=self.login) if self.login else {}
        verified: dict[str, Any] = {}
        if self.name:
            context = certificates.trusting_context(self.authorities) if self.authorities else None
            # an address leads to the registry, whose certificate has its name
            names = {"server_hostname": self.name, "assert_hostname": self.name}
            verified = {"cert_reqs": "CERT_REQUIRED", "ssl_context": context, **names}
        pool = urllib3.PoolManager(1, headers=headers, retries=False, timeout=SECONDS, **verified)
        pool.pool_classes_by_scheme = bounded_answers.pool_classes(LONGEST_ANSWER)
        return pool


def endpoint(spec: FactorySpec, folder: Path, environ: Mapping[str, str]) -> RegistryEndpoint:
    """Return the registry's endpoint on a factory's first machine. Raises SecretMissing.

    `folder` is that of the spec, where its secret files lie; `environ` has its secret variables.
    """
    registry, machine = spec.registry, spec.cluster.machines[0]
    host = f"[{machine.address}]" if ":" in machine.address else machine.address
    if registry.tls is None:
        return RegistryEndpoint(url=f"http://{host}:{registry.node_port}")

    def text(name: str, reference: SecretRef, field: str = "") -> str:
        file = secret_file(name, reference, field)
        return run_secrets.check_secret(file, run_secrets.read_secret(file, folder, environ)).decode().strip()

    name, ca, login = "registry_ca", registry.tls.ca, registry.login
    bodies = certificates.check_certificates(text(name, ca, "registry.tls.ca"), name, "registry.tls.ca") if ca else ()
    password = text("registry_login_password", login.password) if login else ""
    return RegistryEndpoint(
        url=f"https://{host}:{registry.node_port}",
        name=registry.tls.name,
        authorities=bodies,
        login=f"{login.username}:{password}" if login else "",
    )


def push_images(spec: FactorySpec, folder: Path) -> Iterator[PushedImage]:
    """Push each image of a spec and yield it. Archives are looked up from `folder`. Raises NotPushed and SecretMissing.

    A registry with TLS is asked once even if there is no image: the programs of the factory's own check verify no certificate.
    """
    if spec.registry.images or spec.registry.tls:
        target = endpoint(spec, folder, os.environ)
        require_verified(target)
        for image in spec.registry.images:
            yield push(target, folder / image.archive, image)


def require_verified(target: RegistryEndpoint) -> None:
    """Raise NotPushed unless the registry answers, with a certificate that nodes accept, and takes the login."""
    try:
        with target.connect() as http:
            answer = send(http, "GET", f"{target.url}/v2/")
    except urllib3.exceptions.SSLError as error:
        advice = certificates.advice("registry.tls.ca")
        raise NotPushed(f"nodes cannot pull from {target.url} as {target.name}: {error}; {advice}") from error
    except urllib3.exceptions.HTTPError as error:
        raise NotPushed(f"the registry at {target.url} does not answer: {error}") from error
    _require(answer, 200, "GET /v2/")


def push(target: RegistryEndpoint, archive: Path, image: BuilderImage) -> PushedImage:
    """Push the image of an OCI archive under its name and tag. Raises NotPushed."""
    try:
        with tarfile.open(archive) as opened, target.connect() as http:
            upload = _Upload(http, target.url, image.name, opened)
            digest = upload.tagged(image.tag)
    except (OSError, tarfile.TarError, KeyError, TypeError, ValueError) as error:
        if isinstance(error, NotPushed):
            raise
        raise NotPushed(f"{archive} is no OCI archive that can be pushed: {error}") from error
    except urllib3.exceptions.HTTPError as error:
        raise NotPushed(f"{target.url} does not take {image.name}:{image.tag}: {error}") from error
    return PushedImage(reference=f"{image.name}:{image.tag}", digest=digest, uploaded=upload.count)


def archive_digest(archive: Path) -> str:
    """Return the digest of the only image in an OCI archive. Raises NotPushed."""
    try:
        with tarfile.open(archive) as opened:
            return _only_image(opened)[0]
    except (OSError, tarfile.TarError, KeyError, TypeError, ValueError) as error:
        raise NotPushed(f"{archive} is no OCI archive that can be pushed: {error}") from error


def _only_image(archive: tarfile.TarFile) -> tuple[str, str]:
    """Return the digest and the media type of the only image in an archive. Raises NotPushed, and errors of a broken archive."""
    manifests = _document(archive, "index.json")["manifests"]
    if len(manifests) != 1:
        raise NotPushed(f"the archive's index has {len(manifests)} images, and one is expected")
    return _checked(manifests[0]["digest"]), str(manifests[0].get("mediaType", MANIFEST))


def _document(archive: tarfile.TarFile, name: str) -> dict[str, Any]:
    with _member(archive, name) as stream:
        document = json.loads(stream.read(LARGEST_DOCUMENT))
    if not isinstance(document, dict):
        raise NotPushed(f"{name} of the archive is no JSON object")
    return document


def _member(archive: tarfile.TarFile, name: str) -> IO[bytes]:
    stream = archive.extractfile(archive.getmember(name))
    if stream is None:
        raise NotPushed(f"{name} of the archive is no file")
    return stream


class _Upload:
    """An upload of one archive to one repository; `count` is the number of blobs that were sent."""

    def __init__(self, http: urllib3.PoolManager, registry: str, name: str, archive: tarfile.TarFile) -> None:
        self._http, self._registry, self._base, self._archive = http, registry, f"{registry}/v2/{name}", archive
        self.count = 0

    def tagged(self, tag: str) -> str:
        """Upload the archive's only image, point the tag at it, and return its digest."""
        digest, kind = _only_image(self._archive)
        self._manifest(digest, kind, tag)
        return digest

    def _manifest(self, digest: str, kind: str, reference: str) -> None:
        """Upload what a manifest or an index refers to, then the document itself under a tag or its digest."""
        document = _document(self._archive, f"blobs/{digest.replace(':', '/')}")
        if kind == INDEX:
            for entry in document["manifests"][:MOST_BLOBS]:
                self._manifest(_checked(entry["digest"]), MANIFEST, entry["digest"])
        else:
            for entry in [document["config"], *document["layers"]][:MOST_BLOBS]:
                self._blob(_checked(entry["digest"]))
        with _member(self._archive, f"blobs/{digest.replace(':', '/')}") as stream:
            data = stream.read(LARGEST_DOCUMENT)
        answer = send(self._http, "PUT", f"{self._base}/manifests/{reference}", body=data, headers=self._headers(kind))
        _require(answer, 201, f"manifest {reference}")

    def _blob(self, digest: str) -> None:
        if send(self._http, "HEAD", f"{self._base}/blobs/{digest}").status == 200:
            return
        begun = send(self._http, "POST", f"{self._base}/blobs/uploads/")
        _require(begun, 202, "begin of an upload")
        location = begun.headers.get("Location", "")
        if not (place := on_same_host(self._registry, location)):
            raise NotPushed(f"the registry at {self._registry} wants uploads at {urljoin(self._registry, location)[:200]}")
        target = f"{place}{'&' if urlsplit(place).query else '?'}{urlencode({'digest': digest})}"
        name = f"blobs/{digest.replace(':', '/')}"
        headers = self._headers("application/octet-stream") | {"Content-Length": str(self._archive.getmember(name).size)}
        with _member(self._archive, name) as stream:
            _require(send(self._http, "PUT", target, body=stream, headers=headers), 201, f"blob {digest}")
        self.count += 1

    def _headers(self, kind: str) -> dict[str, str]:
        """Return the headers of a request with a body: urllib3 sends the pool's own with requests alone that name none."""
        return {**self._http.headers, "Content-Type": kind}


def _checked(digest: object) -> str:
    """Return a digest that may become a path. Raises NotPushed for any other text."""
    if not isinstance(digest, str) or not _DIGEST.fullmatch(digest):
        raise NotPushed(f"the archive names {str(digest)[:80]!r}, which is no sha256 digest")
    return digest


def send(http: urllib3.PoolManager, method: str, url: str, **more: Any) -> RegistryAnswer:
    """Send a request to a registry and return its answer. Raises UnboundedAnswer, and errors of urllib3."""
    answer = http.request(method, url, preload_content=False, **more)
    try:
        deadline = time.monotonic() + LONGEST_ANSWER
        limits: dict[str, Any] = {"most_bytes": LARGEST_DOCUMENT, "deadline": deadline}
        data = b"" if method == "HEAD" else bounded_answers.read(answer, f"{method} {url}"[:300], **limits)
    except StepError as error:
        raise UnboundedAnswer(str(error)) from error
    finally:
        answer.release_conn()
    return RegistryAnswer(status=answer.status, headers=answer.headers, data=data)


def on_same_host(url: str, link: str) -> str:
    """Return the address to which a link in the answer of `url` leads; empty if that is another host, which gets no login.

    A registry behind a wrong address names another host. One behind a proxy with TLS often names http, where the login would go in
    plain text, so the scheme stays that of `url`.
    """
    place, origin = urlsplit(urljoin(url, link)), urlsplit(url)
    return place._replace(scheme=origin.scheme).geturl() if place.netloc == origin.netloc else ""


def _require(answer: RegistryAnswer, status: int, what: str) -> None:
    if answer.status != status:
        text = answer.data[:200].decode(errors="replace")
        raise NotPushed(f"the registry answered {answer.status} in place of {status} to {what}: {text}")
