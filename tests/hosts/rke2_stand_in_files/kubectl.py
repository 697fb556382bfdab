#!/usr/bin/python3
"""A stand-in for kubectl: the commands that the plays use, against the stand-in server on this host; each write is logged.

Plays call it hundreds of times, so it speaks HTTP by itself: to load Python's library for that would take most of its time.
"""

import json
import os
import socket
import sys

API = ("127.0.0.1", 6443)
LOG = "/var/log/kubectl-stand-in.log"


def ask(method: str, path: str, body: bytes = b"") -> str:
    """Send a request to the server on this host and return the text of its answer; exit with any status but 200."""
    with socket.create_connection(API, timeout=5) as server:
        server.sendall(f"{method} {path} HTTP/1.0\r\nContent-Length: {len(body)}\r\n\r\n".encode() + body)
        with server.makefile("rb") as answer:
            status, (_, _, text) = answer.readline(), answer.read().partition(b"\r\n\r\n")
    if status.split()[1:2] != [b"200"]:
        sys.exit(f"Error from server: {method} {path}: {status.decode().strip()}")
    return text.decode()


def get(path: str) -> str:
    """Read from the server."""
    return ask("GET", path)


def put(nodes: dict, removed: list) -> None:
    """Write to the server, and so to all servers."""
    ask("POST", "/stand-in/spread", json.dumps({"nodes": nodes, "removed": removed}).encode())


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
    with open(LOG, "a") as log:
        log.write(f"{command} {name}\n")
    if command == "delete" and words[1].startswith("node"):
        put({}, [name])
    elif command == "drain" and os.path.exists(f"/etc/stuck-{name}"):
        sys.exit('error when evicting pods/"web-0": Cannot evict pod as it would violate the pod\'s disruption budget.')
    elif command not in ("drain", "delete"):
        change(command, name, words[3:])
    return None


main()
