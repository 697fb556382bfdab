"""What a task does: the only place where probes, gates and clients meet. One module a verb, each with `run(context)`."""
