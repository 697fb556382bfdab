"""Signatures that iPXE checks: made at publication, verified by openssl, loaded by boot scripts; bad keys publish nothing."""

import datetime
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat
from msgspec.structs import replace

from steps.clients import cms_signature
from steps.errors import BadTask
from steps.nodeimage.contract.boot_tree import PublishTarget
from steps.nodeimage.publishing import node_reports
from steps.nodeimage.publishing.image_kind import local_tree
from steps.stages.image_publish import gate
from steps.stages.image_publish.contract import PublishedExpectation
from tests.unit.clients.published.published_trees import URL, image, place, published, wrong

CODE, SERVER = x509.oid.ExtendedKeyUsageOID.CODE_SIGNING, x509.oid.ExtendedKeyUsageOID.SERVER_AUTH


def certificate(folder: Path, usage: x509.ObjectIdentifier = CODE, *, days: int = 90, kind: str = "RSA") -> Path:
    """Return the folder, with a secret `boot` that has a key and two certificates for so many days, the first also in `crt`."""
    folder.mkdir()
    key = rsa.generate_private_key(65537, 2048) if kind == "RSA" else ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(x509.oid.NameOID.COMMON_NAME, "boot")])
    today = datetime.datetime.now(datetime.UTC)
    made = x509.CertificateBuilder().subject_name(name).issuer_name(name).public_key(key.public_key()).serial_number(1)
    made = made.not_valid_before(today - datetime.timedelta(days=9)).not_valid_after(today + datetime.timedelta(days=days))
    signed = made.add_extension(x509.ExtendedKeyUsage([usage]), critical=False).sign(key, hashes.SHA256())
    (folder / "crt").write_bytes(signed.public_bytes(Encoding.PEM))
    text = key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
    authority = made.sign(key, hashes.SHA256()).public_bytes(Encoding.PEM)
    (folder / "boot").write_bytes(text + (folder / "crt").read_bytes() + authority)
    return folder


@pytest.fixture(scope="module")
def secrets(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return certificate(tmp_path_factory.mktemp("boot") / "secrets")


def signing(root: Path) -> PublishTarget:
    root.mkdir()
    return replace(place(root), boot_key="boot")


def test_boot_scripts_verify_what_the_publication_signed(secrets: Path, tmp_path: Path) -> None:
    where = signing(tmp_path / "tree")
    done = published(where, image(tmp_path / "a", "a"), secrets=secrets)
    until = f"{x509.load_pem_x509_certificate((secrets / 'crt').read_bytes()).not_valid_after_utc:%Y-%m-%d %H:%M:%SZ}"
    assert done.signed_until == until
    assert f"verified by iPXE until {until}" in gate.tree(done, PublishedExpectation(groups=("default", "gpu"))).reason
    assert [row.signed_until for row in node_reports.versions(local_tree(tmp_path / "tree").look("compute"), now=0.0)] == [until]
    folder = tmp_path / "tree/compute/current"
    for name in ("vmlinuz", "initrd.img"):
        signature = (folder / f"{name}.sig").read_bytes()
        assert cms_signature.verify(folder / name, signature, secrets / "crt") == ""
        assert cms_signature.verify(folder / "root.squashfs", signature, secrets / "crt") != ""
    lines = (folder / "boot/default.ipxe").read_text().splitlines()
    at = f"{URL}/compute/versions/{done.version}"
    assert lines[lines.index("imgfree") + 3 : lines.index("imgfree") + 8] == [
        f"initrd --name initrd.img {at}/initrd.img || goto failed",
        f"imgverify vmlinuz {at}/vmlinuz.sig || goto failed",
        f"imgverify initrd.img {at}/initrd.img.sig || goto failed",
        "imgtrust --permanent || goto failed",
        "echo bringup: starts the kernel",
    ]
    assert wrong(tmp_path / "tree") == []
    assert published(where, image(tmp_path / "a", "a"), secrets=secrets).unchanged
    plain = published(place(tmp_path / "tree"), image(tmp_path / "a", "a"))
    assert not plain.unchanged
    assert "imgverify" not in (folder / "boot/default.ipxe").read_text()


def test_a_signature_of_other_bytes_is_found(secrets: Path, tmp_path: Path) -> None:
    file = tmp_path / "kernel"
    file.write_bytes(b"a" * 5000)
    signature = cms_signature.sign(file, secrets / "boot")
    file.write_bytes(b"b" * 5000)
    assert "verif" in cms_signature.verify(file, signature, secrets / "crt")


@pytest.mark.parametrize(
    ("usage", "days", "kind", "problem"),
    [
        (SERVER, 90, "RSA", "has no certificate with the extended key usage codeSigning"),
        (CODE, -1, "RSA", "has expired"),
        (CODE, 29, "RSA", "ends within 30 days: 20"),
        (CODE, 90, "elliptic curves", "the key in boot is no RSA key"),
        (None, 90, "RSA", "there is no secret file boot"),
    ],
)
def test_a_key_that_ipxe_would_refuse_publishes_nothing(
    usage: x509.ObjectIdentifier | None, days: int, kind: str, problem: str, tmp_path: Path
) -> None:
    secrets = certificate(tmp_path / "secrets", usage, days=days, kind=kind) if usage else tmp_path / "none"
    with pytest.raises(BadTask, match=problem):
        published(signing(tmp_path / "tree"), image(tmp_path / "a", "a"), secrets=secrets)
    assert list((tmp_path / "tree").iterdir()) == []
