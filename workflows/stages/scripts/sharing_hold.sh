# Check `sharing`: hold what the pod was given for a while, and say which devices it sees (MIG instances where there are any).
# In: NODE_NAME, SECONDS_TO_HOLD. Out: {"node","uuids":[…],"begin","end"} with the node's clock in seconds
begin=$(date +%s)
listed=$(nvidia-smi -L 2>&1)
uuids=$(printf '%s\n' "$listed" | sed -n 's/.*UUID: \(MIG-[0-9A-Za-z/-]*\)).*/"\1"/p')
[ -n "$uuids" ] || uuids=$(printf '%s\n' "$listed" | sed -n 's/.*UUID: \(GPU-[0-9A-Za-z-]*\)).*/"\1"/p')
printf '%s\n' "$listed"
sleep "$SECONDS_TO_HOLD"
joined=$(printf '%s\n' "$uuids" | sed '/^$/d' | paste -s -d , -)
printf '{"node":"%s","uuids":[%s],"begin":%d,"end":%d}' "$NODE_NAME" "$joined" "$begin" "$(date +%s)" > /dev/termination-log
