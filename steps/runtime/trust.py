"""Writes the host keys and certificates by which Argo CD trusts the repository's server; entries for other servers stay."""

from msgspec import Struct

from steps.clients.git import git_access
from steps.contract import delivery
from steps.contract.delivery import HOST_KEYS, HostKey, KnownHosts, ServerCertificates
from steps.contract.plain_text import count
from steps.errors import BadTask
from steps.runtime import config_maps
from steps.runtime.context import Context


class _Trusting(Struct, frozen=True, kw_only=True):
    """The arguments of a task that name trusted host keys and certificates; all others are ignored."""

    known_hosts: KnownHosts | None = None
    certificates: ServerCertificates | None = None


def trusted_digests(context: Context) -> dict[str, tuple[str, ...]]:
    """Return the digests of the host keys and certificates in the site's files, by ConfigMap name (see `Scope.trusted`)."""
    trusting = context.arguments(_Trusting)
    digests: dict[str, tuple[str, ...]] = {}
    if (hosts := trusting.known_hosts) is not None:
        digests[hosts.name] = tuple(delivery.text_digest(host_key.text) for host_key in _given_keys(context, hosts))
    if (servers := trusting.certificates) is not None:
        digests[servers.name] = tuple(map(delivery.text_digest, git_access.read_certificates(context.environment, servers.file)))
    return digests


def hosts(context: Context, wanted: KnownHosts) -> None:
    """Make Argo CD trust exactly the host keys in the site's file for the repository's server.

    The ConfigMap belongs to Argo CD's chart, which may undo the change when it is upgraded. Each run therefore checks it again.
    """
    live, ours = config_maps.read(context, wanted), _given_keys(context, wanted)
    before = live.data.get(HOST_KEYS, "")
    present = delivery.host_keys(before, wanted.host)
    lacking = [host_key.text for host_key in ours if host_key not in present]
    stale = {host_key for host_key in present if host_key.lets_in(wanted.host) and host_key not in ours}
    if lacking or stale:
        lines = (_without(line, stale, wanted.host) for line in before.splitlines())
        text = "\n".join([*(line for line in lines if line is not None), *lacking, ""])
        config_maps.write(context, wanted, live, HOST_KEYS, text)
    _tell(context, wanted, "host key", len(lacking), len(stale))


def servers(context: Context, wanted: ServerCertificates) -> None:
    """Make Argo CD trust exactly the certificates in the site's file for the repository's server.

    Raises Conflict if an owner has set other certificates for the server, because it would undo the change. Server-side apply marks
    the key as bringup's, so that later certificates can replace it.
    """
    live, ours = config_maps.read(context, wanted), git_access.read_certificates(context.environment, wanted.file)
    before = live.data.get(wanted.host, "")
    present = delivery.certificates(before)
    lacking, stale = set(ours) - set(present), set(present) - set(ours)
    if lacking or stale:
        if before.strip() and not live.is_ours(wanted.host):
            where = "chart argo-cd: values configs.tls.certificates"
            config_maps.check_unowned(live, config_maps.describe(wanted), [wanted.host], where)
        text = "".join(map(delivery.pem, ours))
        # server-side apply, so that the key is known to be bringup's when the certificates change one day
        context.kube.apply(config_maps.config_map(wanted) | {"data": {wanted.host: text}}, force=True)
    _tell(context, wanted, "certificate", len(lacking), len(stale))


def _tell(context: Context, wanted: KnownHosts | ServerCertificates, what: str, added: int, removed: int) -> None:
    summary = f"{count(added, what)} added" + (f" and {count(removed, what)} removed" if removed else "")
    context.did(f"{'changed' if added or removed else 'unchanged'} {config_maps.describe(wanted)}: {summary} for {wanted.host}")


def _given_keys(context: Context, wanted: KnownHosts) -> tuple[HostKey, ...]:
    """Return the host keys in the site's file.

    Raises BadTask if none is for the server, because Argo CD would lose the keys that it has.
    """
    text = git_access.read_credentials(context.environment, wanted.file, "known_hosts")
    keys = delivery.host_keys(text, wanted.host)
    if not any(host_key.may_let_in(wanted.host) for host_key in keys):
        raise BadTask(
            f"the secret file {wanted.file} has no host key of {wanted.host}",
            hint="delivery.argo_cd.known_hosts takes lines as ssh-keyscan prints them, with [HOST]:PORT where the port is not 22",
        )
    return tuple(dict.fromkeys(keys))


def _without(line: str, stale: set[HostKey], host: str) -> str | None:
    """Return a known_hosts line without the stale keys; its other hosts stay. None if nothing is left."""
    keys = delivery.keys_of(line, host)
    if stale.isdisjoint(keys):
        return line
    remaining = [host_key for host_key in keys if host_key not in stale]
    names = ",".join(host_key.host for host_key in remaining)
    return HostKey(host=names, key=remaining[0].key, marker=remaining[0].marker).text if remaining else None
