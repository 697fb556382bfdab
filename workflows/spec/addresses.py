"""Whether a text of a spec is an IP address, and of which version of IP; what may also be a name is asked here."""

import ipaddress


def is_address(text: str) -> bool:
    """Whether this is an IP address, and no name."""
    try:
        ipaddress.ip_address(text)
    except ValueError:
        return False
    return True


def version(text: str) -> int:
    """4 or 6, of an address or a network; 0 of a name."""
    try:
        return ipaddress.ip_network(text, strict=False).version
    except ValueError:
        return 0
