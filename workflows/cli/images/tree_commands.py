"""Commands about published images: list, verify, rollback, nodes, detach-check, serve."""

import getpass
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import msgspec
import typer

from steps import timeouts
from steps.contract.exit import ExitCode
from steps.contract.plain_text import count
from workflows.cli import output, release_output, streams
from workflows.cli.options import CheckedOptions, HomeContext, HomeKubeconfig, Output, placed, read_public_key
from workflows.cli.output import Format
from workflows.cli.release_output import (
    FactoryFolders,
    FactoryHosts,
    RollbackVersion,
    Signer,
    SignKey,
    Who,
    short,
    when,
)

if TYPE_CHECKING:
    from workflows.spec.pipelines.publish_access import PublishSsh
    from workflows.stages.host_access import SecretFile

TreeOf = Annotated[str, typer.Argument(metavar="TREE|SPEC", help="The folder that nodes boot from, or an image spec (image.yaml).")]
Image = Annotated[str, typer.Option("--image", help="Only this image of the tree.")]
DAY = 86400.0
Days = Annotated[float, typer.Option("--days", min=0, help="A node that has told nothing for so long is stale.")]
Url = Annotated[str, typer.Option("--url", help="How nodes reach the tree; default: as the spec or the tree's own scripts say.")]


SshKey = Annotated[Path | None, typer.Option("--ssh-key", help="Your own private key for the boot server, not the spec's.")]
SshUser = Annotated[str, typer.Option("--ssh-user", metavar="NAME", help="Your own user on the boot server, not the spec's.")]
Namespace = Annotated[str, typer.Option("--namespace", help="Namespace of the spec's Secrets in home; default: bringup.")]


@dataclass(frozen=True)
class LoginOptions(CheckedOptions):
    """Options for the SSH login to a boot server: the user's own key, or the cluster of Argo, where a Secret may hold the key."""

    ssh_key: SshKey = None
    ssh_user: SshUser = ""
    home_kubeconfig: HomeKubeconfig = ""
    home_context: HomeContext = ""
    namespace: Namespace = ""

    def check(self) -> None:
        """Raise BadParameter if options of the home cluster are given together with the user's own key."""
        if self.ssh_key is not None and (self.home_kubeconfig or self.home_context or self.namespace):
            raise typer.BadParameter("with --ssh-key no Secret of the home cluster is read: leave out where that is")

    def home_key(self, ssh: "PublishSsh", key: "SecretFile") -> bytes:
        """Return the spec's private key from a Secret of the home cluster. Raises SecretMissing."""
        from workflows.app.images import publish_keys

        return publish_keys.publish_key(self.home_kubeconfig, self.home_context, self.namespace, ssh, key)


NOBODY = LoginOptions()


def register(image: typer.Typer) -> None:
    """Add this module's commands to the typer group `image`."""
    image.command(name="list")(placed(show, LoginOptions))
    image.command()(placed(verify, LoginOptions))
    image.command()(placed(rollback, LoginOptions))
    image.command()(placed(nodes, LoginOptions))
    image.command(name="detach-check")(placed(detach_check, LoginOptions))
    image.command()(serve)


def show(tree: TreeOf = "image.yaml", image: Image = "", form: Output = Format.TABLE, place: LoginOptions = NOBODY) -> int:
    """List the versions of a published tree: which is current, since when and by whom, and how many nodes run each."""
    from workflows.app.images import tree_checks

    listed = tree_checks.versions(tree, image, place)
    cells = [
        (
            row.image,
            row.version + (" (current)" if row.current else "") + ("" if row.whole else " (not whole)"),
            row.digest[7:19],
            f"{row.size / 1e6:.1f} MB",
            when(row.switched),
            row.by,
            short(row.origin),
            row.signature + (f" (iPXE until {row.signed_until[:10]})" if row.signed_until else ""),
            f"{len(row.nodes)} ({len(row.stale)} stale)" if row.stale else str(len(row.nodes)),
        )
        for row in listed
    ]
    columns = ("image", "version", "digest", "size", "switched to", "by", "recipe", "signature", "nodes")
    output.listing(columns, cells, msgspec.to_builtins(listed), form)
    return ExitCode.OK


def verify(
    tree: TreeOf = "image.yaml",
    image: Image = "",
    signer: Signer = None,
    url: Url = "",
    form: Output = Format.TABLE,
    place: LoginOptions = NOBODY,
) -> int:
    """Read every file of a published tree again and compare digests, signatures, scripts and pointer. List everything wrong."""
    from workflows.app.images import tree_checks

    verified = tree_checks.verify(tree, image, place, tuple(map(read_public_key, signer or ())), url)
    states = [version["signature"] for version in verified.versions]
    unchecked = f", {release_output.UNCHECKED}" if tree_checks.UNCHECKED in states else ""
    counted = f"{count(len(states), 'version')} of {count(verified.images, 'image')} {'is' if len(states) == 1 else 'are'} whole"
    data = {"versions": verified.versions, "moved": verified.moved}
    return release_output.show_verification(
        verified.location, f"{counted}{unchecked}", verified.problems, data, verified.moved, form
    )


