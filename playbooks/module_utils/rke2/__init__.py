"""What the modules for RKE2 share on the node: its release, its supervisor, its kubectl, and the traces it leaves."""
