# Shell function for check scripts: `add_on DEVICE` runs a CUDA vector addition on one device and prints what it says; it fails if the
# kernel does. Takes vectorAdd where the image has it, else builds it once with nvcc for CUDA_ARCH (default: that of this machine's GPUs).
cuda_program() {
  command -v vectorAdd || ls /cuda-samples/vectorAdd 2>/dev/null && return 0
  [ -x /tmp/add ] || {
    cat > /tmp/add.cu <<'END'
#include <cstdio>
__global__ void add(const float *a, const float *b, float *c, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x; if (i < n) c[i] = a[i] + b[i];
}
int main() {
  const int n = 1 << 20; float *a, *b, *c;
  if (cudaMallocManaged(&a, n * 4) || cudaMallocManaged(&b, n * 4) || cudaMallocManaged(&c, n * 4))
    return puts(cudaGetErrorString(cudaGetLastError())), 1;
  for (int i = 0; i < n; i++) { a[i] = i; b[i] = 2 * i; c[i] = 0; }
  add<<<(n + 255) / 256, 256>>>(a, b, c, n);
  if (cudaDeviceSynchronize()) return puts(cudaGetErrorString(cudaGetLastError())), 1;
  for (int i = 0; i < n; i++) if (c[i] != a[i] + b[i]) { printf("wrong sum at %d", i); return 1; }
  puts("Test PASSED");
}
END
    built=$(nvcc -arch="${CUDA_ARCH:-native}" -o /tmp/add /tmp/add.cu 2>&1) || { echo "no vectorAdd in the image, and nvcc: $built"; return 1; }
  }
  echo /tmp/add
}
add_on() {
  program=$(cuda_program) || { echo "$program"; return 1; }
  CUDA_VISIBLE_DEVICES=$1 "$program" 2>&1
}
