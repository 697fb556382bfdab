"""Verb seal: list the digest of every file of the run, sign the list if a key is given, and release the target."""

import time

from msgspec import Struct

from steps.clients import regular_files, signature
from steps.clients.ansible import play_journal
from steps.clients.regular_files import FileKind
from steps.contract import run_records
from steps.contract.canonical import canonical, digest_bytes
from steps.contract.exit import ExitCode
from steps.contract.runs import log_keys, run_seal
from steps.errors import StepError
from steps.report import verify
from steps.runtime import target
from steps.runtime.context import Context


class Arguments(Struct, frozen=True, kw_only=True):
    """Arguments of the seal. `key` is the name of a signing key below the secrets folder; empty for the machine's own."""

    key: str = ""


def run(context: Context) -> ExitCode:
    """Seal the run and release its target. A resumed run is sealed again: the seal is derived from the files, hence replaceable."""
    arguments = context.arguments(Arguments)
    _free_target(context)
    name = context.environment.run
    context.say(f"sealing the run, which ended as {context.inputs.get('status', 'unknown')}")
    # before the files are listed, so that collected events are sealed too
    _collect(context, log_keys.all_events(name))
    for entry in regular_files.entries(context.store.path(f"runs/{name}")):
        if entry.kind not in (FileKind.FILE, FileKind.FOLDER):
            context.say(f"left out of the seal: {verify.shown(entry.key)} is {entry.kind}")
    context.keep_log()  # this task's log is sealed like the others, so later lines go to the engine only
    header = context.store.read(run_records.header_key(name))
    prefix = f"runs/{name}/"
    keys = [key.removeprefix(prefix) for key in context.store.keys(f"runs/{name}")]
    sealed = run_seal.Seal(
        run=name,
        plan=run_records.decode_header(header).plan if header else "",
        status=context.inputs.get("status", "unknown"),
        sealed=time.time(),
        files=tuple(_sealed(context, prefix, key) for key in keys if run_seal.is_sealed(key)),
    )
    data = canonical(run_seal.close(sealed))
    signed = _signed(context, data, arguments.key)
    # an earlier seal's signature does not fit this one
    context.store.path(prefix + run_seal.SIGNATURE).unlink(missing_ok=True)
    context.store.replace(prefix + run_seal.FILE, data)
    if signed is not None:
        context.store.replace(prefix + run_seal.SIGNATURE, signed)
    by = f"{run_seal.SIGNED_WITH}{arguments.key or 'the key of this machine'}" if signed is not None else ""
    context.say(f"sealed {len(sealed.files)} files{by}")
    return ExitCode.OK


def _signed(context: Context, data: bytes, key: str) -> bytes | None:
    """Return the seal's signature by the spec's key, else by the machine's own; None without one. Raises BadTask for the spec's."""
    if key:
        return signature.sign(data, context.environment.secrets / key)
    own = context.environment.seal_key
    if own is None:
        return None
    try:
        return signature.sign(data, own)
    except StepError as error:  # nobody asked for this signature, so a run is not held up by it
        context.say(f"the seal is not signed with this machine's key: {error}")
        return None


def _sealed(context: Context, prefix: str, key: str) -> run_seal.Sealed:
    data = context.store.read(prefix + key) or b""
    return run_seal.Sealed(key=key, sha256=digest_bytes(data), size=len(data))


def _collect(context: Context, folder: str) -> None:
    """Store the events of plays that were killed and not retried. If the store refuses them, the seal is made without them."""
    try:
        play_journal.collect(context.store, folder, context.log)
    except (OSError, StepError) as error:
        context.say(f"what hosts did in plays that were killed was not kept: {error}")


def _free_target(context: Context) -> None:
    """Release the lease. If the target cannot be reached or never existed, the lease expires by itself."""
    try:
        target.release(context)
    except StepError as error:
        context.record(error=f"the target's lease was not given back: {error}")
