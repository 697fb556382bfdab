# Check `dcgm`: DCGM's own diagnostic of this node's GPUs, with a host engine that lives as long as the pod.
# In: NODE_NAME, LEVEL, SECONDS_TO_RUN. Out: {"node","exits":[n],"packed": gzip+base64 of the JSON}; too long for 4 kB, it is in the log only.
nv-hostengine --log-level ERROR >/tmp/engine 2>&1
for try in $(seq 30); do dcgmi discovery -l >/dev/null 2>&1 && break; sleep 1; done
timeout "$SECONDS_TO_RUN" dcgmi diag -r "$LEVEL" -j >/tmp/all 2>&1
code=$?
[ -s /tmp/all ] || cat /tmp/engine >/tmp/all
cat /tmp/all
packed=$(gzip -9c /tmp/all | base64 | tr -d '\n')
[ ${#packed} -le 3800 ] || packed=
printf '{"node":"%s","exits":[%d],"packed":"%s"}' "$NODE_NAME" "$code" "$packed" >/dev/termination-log
