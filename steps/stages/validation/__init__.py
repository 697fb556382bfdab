"""Stage validation: the platform is accepted by NCCL inside and between nodes and by DCGM diagnostics."""
