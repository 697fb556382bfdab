"""Check a user's own GitOps tree before Argo CD reads it."""
