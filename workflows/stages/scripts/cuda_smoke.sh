# Reports every GPU's UUID and firmware, the driver, how many devices (GPUs, or MIG instances where there are some) ran a vector
# addition, and how many of the GPUs the node's metrics exporter serves (EXPORTER: its address; empty: not asked).
# Follows cuda_add.sh. Ends with 0: the report decides.
plain() { printf %s "$1" | tr -dc 'A-Za-z0-9 ._:/()-' | cut -c1-300; }
say() { printf '{"node":"%s","uuids":[%s],"vbios":[%s],"driver":"%s","driver_flavour":"%s","cuda":"%s","devices":%d,"passed":%d,' \
  "$NODE_NAME" "$list" "$firmware" "$driver" "$flavour" "$cuda" "$devices" "$passed" > /dev/termination-log
  printf '"exported":%d,"exporter_error":"%s","error":"%s"}' "$exported" "$(plain "$refused")" "$(plain "$error")" \
  >> /dev/termination-log; exit 0; }
quoted() { sed 's|[^]A-Za-z0-9._:/[-]||g; s|.*|"&"|' | paste -sd, -; }
list= firmware= driver= flavour= cuda= devices=0 passed=0 error= exported=-1 refused=
rows=$(nvidia-smi --query-gpu=uuid,vbios_version,driver_version --format=csv,noheader 2>&1) || { error="nvidia-smi: $rows"; say; }
uuids=$(printf '%s\n' "$rows" | cut -d, -f1)
list=$(printf '%s\n' "$uuids" | quoted)
firmware=$(printf '%s\n' "$rows" | cut -s -d, -f2 | quoted)
driver=$(plain "$(printf '%s\n' "$rows" | head -n 1 | cut -s -d, -f3 | tr -d ' ')")
cuda=$(nvidia-smi | sed -n 's/.*CUDA Version: *\([0-9.]*\).*/\1/p' | head -n 1)
case $(head -n 1 "${PROC:-/proc}/driver/nvidia/version" 2>/dev/null) in
  *"Open Kernel Module"*) flavour=open;; *"Kernel Module"*) flavour=proprietary;;
esac
slices=$(nvidia-smi -L | sed -n 's/.*UUID: \(MIG-[^)]*\)).*/\1/p')
for device in ${slices:-$uuids}; do
  devices=$((devices + 1))
  if said=$(add_on "$device"); then passed=$((passed + 1)); else error="$device: $said"; fi
  echo "$device: $said"
done
metrics() {
  curl --noproxy '*' -sS -f -m 10 "http://$EXPORTER/metrics" 2>&1 && return
  NO_PROXY='*' no_proxy='*' wget -q -T 10 -O - "http://$EXPORTER/metrics" 2>&1 && return
  bash -c 'exec 3<>"/dev/tcp/${0%:*}/${0##*:}" && printf "GET /metrics HTTP/1.0\r\n\r\n" >&3 && timeout 10 cat <&3' "$EXPORTER" 2>&1
}
try=0
while [ -n "$EXPORTER" ] && [ "$try" -lt 12 ]; do
  shown=$(metrics) && case $shown in *'UUID="'*) try=99;; esac
  try=$((try + 1))
  [ "$try" -eq 100 ] || { refused=$shown; sleep 5; }
done
if [ "$try" -eq 100 ]; then
  exported=0 refused=
  for uuid in $uuids; do case $shown in *"UUID=\"$uuid\""*) exported=$((exported + 1));; esac; done
fi
say
