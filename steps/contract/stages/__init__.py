"""One module a stage: what its probes observe and what its gates expect, as frozen types."""
