"""Host keys: scanned, shown with their fingerprints, compared with known_hosts, and written once somebody has said yes."""
