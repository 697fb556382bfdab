# Check `gang-fit` without GPUs: hold the place of a gang member for a while, and report where and when it ran.
# Runs in any image with a shell, such as busybox.
# In: NODE_NAME, SECONDS_TO_HOLD. Out: {"node","begin","end"} with the node's clock in seconds
begin=$(date +%s)
sleep "$SECONDS_TO_HOLD"
printf '{"node":"%s","begin":%d,"end":%d}' "$NODE_NAME" "$begin" "$(date +%s)" > /dev/termination-log
