"""The only users of subprocesses, HTTP, SSH, Kubernetes, Ansible and the file system in a step."""
