"""Host keys: scan them, show their fingerprints, compare them with known_hosts, and write them once a person has agreed."""
