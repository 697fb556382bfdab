# Resumes Slurm nodes that were drained because slurmd counted too few GPUs, once slurmctld shows GPUs of them again. Runs in SUNK's login
# pod after gres.conf was corrected and the pods of slurmd were restarted. Nodes drained for another reason stay drained.
# If TOPOLOGY has a text, slurmctld reads topology.conf again, once the kubelet has brought that text into the pod (one to two minutes).
# In: SECONDS_TO_RUN, TOPOLOGY. Out: a line `resumed NODE` for each node, and `still drained NODES` at the end; exit code 1 without slurmctld.
end=$(( $(date +%s) + SECONDS_TO_RUN ))
drained() { sinfo -h -N -O 'NodeList:200,Reason:200' | awk '/gres\/gpu count/ { print $1 }' | sort -u; }
sinfo -h >/dev/null || exit 1
if [ -n "${TOPOLOGY:-}" ]; then
  until [ "$(cat /etc/slurm/topology.conf 2>/dev/null)" = "$TOPOLOGY" ] || [ "$(date +%s)" -ge $((end - 90)) ]; do sleep 5; done
  scontrol reconfigure || exit 1
fi
while :; do
  nodes=$(drained)
  [ -n "$nodes" ] || exit 0
  for node in $nodes; do
    scontrol show node "$node" | grep -q 'Gres=gpu:' && scontrol update NodeName="$node" State=RESUME && echo "resumed $node"
  done
  [ "$(date +%s)" -lt "$end" ] || { echo "still drained" $nodes; exit 0; }
  sleep 10
done
