"""Verb seal: lists the digest of every file of the run, signs the list when a key is given, and frees the target."""

import time

from msgspec import Struct

from steps.clients import signature
from steps.clients.ansible import play_journal
from steps.contract import log, seal
from steps.contract import run as contract
from steps.contract.canonical import canonical, digest_bytes
from steps.contract.exit import ExitCode
from steps.errors import StepError
from steps.verbs import target
from steps.verbs.context import Context


class Arguments(Struct, frozen=True, kw_only=True):
    """`key` is the name of a signing key below the secrets folder; empty means the seal is not signed."""

    key: str = ""


def run(context: Context) -> ExitCode:
    """Seal the run. A resumed run is sealed again: the seal is derived from the files, hence replaceable."""
    wanted = context.arguments(Arguments)
    _free_target(context)
    name = context.environment.run
    context.say(f"sealing the run, which ended as {context.inputs.get('status', 'unknown')}")
    _collect(context, log.all_events(name))
    context.keep_log()  # its own log is sealed like the others; what it says from here on is for the engine only
    header = context.store.read(contract.header_key(name))
    prefix = f"runs/{name}/"
    keys = [key.removeprefix(prefix) for key in context.store.keys(f"runs/{name}")]
    sealed = seal.Seal(
        run=name,
        plan=contract.decode_header(header).plan if header else "",
        status=context.inputs.get("status", "unknown"),
        sealed=time.time(),
        files=tuple(_sealed(context, prefix, key) for key in keys if seal.is_sealed(key)),
    )
    data = canonical(seal.closed(sealed))
    signed = signature.sign(data, context.environment.secrets / wanted.key) if wanted.key else None
    context.store.replace(prefix + seal.FILE, data)
    if signed is not None:
        context.store.replace(prefix + seal.SIGNATURE, signed)
    context.say(f"sealed {len(sealed.files)} files{f' and signed with {wanted.key}' if wanted.key else ''}")
    return ExitCode.OK


def _sealed(context: Context, prefix: str, key: str) -> seal.Sealed:
    data = context.store.path(prefix + key).read_bytes()
    return seal.Sealed(key=key, sha256=digest_bytes(data), size=len(data))


def _collect(context: Context, folder: str) -> None:
    """Keep what hosts did in plays that were killed and not tried again. A store that refuses it holds no seal back."""
    try:
        play_journal.collect(context.store, folder, context.log)
    except (OSError, StepError) as error:
        context.say(f"what hosts did in plays that were killed was not kept: {error}")


def _free_target(context: Context) -> None:
    """Give the lease back; a target that cannot be reached (or never came to be) frees itself when the lease runs out."""
    try:
        target.release(context)
    except StepError as error:
        context.record(error=f"the target's lease was not given back: {error}")
