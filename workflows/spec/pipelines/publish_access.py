"""Access of a spec to the host that serves its published results."""

from pydantic import Field

from workflows.spec.fields import Argument, SecretRef, Section
from workflows.spec.sections.hosts import Address, SshPort, SshUser

PUBLISH_KEY, PUBLISH_KNOWN_HOSTS = "publish_ssh_key", "publish_known_hosts"
"""Names of files in the secrets folder: the SSH key for the host of published results, and that host's public key."""


class PublishSsh(Section):
    """SSH access to the host with the published folder, if that is neither on this machine nor mounted here."""

    host: Address = Field(description="The host.", examples=["boot.example.org"])
    user: SshUser = Field(default="root", description="User that logs in.", examples=["images"])
    port: SshPort = Field(default=22, description="Port.", examples=[22])
    key: SecretRef = Field(description="Private key.", examples=[{"file": "./id_ed25519"}])
    known_hosts: Argument = Field(
        description="Path of the known_hosts file, relative to the spec: the host's key is never taken on trust.",
        examples=["./known_hosts"],
    )
