"""The engines that execute a rendered workflow: `local` on this machine, `argo` on a cluster with Argo Workflows."""
