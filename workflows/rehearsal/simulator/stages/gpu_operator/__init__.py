"""Stage gpu_operator: the simulated GPU Operator and its work on nodes."""
