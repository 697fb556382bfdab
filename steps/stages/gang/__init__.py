"""Stage gang: gangs of pods are placed all or nothing, and quotas count the GPUs that nodes advertise."""
