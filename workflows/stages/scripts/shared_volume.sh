# Check `share`: the pod with index 0 writes a nonce to the shared volume, and each pod reads it on its own node.
# Runs in any image with a shell, such as busybox. A volume that every node has for itself shows no file to the others.
# In: NODE_NAME, JOB_COMPLETION_INDEX, NONCE, WAIT_SECONDS. Out: {"node","wrote","read","error"}
file=/share/.bringup-check-$NONCE
wrote= read= error=
if [ "$JOB_COMPLETION_INDEX" = 0 ]; then
  if printf %s "$NONCE" > "$file.part" && sync && mv "$file.part" "$file"; then wrote=$NONCE; else error="cannot write"; fi
fi
end=$(($(date +%s) + WAIT_SECONDS))
while [ ! -f "$file" ] && [ "$(date +%s)" -lt "$end" ]; do
  ls /share > /dev/null  # NFS clients cache that a file is missing
  sleep 1
done
if [ -f "$file" ]; then read=$(head -c 100 "$file" | tr -cd 'A-Za-z0-9-'); else error=${error:-"no file after $WAIT_SECONDS s"}; fi
printf '{"node":"%s","wrote":"%s","read":"%s","error":"%s"}' \
  "$NODE_NAME" "$wrote" "$read" "$error" > /dev/termination-log
# the others may still read; an old nonce never equals a new one
if [ "$JOB_COMPLETION_INDEX" = 0 ]; then find /share -maxdepth 1 -name '.bringup-check-*' -mmin +60 -exec rm -f {} +; fi
