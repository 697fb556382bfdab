"""The simulated cluster that a rehearsal runs against: an emulated Kubernetes API, a simulator and its faults."""
