"""The simulated machines, and the port at which the kubelets of all of them answer."""
