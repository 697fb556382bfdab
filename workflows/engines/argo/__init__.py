"""The Argo engine: a real Argo Workflows runs the rendered manifest; this room submits, follows and answers over the plain API."""
