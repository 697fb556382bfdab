"""Certificates that a site gives: whatever is none is refused, by the field of the spec that gave it, and nothing of it is said."""

import shutil
from pathlib import Path

import pytest

from steps.clients import certificates
from steps.contract import delivery
from steps.errors import BadTask
from tests.unit.steps import authority

CANARY = "canary-5c1e"
FIELD = "approvals[2].announce.ca"
PEM_HINT = f"{FIELD} takes certificates in PEM: openssl x509 -in FILE -noout -subject reads a good one"


def refused(text: str) -> tuple[str, str]:
    """Sentence and hint."""
    with pytest.raises(BadTask) as caught:
        certificates.check_certificates(text, "chat_ca", FIELD)
    assert CANARY not in f"{caught.value}{caught.value.hint}"
    return str(caught.value), caught.value.hint


@pytest.mark.parametrize(
    ("text", "said", "hint"),
    [
        (f"ada:{CANARY}", "holds no certificate", PEM_HINT),
        (delivery.pem("AAAABBBBCCCC"), "certificate 1 in the secret file chat_ca is PEM in form only", PEM_HINT),
        (f"-----BEGIN CERTIFICATE-----\n{CANARY}", "holds no certificate", PEM_HINT),
        (
            f"-----BEGIN EC PRIVATE KEY-----\n{CANARY}\n-----END EC PRIVATE KEY-----\n",
            "holds a private key",
            f"{FIELD} takes certificates only",
        ),
        (CANARY * 10_000, "is larger than 65536 bytes", f"{FIELD} takes the server's CA alone"),
    ],
    ids=["words", "form", "cut", "key", "large"],
)
def test_what_is_none_is_refused_by_the_field_that_gave_it(text: str, said: str, hint: str) -> None:
    sentence, fix = refused(text)
    assert said in sentence
    assert fix == hint


@pytest.mark.skipif(shutil.which("openssl") is None, reason="openssl is not installed: no certificate to read")
def test_good_ones_are_read_and_no_bad_one_hides_behind_them(tmp_path: Path) -> None:
    one = authority.root(tmp_path, "one")
    both = one.read_text() + authority.root(tmp_path, "two").read_text()
    assert len(certificates.check_certificates(f"words of a person\n{both}", "chat_ca", FIELD)) == 2
    assert refused(both + delivery.pem("AAAABBBBCCCC"))[0].startswith("certificate 3 in")
    assert "PEM in form only" in refused(both + one.read_text()[:80])[0]
    assert "private key" in refused(both + one.with_suffix(".key").read_text())[0]
