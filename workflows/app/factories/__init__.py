"""Use cases of factories: plan, build, show, and remove the disposable Kubernetes of a `factory.yaml`."""
