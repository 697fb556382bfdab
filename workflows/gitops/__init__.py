"""The Git tree that Argo CD delivers from: spec and planned releases → a mapping of path to text, without I/O."""
