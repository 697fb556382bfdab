"""Stage sharing: GPUs are divided among pods exactly as the spec says, or not at all in mode `none`."""