def rollback(
    version: RollbackVersion = "",
    tree: Annotated[
        str, typer.Option("--tree", metavar="TREE|SPEC", help="The folder that nodes boot from, or a spec.")
    ] = "image.yaml",
    image: Image = "",
    who: Who = "",
    signer: Signer = None,
    sign_key: SignKey = None,
    form: Output = Format.TABLE,
    place: LoginOptions = NOBODY,
) -> int:
    """Go back to an earlier version, by one rename, for nodes that boot from now on.

    A version is refused if it is incomplete, lacks a group, or is not signed by a key that the spec or --signer trusts. Without
    the publisher's key, the signed statement which version is current is taken away; name the version and the key to sign it later.
    """
    from workflows.app.images import tree_checks

    actor, keys = f"rollback by {who or getpass.getuser()}", tuple(map(read_public_key, signer or ()))
    name, switch = tree_checks.roll_back(tree, image, place, version, actor, keys, sign_key)
    elsewhere = f"; nodes fetch it from {switch.elsewhere}, where the tree was when it was published" if switch.elsewhere else ""
    facts = {"elsewhere": switch.elsewhere} if switch.elsewhere else {}
    return release_output.show_rollback("image", name, switch, form, elsewhere, **facts)


def nodes(
    tree: TreeOf = "image.yaml",
    image: Image = "",
    days: Days = timeouts.NODE_SILENCE / DAY,
    form: Output = Format.TABLE,
    place: LoginOptions = NOBODY,
) -> int:
    """Show which version each node runs, as the nodes reported: the current one, an older one, or one that is not in this tree.

    Each node reports once a day. A node that was silent for longer than --days is stale: it may run another version now, or be
    gone.
    """
    from workflows.app.images import tree_checks

    listed = tree_checks.nodes(tree, image, place, days * DAY)
    if form is not Format.TABLE:
        output.data(msgspec.to_builtins(listed), form)
    elif listed:
        cells = [(row.node, row.stand.value, row.version, row.image, when(row.at), _ago(row.age), row.mac) for row in listed]
        output.table(("node", "status", "version", "image", "booted", "last report", "mac"), cells)
    else:
        output.lines(["no node has reported what it runs"])
    return ExitCode.OK


def detach_check(
    tree: TreeOf = "image.yaml",
    image: Image = "",
    url: Url = "",
    host: FactoryHosts = None,
    folder: FactoryFolders = None,
    unread_ok: Annotated[bool, typer.Option("--unread-ok", help="Accept that packed roots could not be looked into.")] = False,
    form: Output = Format.TABLE,
    place: LoginOptions = NOBODY,
) -> int:
    """Prove that nodes boot without the factory: nothing in the tree leads into the factory or out of the tree.

    Links, scripts, manifests and settings in packed roots are checked. The factory's store is this machine's; name its hosts and
    further folders. Parts that cannot be read, such as packed roots on another machine, are listed and prove nothing.
    """
    from workflows.app.images import detachment_check

    checked = detachment_check.check(tree, image, place, url, folder or (), host or ())
    rows, unread = checked.problems, checked.unread
    proves = unread_ok or not unread
    good = proves and not rows
    if form is not Format.TABLE:
        looked_for = {"folders": list(checked.factory.folders), "hosts": list(checked.factory.hosts)}
        facts = {"unread": unread, "looked_for": looked_for, "moved": checked.moved}
        output.data({"ok": good, "problems": release_output.problem_data(rows), **facts}, form)
        return ExitCode.OK if good else ExitCode.GATE_FAILED
    if rows:
        output.table(("place", "what is wrong"), rows)
    elif proves:
        output.lines([f"{checked.location} stands by itself: {checked.summary}"])
    else:
        output.lines([f"{checked.location}: whether it stands by itself cannot be told; {checked.summary}"])
    output.lines(f"not looked into: {place}" for place in unread)
    if not proves:
        output.lines(["--unread-ok takes that as it is; on the boot server itself packed roots can be read"])
    output.lines(checked.moved)
    return ExitCode.OK if good else ExitCode.GATE_FAILED


def serve(
    tree: Annotated[Path, typer.Argument(help="The folder that nodes boot from.")],
    address: Annotated[str, typer.Option("--address", help="Address to listen on.")] = "127.0.0.1",
    port: Annotated[int, typer.Option("--port", min=0, max=65535, help="Port to listen on; 0: a free one.")] = 8080,
) -> int:
    """Serve a tree by HTTP and record the nodes' reports, for rehearsals, not for production. Ends with Ctrl-C."""
    from workflows.app.images import tree_checks

    try:
        listening = tree_checks.server(tree, address, port, lambda line: typer.echo(line, err=True))
    except OSError as error:
        why = (error.strerror or str(error)).lower()
        problem = f"cannot listen on {address}:{port}: {why}; name another --address or --port (0: a free one)"
        raise typer.BadParameter(problem) from error
    with listening as server:
        host, number = server.server_address[:2]
        output.lines([f"serves {tree} at http://{host!s}:{number}/ for a rehearsal; Ctrl-C ends it"])
        streams.finish()
        server.serve_forever()
    return ExitCode.OK


def _ago(seconds: int) -> str:
    for unit, name in ((int(DAY), "d"), (3600, "h"), (60, "min")):
        if seconds >= 2 * unit:
            return f"{seconds // unit} {name} ago"
    return f"{seconds} s ago"
