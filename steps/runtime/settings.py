"""Settings and Secrets beside a task's objects: bringup's keys of argocd-cm, access to the repository, Secrets from files."""

import base64
from typing import Any

from steps.clients import secret_file
from steps.clients.git import git_access
from steps.contract.delivery import SECRET_TYPE, ConfigMapKeys, RepositorySecret
from steps.contract.objects.target_secret import FileSecret
from steps.contract.plain_text import count
from steps.runtime import config_maps, delivery_inputs
from steps.runtime.context import Context

Object = dict[str, Any]


def merge(context: Context, wanted: ConfigMapKeys) -> None:
    """Set bringup's keys of a ConfigMap and no others. Nothing is written if its owner already has the texts.

    Raises ApiError if there is no ConfigMap, and Conflict if its owner would undo the change.
    """
    name, live = config_maps.describe(wanted), config_maps.read(context, wanted)
    texts = delivery_inputs.texts(context, wanted)
    differing = {key: text for key, text in texts.items() if live.data.get(key, "").rstrip("\n") != text.rstrip("\n")}
    # the owner has the same texts, so nothing is contested
    if not differing:
        context.did(f"unchanged {name}: {count(len(wanted.keys), 'key')}")
        return
    config_maps.check_unowned(live, name, sorted(differing), "bootstrap/argocd-cm.yaml has them; chart argo-cd: values configs.cm")
    context.kube.merge(context.kube.path(config_maps.config_map(wanted)), {"data": differing})
    context.did(f"changed {name}: {', '.join(sorted(differing))}")


def secret(context: Context, wanted: RepositorySecret) -> Object:
    """Return the Secret that gives Argo CD access to the repository; never log it. Raises BadTask for an unusable secret file."""
    text = git_access.read_credentials(context.environment, wanted.credentials)
    data = {"type": "git", "url": wanted.url, **({"project": wanted.project} if wanted.project else {})}
    if secret_file.has_private_key(text):
        data["sshPrivateKey"] = f"{text}\n"  # OpenSSH reads no key without its final line end
    else:
        data["username"], data["password"] = git_access.login(text)
    meta = {"name": wanted.name, "namespace": wanted.namespace, "labels": {SECRET_TYPE: "repository"}}
    packed = {key: base64.b64encode(value.encode()).decode() for key, value in data.items()}
    return {"apiVersion": "v1", "kind": "Secret", "metadata": meta, "type": "Opaque", "data": packed}


def file_secret(context: Context, wanted: FileSecret) -> Object:
    """Return the Secret with the content of a secret file; never log it. Raises BadTask for an unusable secret file."""
    text = secret_file.text(context.environment.secrets, wanted.file, wanted.field)
    meta = {"name": wanted.name, "namespace": wanted.namespace}
    data = {wanted.key: base64.b64encode(text.encode()).decode()}
    return {"apiVersion": "v1", "kind": "Secret", "metadata": meta, "type": "Opaque", "data": data}
