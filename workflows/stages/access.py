"""How the tasks of a plan reach hosts: the SSH arguments of a play, and the secret files that they name."""

from dataclasses import dataclass
from typing import Any

import msgspec

from steps.contract import approval
from steps.contract.play import Jump
from workflows.spec.cluster import ClusterSpec
from workflows.spec.fields import SecretRef
from workflows.spec.proxy import environment
from workflows.spec.rke2_parts import registry_secrets

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
"""Names of files below the secrets folder; a spec's own secrets keep their names."""


USERS_KNOWN_HOSTS = "~/.ssh/known_hosts"


@dataclass(frozen=True, kw_only=True)
class SecretFile:
    """One file below the secrets folder and where its content comes from: a path, a Kubernetes Secret's key, or a variable.

    `certificates` is the spec's field that gives it, where it must hold certificates and nothing else; empty for other files.
    `optional`: no such path is no error, and the file is not there.
    """

    name: str
    path: str = ""
    secret: str = ""
    key: str = ""
    variable: str = ""
    certificates: str = ""
    optional: bool = False


def ssh_arguments(spec: ClusterSpec) -> dict[str, Any]:
    """The `ssh` argument of the verb `play`: user, port, host-key policy, and names of secret files, never their content."""
    ssh = spec.ssh
    arguments: dict[str, Any] = {"user": ssh.user, "port": ssh.port, "host_keys": ssh.host_key_policy.replace("_", "-")}
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
    """The way to the cluster's API that the spec gives beside the registration address, if any."""
    if not spec.target.server:
        return {}
    # the certificate has the registration address, whatever the tunnel begins at
    return {"server": spec.target.server, "server_name": spec.target.tls_server_name or spec.registration_address}


def _known_hosts(spec: ClusterSpec) -> SecretFile:
    """The file that the spec names, else the user's own, which may lack where the spec allows a first contact."""
    path = spec.ssh.known_hosts or USERS_KNOWN_HOSTS
    return SecretFile(name=KNOWN_HOSTS, path=path, optional=spec.ssh.host_key_policy == "accept_new" and not spec.ssh.known_hosts)


def _proxy(spec: ClusterSpec) -> dict[str, str]:
    if spec.proxy is None:
        return {}
    addresses = [spec.registration_address, *(machine.address for machine in spec.machines)]
    return environment(spec.proxy, (spec.rke2.cluster_cidr, spec.rke2.service_cidr), addresses)


def secret_files(spec: ClusterSpec) -> tuple[SecretFile, ...]:
    """Every secret file that the tasks of this spec may ask for, by name."""
    argo = spec.delivery.argo_cd
    references: dict[str, SecretRef | None] = {
        SSH_KEY: spec.ssh.key,
        SUDO_PASSWORD: spec.ssh.sudo_password,
        PROXY_PASSWORD: spec.proxy.password if spec.proxy else None,
        SSH_PROXY_PASSWORD: spec.ssh.http_proxy_password,
        KUBECONFIG: spec.target.kubeconfig,
        JOIN_TOKEN: spec.rke2.join_token if spec.rke2 else None,
        GIT_CREDENTIALS: argo.credentials if argo else None,
        GIT_CA: argo.ca if argo else None,
        **{file: reference for file, _, _, reference in registry_secrets(spec.rke2.registries)},
        **spec.secrets,
    }
    certificates = {GIT_CA: "delivery.argo_cd.ca"}
    certificates |= {f: f"rke2.registries.{name}.ca" for f, name, part, _ in registry_secrets(spec.rke2.registries) if part == "ca"}
    for index, one in enumerate(spec.approvals):
        if one.announce:
            webhook, ca = approval.webhook_file(one.before), approval.ca_file(one.before)
            references |= {webhook: one.announce.webhook, ca: one.announce.ca}
            certificates[ca] = f"approvals[{index}].announce.ca"
    given = {name: reference for name, reference in references.items() if reference is not None}
    found = [secret_file(name, reference, certificates.get(name, "")) for name, reference in given.items()]
    found.append(_known_hosts(spec))
    if argo and argo.known_hosts:
        found.append(SecretFile(name=GIT_KNOWN_HOSTS, path=argo.known_hosts))
    return tuple(sorted(found, key=lambda file: file.name))


def secret_file(name: str, reference: SecretRef, certificates: str = "") -> SecretFile:
    """The file below the secrets folder that a reference of a spec fills."""
    if reference.secret is not None:
        return SecretFile(name=name, secret=reference.secret.name, key=reference.secret.key, certificates=certificates)
    return SecretFile(name=name, path=reference.file or "", variable=reference.env or "", certificates=certificates)
