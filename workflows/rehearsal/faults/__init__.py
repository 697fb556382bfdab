"""Named faults of the simulated cluster, described as data; the simulator asks for them by name and plays their effect."""
