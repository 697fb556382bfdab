# Checks `slurm-pods` and `slurm-lock`: a pod that runs for some seconds on a node of Slurm. In: NODE_NAME, SECONDS_TO_RUN. Out: {"node"}.
sleep "$SECONDS_TO_RUN"
printf '{"node":"%s"}' "$NODE_NAME" >/dev/termination-log
