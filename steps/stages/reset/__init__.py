"""Stage reset: nothing of RKE2 is left on any host."""
