"""Code shared by the modules for RKE2: its release, supervisor, kubectl and traces."""
