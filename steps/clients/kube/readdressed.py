"""A kubeconfig with another address for the same cluster, such as that of a tunnel. Pure."""

from steps.errors import NotUnderstood


def by_way_of(kubeconfig: str, server: str, name: str) -> str:
    """Return the kubeconfig for an API server reached at `server`, whose certificate is checked for `name`.

    Raises NotUnderstood if the kubeconfig names no cluster.
    """
    import yaml  # imported here: some verbs need no cluster

    try:
        document = yaml.safe_load(kubeconfig)
        clusters = [row["cluster"] for row in document["clusters"]]
        for cluster in clusters:
            cluster.update({"server": server, "tls-server-name": name})
    except (yaml.YAMLError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise NotUnderstood("the kubeconfig of the new cluster is none that names a cluster") from error
    if not clusters:
        raise NotUnderstood("the kubeconfig of the new cluster names no cluster")
    return yaml.safe_dump(document, sort_keys=False, width=1 << 20)
