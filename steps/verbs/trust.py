"""Whom Argo CD trusts: for our repository's server what the site's file gives and nothing else; of all other servers nothing."""

from msgspec import Struct

from steps.clients.git import access
from steps.contract import delivery
from steps.contract.delivery import HOST_KEYS, HostKey, KnownHosts, ServerCertificates
from steps.contract.plural import count
from steps.errors import BadTask
from steps.verbs import config_maps
from steps.verbs.context import Context


class Trusting(Struct, frozen=True, kw_only=True):
    """The arguments of a task that name who is trusted."""

    known_hosts: KnownHosts | None = None
    certificates: ServerCertificates | None = None


def given(context: Context) -> dict[str, tuple[str, ...]]:
    """What files of the site name as trusted, as digests by the ConfigMap that a task has for them: `Scope.trusted`."""
    asked = context.arguments(Trusting)
    found: dict[str, tuple[str, ...]] = {}
    if (hosts := asked.known_hosts) is not None:
        found[hosts.name] = tuple(delivery.text_digest(one.text) for one in _given_keys(context, hosts))
    if (servers := asked.certificates) is not None:
        found[servers.name] = tuple(map(delivery.text_digest, access.read_certificates(context.environment, servers.file)))
    return found


def hosts(context: Context, wanted: KnownHosts) -> None:
    """Set our repository's host keys among those that Argo CD trusts. Its chart owns the others and may undo ours when it is
    upgraded: they are looked for in every run."""
    found, ours = config_maps.read(context, wanted), _given_keys(context, wanted)
    before = found.data.get(HOST_KEYS, "")
    present = delivery.host_keys(before, wanted.host)
    lacking = [one.text for one in ours if one not in present]
    stale = {one for one in present if one.lets_in(wanted.host) and one not in ours}
    if lacking or stale:
        kept = (_without(line, stale, wanted.host) for line in before.splitlines())
        text = "\n".join([*(line for line in kept if line is not None), *lacking, ""])
        config_maps.write(context, wanted, found, HOST_KEYS, text)
    _tell(context, wanted, "host key", len(lacking), len(stale))


def servers(context: Context, wanted: ServerCertificates) -> None:
    """Set our repository's certificates as those by which Argo CD knows its server. Raises Conflict where an owner gave it others:
    it would undo what we write. A server that the owner does not know is left as we set it.

    It is applied, so that the key is known to be ours when the certificates are others one day.
    """
    found, ours = config_maps.read(context, wanted), access.read_certificates(context.environment, wanted.file)
    before = found.data.get(wanted.host, "")
    present = delivery.certificates(before)
    lacking, stale = set(ours) - set(present), set(present) - set(ours)
    if lacking or stale:
        if before.strip() and not found.is_ours(wanted.host):
            where = "chart argo-cd: values configs.tls.certificates"
            config_maps.unowned(found, config_maps.named(wanted), [wanted.host], where)
        text = "".join(map(delivery.pem, ours))
        context.kube.apply(config_maps.config_map(wanted) | {"data": {wanted.host: text}}, force=True)
    _tell(context, wanted, "certificate", len(lacking), len(stale))


def _tell(context: Context, wanted: KnownHosts | ServerCertificates, what: str, added: int, removed: int) -> None:
    said = f"{count(added, what)} added" + (f" and {count(removed, what)} removed" if removed else "")
    context.did(f"{'changed' if added or removed else 'unchanged'} {config_maps.named(wanted)}: {said} for {wanted.host}")


def _given_keys(context: Context, wanted: KnownHosts) -> tuple[HostKey, ...]:
    """The keys of the site's file. Raises BadTask where none is for the server: its keys would be taken away and none be given."""
    text = access.read_credentials(context.environment, wanted.file, "known_hosts")
    found = delivery.host_keys(text, wanted.host)
    if not any(one.may_let_in(wanted.host) for one in found):
        raise BadTask(
            f"the secret file {wanted.file} has no host key of {wanted.host}",
            hint="delivery.argo_cd.known_hosts takes lines as ssh-keyscan prints them, with [HOST]:PORT where the port is not 22",
        )
    return tuple(dict.fromkeys(found))


def _without(line: str, stale: set[HostKey], host: str) -> str | None:
    """A line of known hosts without keys that are no longer given: what it says of other hosts stays. None where nothing does."""
    keys = delivery.keys_of(line, host)
    if stale.isdisjoint(keys):
        return line
    left = [one for one in keys if one not in stale]
    names = ",".join(one.host for one in left)
    return HostKey(host=names, key=left[0].key, marker=left[0].marker).text if left else None
