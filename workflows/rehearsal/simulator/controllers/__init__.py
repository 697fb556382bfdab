"""Controllers, scheduler and kubelets that every Kubernetes cluster has, with the pods and Nodes that they keep."""
