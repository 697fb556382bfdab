# Reports where and when a gang member ran that requests no GPU.
# Runs in any image with a shell, date and printf, such as busybox.
printf '{"node":"%s","time":%d}' "$NODE_NAME" "$(date +%s)" > /dev/termination-log
