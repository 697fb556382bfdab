"""Installation of charts in the simulated cluster: by RKE2's helm-controller, by Argo CD, and for operators of stages."""
