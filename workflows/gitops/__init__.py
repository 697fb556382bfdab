"""What Argo CD delivers, as files for Git: spec and resolved releases → a tree of path and text. Pure."""
