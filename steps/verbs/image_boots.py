"""Boots of an image that an earlier run has shown already: the same task, of the same bytes, need not boot again."""

from steps.contract import evidence
from steps.contract import run as contract
from steps.contract.evidence import Evidence
from steps.contract.stages.image_boot import Booted
from steps.verbs import reuse
from steps.verbs.context import Context


def earlier(context: Context, root: str) -> Evidence | None:
    """The record of this very task in the run that the workflow names to reuse, where it passed; None when there is none.

    What boots is named by its key, and a boot leaves nothing behind that could have changed since: unlike a cluster's, its
    observation holds for as long as the image is the same. Where it was packed anew since, tools of other versions may have made
    other bytes: boots of another root than `root` prove nothing of it (empty: nobody knows). The gate judges it anew.
    """
    run = context.environment.reuse
    if run in ("", reuse.NONE) or run == context.environment.run:
        return None
    header, mine = (context.store.read(contract.header_key(name)) for name in (run, context.environment.run))
    if header is None or mine is None or contract.decode_header(header).cluster != contract.decode_header(mine).cluster:
        return None
    records = context.store.records(run, context.task.stage, context.task.name)
    same = (record for record in records if record.input_digest == context.task.input_digest and _booted(record, root))
    return next((record for record in same if record.verdict is not None and record.verdict.is_pass), None)


def _booted(record: Evidence, root: str) -> bool:
    known = seen(record)
    return known is not None and (not root or known.root_digest in ("", root))


def seen(record: Evidence) -> Booted | None:
    """What that run saw; None where another version wrote it in another form."""
    return evidence.seen(record.observation, Booted)
