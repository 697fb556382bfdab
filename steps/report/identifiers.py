"""Finds in a text what looks like a name from inside a site: addresses, hardware ids, domains, mails, paths, URLs."""

import ipaddress
import re

_URL = re.compile(r"\b[A-Za-z][A-Za-z0-9+.-]*://[^\s\"'<>]+")
_MAIL = re.compile(r"[\w.+-]+@[A-Za-z0-9][\w.-]*\w")
_V4 = re.compile(r"(?<![\d.])\d{1,3}(?:\.\d{1,3}){3}(?:/\d{1,2})?(?!\d)")
_V6 = re.compile(r"(?<![0-9A-Fa-f])[0-9A-Fa-f:]*:[0-9A-Fa-f:]*(?:\.\d{1,3}){0,3}(?:%[\w.-]+)?(?:/\d{1,3})?(?![G-Zg-z])")
_HEX = "[0-9A-Fa-f]"
_HARDWARE = re.compile(
    rf"\b0x{_HEX}{{12,16}}\b"  # GUID as ibstat prints it
    rf"|(?<![\w:]){_HEX}{{4}}(?::{_HEX}{{4}}){{3}}(?![\w:])"  # GUID as sysfs prints it
    rf"|(?<![\w:])(?:{_HEX}{{2}}[:-]){{5,19}}{_HEX}{{2}}(?![\w])"  # Ethernet and IP-over-InfiniBand addresses
    rf"|\b(?:GPU-|MIG-)?{_HEX}{{8}}-{_HEX}{{4}}-{_HEX}{{4}}-{_HEX}{{4}}-{_HEX}{{12}}\b"  # UUID
    rf"|\b(?=\w*[A-Fa-f])(?=\w*\d){_HEX}{{16}}\b"  # GUID without a prefix
)
_PATH = re.compile(r"(?<![\w./])/(?!(?:readyz|livez|healthz)\b)[\w.@+-]+(?:/[\w.@+-]*)*")
"""An absolute path, also of one segment; the API server's own health paths say nothing about a site."""
_DOMAIN = re.compile(r"(?<![\w.@-])[A-Za-z0-9_](?:[A-Za-z0-9_-]*\.)+[A-Za-z][A-Za-z0-9-]*(?![\w-])((?::\d+)?(?:/[\w.@+:-]*)*)")
"""A dotted name with the port and path (an image's repository) behind it."""
_ENDINGS = {
    "com",
    "org",
    "net",
    "edu",
    "gov",
    "mil",
    "int",
    "io",
    "ai",
    "dev",
    "cloud",
    "tech",
    "info",
    "biz",
    "eu",
    "app",
    "systems",
}
_INSIDE = {"local", "lan", "internal", "intern", "corp", "intra", "intranet", "home", "arpa", "localdomain", "private", "test"}
_FILES = {
    "sh",
    "py",
    "so",
    "md",
    "rs",
    "cc",
    "go",
    "js",
    "ps",
    "pl",
    "yaml",
    "yml",
    "json",
    "conf",
    "service",
    "log",
    "txt",
    "xml",
    "gz",
}
_VENDORS = re.compile(
    r"(?:.*\.)?(?:kubernetes\.io|k8s\.io|x-k8s\.io|cattle\.io|cert-manager\.io|coreos\.com|openshift\.io|kubeflow\.org|volcano\.sh"
    r"|argoproj\.io|slinky\.slurm\.net|k8s\.v1\.cni\.cncf\.io)|(?:gpu\.|resource\.)?nvidia\.com|mellanox\.com"
    r"|kubernetes\.default\.svc(?:\.cluster\.local)?|svc\.cluster\.local",
    re.IGNORECASE,
)
"""API groups and label prefixes that are the same everywhere."""


def urls(text: str) -> str:
    """The text without URLs: first of all, since names inside them are parts of them."""
    return _URL.sub("[url]", text)


def hide(text: str) -> str:
    """The text with each such name replaced by its kind in brackets."""
    text = _MAIL.sub("[mail]", urls(text))
    text = _V4.sub("[address]", _V6.sub(_address, text))
    text = _HARDWARE.sub("[hardware id]", text)
    return _PATH.sub("[path]", _DOMAIN.sub(_domain, text))


def _address(match: re.Match[str]) -> str:
    """IPv6 is whatever parses as it, with punctuation before or behind left where it is."""
    found = match[0]
    bare = found.rstrip(":") if not found.endswith("::") else found
    for start in (0, 1) if bare.startswith(":") else (0,):
        address = bare[start:].partition("/")[0]
        if any(letter in address for letter in "0123456789abcdefABCDEF") and _is_v6(address):
            return f"{bare[:start]}[address]{found[len(bare) :]}"
    return found


def _is_v6(text: str) -> bool:
    try:
        ipaddress.IPv6Address(text)
    except ValueError:
        return False
    return True


def _domain(match: re.Match[str]) -> str:
    found = match[0].removesuffix(match[1])
    labels = found.lower().split(".")
    last, lower = labels[-1], found.islower()
    if _VENDORS.fullmatch(found) or last in _FILES:
        return match[0]
    known = last in _ENDINGS or last in _INSIDE or (len(last) == 2 and lower)
    return "[domain]" if known or (lower and len(labels) > 2) else match[0]
