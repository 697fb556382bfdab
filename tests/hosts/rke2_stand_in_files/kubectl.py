#!/usr/bin/python3
"""A stand-in for kubectl: the commands that the plays use, against the stand-in server on this host; each write is logged."""

import json
import sys
import urllib.request
from pathlib import Path

API = "http://127.0.0.1:6443"
LOG = Path("/var/log/kubectl-stand-in.log")


def get(path: str) -> str:
    """Read from the server."""
    return urllib.request.urlopen(API + path, timeout=5).read().decode()


def put(nodes: dict, removed: list) -> None:
    """Write to the server, and so to all servers."""
    body = json.dumps({"nodes": nodes, "removed": removed}).encode()
    urllib.request.urlopen(urllib.request.Request(API + "/stand-in/spread", data=body), timeout=5).read()


def show(words: list, options: list) -> None:
    """`get nodes`, by name, by the label of servers, or as columns."""
    nodes = json.loads(get("/stand-in/nodes"))
    chosen = [nodes[name] for name in words if name in nodes] if words else list(nodes.values())
    if any(option.startswith("--selector=") for option in options):
        chosen = [node for node in chosen if node["metadata"]["labels"]]
    if "--output=json" in options:
        print(json.dumps({"items": chosen}))
    else:
        print("\n".join(f"{node['metadata']['name']} {node['status']['nodeInfo']['kubeletVersion']}" for node in chosen))


def change(command: str, name: str, rest: list) -> None:
    """A write to one node."""
    node = json.loads(get("/stand-in/nodes"))[name]
    annotations = node["metadata"]["annotations"]
    if command == "annotate" and rest[0].endswith("-"):
        annotations.pop(rest[0][:-1], None)
    elif command == "annotate":
        annotations.update([rest[0].split("=", 1)])
    else:
        node["spec"]["unschedulable"] = command == "cordon"
    put({name: node}, [])


def main() -> None:
    """Parse `kubectl --kubeconfig FILE --request-timeout=… COMMAND …`."""
    # the real one knows networks in NO_PROXY, as 127.0.0.0/8
    urllib.request.install_opener(urllib.request.build_opener(urllib.request.ProxyHandler({})))
    given = [word for word in sys.argv[3:] if not word.startswith("--request-timeout")]
    options, words = [word for word in given if word.startswith("--")], [word for word in given if not word.startswith("--")]
    command = words[0]
    if command == "get" and "--raw" in options:
        all_nodes = words[1].startswith("/api/v1/nodes?")
        print(json.dumps({"items": list(json.loads(get("/stand-in/nodes")).values())}) if all_nodes else get(words[1]))
        return None
    if command == "get" and words[1] == "namespace":
        print("0b9ac1f0-3a0c-4f0a-9d53-1df3bb8d7f4e", end="")
        return None
    if command == "get":
        return show(words[2:], options)
    name = words[1] if command in ("cordon", "uncordon", "drain") else words[2]
    with LOG.open("a") as log:
        log.write(f"{command} {name}\n")
    if command == "delete" and words[1].startswith("node"):
        put({}, [name])
    elif command == "drain" and Path(f"/etc/stuck-{name}").exists():
        sys.exit('error when evicting pods/"web-0": Cannot evict pod as it would violate the pod\'s disruption budget.')
    elif command not in ("drain", "delete"):
        change(command, name, words[3:])
    return None


main()
