"""What executes a rendered workflow: `local` (embedded) or `argo`."""
