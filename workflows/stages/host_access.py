"""Access of tasks to hosts and to the cluster: SSH arguments of plays, and the secret files that arguments name."""

from dataclasses import dataclass
from typing import Any

import msgspec

from steps.contract.host_play import Jump
from steps.contract.runs import approval
from workflows.spec.cluster_spec import ClusterSpec
from workflows.spec.fields import SecretRef
from workflows.spec.sections.proxy import environment
from workflows.spec.sections.rke2_parts import registry_secrets

SSH_KEY = "ssh_key"
KNOWN_HOSTS = "known_hosts"
SUDO_PASSWORD = "sudo_password"
PROXY_PASSWORD = "proxy_password"
SSH_PROXY_PASSWORD = "ssh_proxy_password"
KUBECONFIG = "kubeconfig"
GIT_CREDENTIALS = "git_credentials"
GIT_KNOWN_HOSTS = "git_known_hosts"
GIT_CA = "git_ca"
JOIN_TOKEN = "join_token"
SLURM_ACCOUNTING = "slurm_accounting"
SUNK_CHARTS = "sunk_charts"
"""Names of the files that bringup puts into the secrets folder. A secret that the spec names itself has its own name there."""


USERS_KNOWN_HOSTS = "~/.ssh/known_hosts"


@dataclass(frozen=True, kw_only=True)
class SecretFile:
    """A file of the secrets folder and the source of its content: a local path, a key of a Kubernetes Secret, or a variable.

    `certificates` is the spec field that gives the file if it may hold only certificates. With `optional`, a missing path is no
    error, and the file is left out.
    """

    name: str
    path: str = ""
    secret: str = ""
    key: str = ""
    variable: str = ""
    certificates: str = ""
    optional: bool = False


def ssh_arguments(spec: ClusterSpec) -> dict[str, Any]:
    """Return the argument `ssh` of the verb `play`: user, port, host-key policy, and names of secret files, never their content."""
    ssh = spec.ssh
    arguments: dict[str, Any] = {"user": ssh.user, "port": ssh.port, "host_keys": ssh.host_key_policy.replace("_", "-")}
    # secrets are named by file only, because arguments end up in ConfigMaps and records
    arguments |= {"key": SSH_KEY} if ssh.key else {}
    arguments["known_hosts"] = KNOWN_HOSTS
    arguments |= {"sudo_password": SUDO_PASSWORD} if ssh.sudo_password else {}
    arguments |= {"post_quantum": True} if ssh.post_quantum else {}
    if proxy := _proxy(spec):
        arguments["proxy"] = proxy
    if spec.proxy and spec.proxy.user:
        arguments |= {"proxy_user": spec.proxy.user, "proxy_password": PROXY_PASSWORD}
    arguments |= {"http_proxy": ssh.http_proxy} if ssh.http_proxy else {}
    if ssh.http_proxy_user:
        arguments |= {"http_proxy_user": ssh.http_proxy_user, "http_proxy_password": SSH_PROXY_PASSWORD}
    if ssh.jump_host:
        arguments["jump"] = msgspec.to_builtins(Jump.of(ssh.jump_host, SSH_KEY if ssh.key else ""))
    return arguments


def api_arguments(spec: ClusterSpec) -> dict[str, str]:
    """Return the cluster's API address from the spec and the name in its certificate; empty if the spec gives no address."""
    if not spec.target.server:
        return {}
    # the API server's certificate names the registration address, even if `server` is the end of a tunnel
    return {"server": spec.target.server, "server_name": spec.target.tls_server_name or spec.registration_address}


def _proxy(spec: ClusterSpec) -> dict[str, str]:
    if spec.proxy is None:
        return {}
    addresses = [spec.registration_address, *(machine.address for machine in spec.machines)]
    return environment(spec.proxy, (spec.rke2.cluster_cidr, spec.rke2.service_cidr), addresses)


def secret_files(spec: ClusterSpec) -> tuple[SecretFile, ...]:
    """Return every file that tasks of this spec may need in the secrets folder, with its source, sorted by name."""
    argo = spec.delivery.argo_cd
    references: dict[str, SecretRef | None] = {
        SSH_KEY: spec.ssh.key,
        SUDO_PASSWORD: spec.ssh.sudo_password,
        PROXY_PASSWORD: spec.proxy.password if spec.proxy else None,
        SSH_PROXY_PASSWORD: spec.ssh.http_proxy_password,
        KUBECONFIG: spec.target.kubeconfig,
        JOIN_TOKEN: spec.rke2.join_token if spec.rke2 else None,
        SLURM_ACCOUNTING: spec.slurm.accounting.password if spec.slurm.kind == "slinky" and spec.slurm.accounting else None,
        SUNK_CHARTS: spec.slurm.credentials if spec.slurm.kind == "sunk" else None,
        GIT_CREDENTIALS: argo.credentials if argo else None,
        GIT_CA: argo.ca if argo else None,
        **{file: reference for file, _, _, reference in registry_secrets(spec.rke2.registries)},
        **spec.secrets,
    }
    certificates = {GIT_CA: "delivery.argo_cd.ca"}
    certificates |= {f: f"rke2.registries.{name}.ca" for f, name, part, _ in registry_secrets(spec.rke2.registries) if part == "ca"}
    for index, approval_spec in enumerate(spec.approvals):
        if approval_spec.announce:
            webhook, ca = approval.webhook_file(approval_spec.before), approval.ca_file(approval_spec.before)
            references |= {webhook: approval_spec.announce.webhook, ca: approval_spec.announce.ca}
            certificates[ca] = f"approvals[{index}].announce.ca"
    defined = {name: reference for name, reference in references.items() if reference is not None}
    files = [secret_file(name, reference, certificates.get(name, "")) for name, reference in defined.items()]
    # the user's own file may be missing where the spec accepts new host keys
    ssh = spec.ssh
    optional = ssh.host_key_policy == "accept_new" and not ssh.known_hosts
    files.append(SecretFile(name=KNOWN_HOSTS, path=ssh.known_hosts or USERS_KNOWN_HOSTS, optional=optional))
    if argo and argo.known_hosts:
        files.append(SecretFile(name=GIT_KNOWN_HOSTS, path=argo.known_hosts))
    return tuple(sorted(files, key=lambda file: file.name))


def secret_file(name: str, reference: SecretRef, certificates: str = "") -> SecretFile:
    """Return the file in the secrets folder for a secret that a spec refers to."""
    if reference.secret is not None:
        return SecretFile(name=name, secret=reference.secret.name, key=reference.secret.key, certificates=certificates)
    return SecretFile(name=name, path=reference.file or "", variable=reference.env or "", certificates=certificates)
