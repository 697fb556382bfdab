"""Named disturbances of the simulated cluster, as data; the simulator's roles give them effect."""
