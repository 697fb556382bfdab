# Resumes Slurm nodes that were drained because slurmd counted too few GPUs, once slurmctld shows GPUs of them again. Runs in SUNK's login
# pod after gres.conf was corrected and the pods of slurmd were restarted. Nodes drained for another reason stay drained.
# In: SECONDS_TO_RUN. Out: a line `resumed NODE` for each node, and `still drained NODES` at the end; exit code 1 without slurmctld.
end=$(( $(date +%s) + SECONDS_TO_RUN ))
drained() { sinfo -h -N -O 'NodeList:200,Reason:200' | awk '/gres\/gpu count/ { print $1 }' | sort -u; }
sinfo -h >/dev/null || exit 1
while :; do
  nodes=$(drained)
  [ -n "$nodes" ] || exit 0
  for node in $nodes; do
    scontrol show node "$node" | grep -q 'Gres=gpu:' && scontrol update NodeName="$node" State=RESUME && echo "resumed $node"
  done
  [ "$(date +%s)" -lt "$end" ] || { echo "still drained" $nodes; exit 0; }
  sleep 10
done
