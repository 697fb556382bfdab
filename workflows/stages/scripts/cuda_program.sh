# Init container of check `srun`: leaves a program that adds vectors on a GPU in /program/add, for jobs in images without CUDA. Follows
# cuda_add.sh. The machine needs no GPU, so the program is built for all kinds.
export CUDA_ARCH=all-major
program=$(cuda_program) && cp "$program" /program/add || echo "$program"
