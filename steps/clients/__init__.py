"""Clients: the only users of subprocesses, HTTP, SSH, Kubernetes, Git, Ansible and the file system in a step."""
