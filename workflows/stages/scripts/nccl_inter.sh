# Check `nccl-inter`, on the launcher of an MPIJob: NCCL all-reduce over all GPUs of all workers, several times. The first run says which
# network it uses (NCCL_DEBUG=INFO); what is not about the network is left out, because a kubelet keeps 10 MB of a log.
# In: NODE_NAME, FIRST, LAST (sizes), RUNS, SECONDS_A_RUN, PER_NODE. Out: {"node","exits":[one per run]}; the output is the log.
PATH=$PATH:/opt/nccl_tests/build:/opt/nccl-tests/build
ranks=$(awk -F'slots=' '{ n += $2 } END { print n + 0 }' /etc/mpi/hostfile)
program=$(command -v all_reduce_perf || command -v all_reduce_perf_mpi)
exits= debug=INFO
for run in $(seq "$RUNS"); do
  { timeout "$SECONDS_A_RUN" mpirun --allow-run-as-root -np "$ranks" --map-by "ppr:$PER_NODE:node" --bind-to none \
      --mca pml ob1 --mca btl self,tcp --mca btl_tcp_if_include eth0 --mca coll ^hcoll \
      -x LD_LIBRARY_PATH -x PATH -x NCCL_SOCKET_IFNAME=eth0 -x NCCL_DEBUG="$debug" -x NCCL_DEBUG_SUBSYS=INIT,NET \
      "$program" -b "$FIRST" -e "$LAST" -f 2 -g 1 -c 1 2>&1; echo $? >/tmp/code; } |
    grep -Ev 'NCCL INFO (Channel [0-9/]+ : .* via (P2P|SHM)|Trees|Ring [0-9]+ :|Setting affinity|NCCL_[A-Z_]+ set by)'
  exits="$exits${exits:+,}$(cat /tmp/code)"
  debug=WARN
done
printf '{"node":"%s","exits":[%s]}' "$NODE_NAME" "$exits" >/dev/termination-log
