"""An emulated Kubernetes API server: storage and API over HTTP, no controllers."""

from workflows.rehearsal.apiserver.emulated_server import RunningServer, serve_in_thread

__all__ = ["RunningServer", "serve_in_thread"]
