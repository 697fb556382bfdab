"""An emulated Kubernetes API server: storage and API over HTTP, no controllers."""

from workflows.rehearsal.apiserver.server import RunningServer, serve_in_thread

__all__ = ["RunningServer", "serve_in_thread"]
