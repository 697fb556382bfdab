"""Removes identifiers from a text: addresses, hardware ids, domains, mail addresses, paths, URLs."""

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
"""An absolute path, also of one segment. Health paths of the API server are excluded: they say nothing about a site."""
_DOMAIN = re.compile(r"(?<![\w.@-])[A-Za-z0-9_](?:[A-Za-z0-9_-]*\.)+[A-Za-z][A-Za-z0-9-]*(?![\w-])((?::\d+)?(?:/[\w.@+:-]*)*)")
"""A dotted name with the port and path behind it, as in an image's repository."""
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
"""API groups and label prefixes that are the same at every site."""


def urls(text: str) -> str:
    """Return the text with each URL replaced. Call this before `hide`, because URLs contain other identifiers."""
    return _URL.sub("[url]", text)


def hide(text: str) -> str:
    """Return the text with each identifier replaced by its kind in brackets, such as `[address]`."""
    text = _MAIL.sub("[mail]", urls(text))
    text = _V4.sub("[address]", _V6.sub(_address, text))
    text = _HARDWARE.sub("[hardware id]", text)
    return _PATH.sub("[path]", _DOMAIN.sub(_domain, text))


def _address(match: re.Match[str]) -> str:
    """Return the replacement of an IPv6 address with the punctuation around it; any other match is returned unchanged."""
    text = match[0]
    bare = text.rstrip(":") if not text.endswith("::") else text
    for start in (0, 1) if bare.startswith(":") else (0,):
        address = bare[start:].partition("/")[0]
        if any(letter in address for letter in "0123456789abcdefABCDEF") and _is_v6(address):
            return f"{bare[:start]}[address]{text[len(bare) :]}"
    return text


def _is_v6(text: str) -> bool:
    try:
        ipaddress.IPv6Address(text)
    except ValueError:
        return False
    return True


def _domain(match: re.Match[str]) -> str:
    name = match[0].removesuffix(match[1])
    labels = name.lower().split(".")
    last, lower = labels[-1], name.islower()
    if _VENDORS.fullmatch(name) or last in _FILES:
        return match[0]
    known = last in _ENDINGS or last in _INSIDE or (len(last) == 2 and lower)
    return "[domain]" if known or (lower and len(labels) > 2) else match[0]
