"""The verbs, one module each with `run(context)`. Probes, gates and clients meet only here."""
