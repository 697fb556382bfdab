"""Code that several verbs share: the context of a task, gates by id, identity and lease of the target, reuse, and diagnosis."""
