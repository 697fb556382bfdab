"""Parses a configuration of NVIDIA's device plugin (YAML text in a ConfigMap); format:
https://github.com/NVIDIA/k8s-device-plugin.
"""

from typing import Any

from steps.stages.sharing.contract import Shares

MAX_CONFIG = 65536
"""Most characters of a configuration that are parsed."""


def read_shares(text: str) -> Shares | None:
    """Return the shares that a configuration asks for; None if the text is no configuration."""
    import yaml  # 30 ms that only this stage pays

    if len(text) > MAX_CONFIG:
        return None
    try:
        data: Any = yaml.safe_load(text)
    except yaml.YAMLError:
        return None
    if not isinstance(data, dict) or "version" not in data:
        return None
    sharing = data.get("sharing") or {}
    for strategy in ("timeSlicing", "mps"):
        part = sharing.get(strategy) if isinstance(sharing, dict) else None
        if isinstance(part, dict):
            return _shares(strategy, part)
    return Shares()


def _shares(strategy: str, part: dict[str, Any]) -> Shares | None:
    resources = part.get("resources")
    first = resources[0] if isinstance(resources, list) and resources else None
    replicas = first.get("replicas") if isinstance(first, dict) and first.get("name") == "nvidia.com/gpu" else None
    if not isinstance(replicas, int):
        return None
    return Shares(
        strategy=strategy,
        replicas=replicas,
        rename=part.get("renameByDefault") is True,
        refuse_two=part.get("failRequestsGreaterThanOne") is True,
    )
