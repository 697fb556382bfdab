"""Stage gpu_operator: the GPU Operator serves every GPU, and a CUDA kernel runs on each of them."""
