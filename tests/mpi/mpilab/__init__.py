"""Launcher of hosts with a fabric of two leaf switches, and of real MPI programs on them."""
