"""The Argo engine: submit a run to Argo Workflows, follow it, answer its approvals and cancel it, over the Kubernetes API."""
