# Reports every GPU's UUID and how many devices (GPUs, or MIG instances where there are some) ran a vector addition.
# Runs in any image with a shell; takes vectorAdd where the image has it, else builds it with nvcc. Ends with 0: the report decides.
say() { printf '{"node":"%s","uuids":[%s],"devices":%d,"passed":%d,"error":"%s"}' "$NODE_NAME" "$list" "$devices" "$passed" \
  "$(printf %s "$error" | tr -dc 'A-Za-z0-9 ._:/()-' | cut -c1-300)" > /dev/termination-log; exit 0; }
list= devices=0 passed=0 error=
uuids=$(nvidia-smi --query-gpu=uuid --format=csv,noheader 2>&1) || { error="nvidia-smi: $uuids"; say; }
list=$(printf '%s\n' "$uuids" | sed 's/.*/"&"/' | paste -sd, -)
slices=$(nvidia-smi -L | sed -n 's/.*UUID: \(MIG-[^)]*\)).*/\1/p')
program=$(command -v vectorAdd || ls /cuda-samples/vectorAdd 2>/dev/null)
if [ -z "$program" ]; then
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
  program=/tmp/add
  built=$(nvcc -arch=native -o "$program" /tmp/add.cu 2>&1) || { error="no vectorAdd in the image, and nvcc: $built"; say; }
fi
for device in ${slices:-$uuids}; do
  devices=$((devices + 1))
  if said=$(CUDA_VISIBLE_DEVICES=$device "$program" 2>&1); then passed=$((passed + 1)); else error="$device: $said"; fi
  echo "$device: $said"
done
say
