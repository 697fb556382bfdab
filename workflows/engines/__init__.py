"""The engines that execute a rendered workflow: `local` (embedded) and `argo`."""
