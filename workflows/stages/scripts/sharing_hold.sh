# Checks `sharing`, `sharing-limit` and `gang-fit`: run a CUDA kernel on what the pod was given, hold it for a while, and report the devices that it
# sees (MIG instances where there are any). Follows cuda_add.sh.
# In: NODE_NAME, SECONDS_TO_HOLD. Out: {"node","uuids":[…],"passed","error","begin","end"} with the node's clock in seconds
begin=$(date +%s) passed=0 error=
listed=$(nvidia-smi -L 2>&1)
uuids=$(printf '%s\n' "$listed" | sed -n 's/.*UUID: \(MIG-[0-9A-Za-z/-]*\)).*/\1/p')
[ -n "$uuids" ] || uuids=$(printf '%s\n' "$listed" | sed -n 's/.*UUID: \(GPU-[0-9A-Za-z-]*\)).*/\1/p')
printf '%s\n' "$listed"
for device in $uuids; do
  if said=$(add_on "$device"); then passed=$((passed + 1)); else error="$device: $said"; fi
  echo "$device: $said"
done
[ -n "$uuids" ] || error="nvidia-smi lists no device: $listed"
sleep "$SECONDS_TO_HOLD"
joined=$(printf '%s\n' "$uuids" | sed '/^$/d; s/.*/"&"/' | paste -s -d , -)
printf '{"node":"%s","uuids":[%s],"passed":%d,"error":"%s","begin":%d,"end":%d}' "$NODE_NAME" "$joined" "$passed" \
  "$(printf %s "$error" | tr -dc 'A-Za-z0-9 ._:/()-' | cut -c1-300)" "$begin" "$(date +%s)" > /dev/termination-log
