# Check `nccl-inter`, on the launcher of an MPIJob: NCCL all-reduce over all GPUs of all workers, several times. The first run says which
# network it uses (NCCL_DEBUG=INFO). A kubelet keeps 10 MB of a log, and 80,000 ranks write 500 MB, so lines that differ in the rank only
# are written once, with the number of the others; all lines with a warning or a result stay as they are.
# In: NODE_NAME, FIRST, LAST (sizes), RUNS, SECONDS_A_RUN, PER_NODE. Out: {"node","exits":[one per run]}; the output is the log.
PATH=$PATH:/opt/nccl_tests/build:/opt/nccl-tests/build
ranks=$(awk -F'slots=' '{ n += $2 } END { print n + 0 }' /etc/mpi/hostfile)
program=$(command -v all_reduce_perf || command -v all_reduce_perf_mpi)
collapse='
function tell(line, more) { print line (more > 0 ? " [repeated " more " more times]" : "") }
function flush_rank() {
  if (rank != "") tell(rank, more)
  rank = ""; more = 0
}
/#? *Rank +[0-9]+ .* device +[0-9]+ \[/ {
  machine = $0
  sub(/^.* on +/, "", machine)
  sub(/ device.*\]/, "", machine)
  if (rank != "" && machine == held) more++
  else flush_rank()
  rank = $0; held = machine
  next
}
{ flush_rank() }
/ NCCL INFO / {
  if ($0 ~ /NCCL INFO (Channel [0-9\/]+ : .* via (P2P|SHM)|Channel [0-9\/]+ : [0-9 ]+$|Trees|Ring [0-9]+ :|Setting affinity)/) next
  if ($0 ~ /NCCL INFO NCCL_[A-Z_]+ set by/) next
  key = $0
  sub(/^.* NCCL INFO /, "", key)
  if (key ~ /^Channel .* via /) sub(/^.* via /, "via ", key)
  else if (key ~ / comm 0x|^comm 0x/) {
    gsub(/0x[0-9a-f]+/, "", key)
    gsub(/(^| )([Rr]ank|localRank|cliqueRank|cudaDev|nvmlDev|busId) [0-9a-f]+/, "", key)
  } else if (key !~ /Using|GPU Direct RDMA|Connected|version|MNNVL/) gsub(/[0-9]+/, "", key)
  if (key in times) { times[key]++; next }
  times[key] = 0; first[key] = $0; order[++count] = key
}
{ print }
END {
  flush_rank()
  for (i = 1; i <= count; i++) if (times[order[i]]) tell(first[order[i]], times[order[i]] - 1)
}'
exits= debug=INFO
for run in $(seq "$RUNS"); do
  { timeout "$SECONDS_A_RUN" mpirun --allow-run-as-root -np "$ranks" --map-by "ppr:$PER_NODE:node" --bind-to none \
      --mca pml ob1 --mca btl self,tcp --mca btl_tcp_if_include eth0 --mca coll ^hcoll \
      -x LD_LIBRARY_PATH -x PATH -x NCCL_SOCKET_IFNAME=eth0 -x NCCL_DEBUG="$debug" -x NCCL_DEBUG_SUBSYS=INIT,NET \
      "$program" -b "$FIRST" -e "$LAST" -f 2 -g 1 -c 1 2>&1; echo $? >/tmp/code; } | awk "$collapse"
  exits="$exits${exits:+,}$(cat /tmp/code)"
  debug=WARN
done
printf '{"node":"%s","exits":[%s]}' "$NODE_NAME" "$exits" >/dev/termination-log
