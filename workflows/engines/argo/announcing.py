"""Announces approvals for whoever follows a run on the machine that submitted it; webhooks are read when they are needed."""

from collections.abc import Mapping
from pathlib import Path

from steps.errors import StepError
from workflows.engines import announce, inputs
from workflows.engines.argo import claims, secret_files
from workflows.engines.argo.home import Home
from workflows.engines.argo.remembered import Telling
from workflows.spec import ClusterSpec
from workflows.stages.access import SecretFile


def references(spec: ClusterSpec, folder: Path) -> dict[str, Telling]:
    """How the spec wants approvals announced, by the stage that waits; `folder` is the spec's."""
    found = {}
    for one in spec.approvals:
        if one.announce is not None:
            ref = one.announce.webhook
            found[str(one.before)] = Telling(
                cluster=spec.name,
                approvers=tuple(approver.name for approver in one.approvers),
                command=one.announce.command,
                file=str(folder.absolute() / Path(ref.file).expanduser()) if ref and ref.file else "",
                variable=(ref.env or "") if ref else "",
                secret=ref.secret.name if ref and ref.secret else "",
                key=ref.secret.key if ref and ref.secret else "",
            )
    return found


def announcer(
    home: Home, run: str, told: Mapping[str, Telling], environ: Mapping[str, str], say: announce.Say
) -> announce.Announcer:
    """An observer that announces; a webhook that cannot be read now is a warning through `say`, which never says the URL."""
    channels, cluster = {}, ""
    for stage, one in told.items():
        cluster = one.cluster
        try:
            channels[stage] = (announce.Channel(command=one.command, webhook=_webhook(home, one, environ)), one.approvers)
        except (StepError, inputs.SecretMissing) as error:
            say(f"warning: the approval before {stage} will not be announced by this command: {error}")
    return announce.Announcer(run, cluster, channels, claims.claim(home.where, run), say)


def _webhook(home: Home, one: Telling, environ: Mapping[str, str]) -> str:
    if one.command:
        return ""
    if one.secret:
        return secret_files.read_key(home, one.secret, one.key).decode().strip()
    file = SecretFile(name="webhook of an announcement", path=one.file, variable=one.variable)
    return inputs.secret(file, Path("/"), environ).decode().strip()
