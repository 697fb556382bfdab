"""Types of a run's records and of what its steps tell each other."""
