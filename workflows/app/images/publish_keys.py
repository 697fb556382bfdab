"""Fetch the SSH key for a boot server from a Secret. A module of its own, because the Kubernetes client takes long to import."""

from workflows.app import kubeconfigs
from workflows.engines.argo import prerequisites
from workflows.engines.argo.home import NoHomeCluster
from workflows.engines.run_secrets import SecretMissing
from workflows.spec.pipelines.publish_access import PublishSsh
from workflows.stages.host_access import SecretFile


def publish_key(kubeconfig: str, context: str, namespace: str, ssh: PublishSsh, key: SecretFile) -> bytes:
    """Return the private key with which pods publish, from the home cluster.

    Raises SecretMissing with a hint to use one's own key.
    """
    namespace = (ssh.key.secret.namespace if ssh.key.secret else "") or namespace
    try:
        return prerequisites.fetch_secret(kubeconfigs.home(kubeconfig, context, namespace), key)
    except NoHomeCluster as error:
        problem = f"secret {key.name} is a key of the Secret {key.secret} of the home cluster, and {error}"
        raise SecretMissing(problem, f"{error.hint}; or log in as yourself, with --ssh-key and --ssh-user") from error
    except SecretMissing as error:
        raise SecretMissing(str(error), error.hint or "log in as yourself, with --ssh-key and --ssh-user") from error
