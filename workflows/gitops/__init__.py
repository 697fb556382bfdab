"""The Git files that Argo CD deploys from: spec and planned releases → a mapping of path to text, computed without I/O."""
