"""Whether a text of a spec is an IP address, and one of IPv6; what may also be a name is asked here."""

import ipaddress


def is_address(text: str) -> bool:
    """Whether this is an IP address, and no name."""
    try:
        ipaddress.ip_address(text)
    except ValueError:
        return False
    return True


def is_ipv6(text: str) -> bool:
    """Whether this is an address of IPv6; a name is none."""
    return is_address(text) and ipaddress.ip_address(text).version == 6
