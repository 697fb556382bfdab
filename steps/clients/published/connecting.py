"""Which transport leads to a place."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from steps.clients.published import ssh
from steps.clients.published.local import Local
from steps.clients.published.operations import Transport
from steps.contract.image.published import Place


@contextmanager
def to(place: Place, secrets: Path) -> Iterator[Transport]:
    """A transport to the place, closed at the end: SSH where the place has a host, else this machine. Raises a StepError."""
    transport: Transport = ssh.connect(place, secrets) if place.host else Local(Path(place.root))
    try:
        yield transport
    finally:
        transport.close()
