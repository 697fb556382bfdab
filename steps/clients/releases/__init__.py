"""Published release folders on this machine or behind SSH: publish, roll back, verify, retain, and report which node runs what."""
