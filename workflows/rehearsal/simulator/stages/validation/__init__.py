"""Stage validation: the simulated MPI operator, and the programs of checks with the output of the real tools."""
