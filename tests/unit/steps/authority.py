"""CAs that openssl makes for a test, and the certificates that they sign for 127.0.0.1."""

import subprocess
from pathlib import Path

_KEY = ("-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-days", "2")
_SERVER = "subjectAltName=IP:127.0.0.1\n"
_CA = "basicConstraints=critical,CA:TRUE\nkeyUsage=critical,keyCertSign\nsubjectKeyIdentifier=hash\n"


def root(folder: Path, name: str) -> Path:
    """The certificate of a new CA that signs itself; its key lies beside as .key."""
    made = folder / f"{name}.pem"
    _openssl("req", "-x509", *_KEY, "-subj", f"/CN={name}", "-keyout", made.with_suffix(".key"), "-out", made)
    return made


def below(folder: Path, name: str, by: Path) -> Path:
    """The certificate of a new CA that another CA signed; its key lies beside as .key."""
    return _signed(folder, name, by, _CA)


def server(folder: Path, name: str, by: Path) -> Path:
    """A file with the key and the certificate of a server for 127.0.0.1, signed by a CA; as servers are given them."""
    made = _signed(folder, name, by, _SERVER)
    both = folder / f"{name}.both"
    both.write_text(made.with_suffix(".key").read_text() + made.read_text())
    return both


def _signed(folder: Path, name: str, by: Path, extensions: str) -> Path:
    made, asked, said = folder / f"{name}.pem", folder / f"{name}.csr", folder / f"{name}.ext"
    said.write_text(extensions)
    _openssl("req", "-new", *_KEY[:-2], "-subj", f"/CN={name}", "-keyout", made.with_suffix(".key"), "-out", asked)
    who = ("-CA", by, "-CAkey", by.with_suffix(".key"), "-CAcreateserial")
    _openssl("x509", "-req", "-in", asked, *who, "-days", "2", "-extfile", said, "-out", made)
    return made


def _openssl(*arguments: str | Path) -> None:
    subprocess.run(["openssl", *map(str, arguments)], check=True, capture_output=True, timeout=30)
