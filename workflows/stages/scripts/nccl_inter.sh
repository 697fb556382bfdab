# Check `nccl-inter`, on the launcher of an MPIJob: NCCL all-reduce over all GPUs of all workers, several times. The first run says which
# network it uses (NCCL_DEBUG=INFO). A kubelet keeps 10 MB of a log, and 80,000 ranks write 500 MB, so lines that differ in the rank only
# are written once, with the number of the others; all lines with a warning or a result stay as they are.
# Then the programs in PROGRAMS follow: all_gather and alltoall as often, `scaling` for all-reduce over the first 2, 4, 8 … nodes once
# each, and osu_… between two workers or over all where the image has them. Each run stands between marks with its end code, and of its
# ranks the log has the first one, and in a mark how many there are on how many hosts.
# In: NODE_NAME, FIRST, LAST (sizes), RUNS, SECONDS_A_RUN, PER_NODE, PROGRAMS, and NCCL_IB_HCA where the plan names the adapters.
# Out: {"node","exits":[one per run of all-reduce over all]}; the output is the log.
PATH=$PATH:/opt/nccl_tests/build:/opt/nccl-tests/build
ranks=$(awk -F'slots=' '{ n += $2 } END { print n + 0 }' /etc/mpi/hostfile)
count=$(grep -c slots= /etc/mpi/hostfile)
# awk program over the output of one run. With `brief` set, only the first rank is printed, and at the end a mark with the number of ranks
# and of hosts.
collapse='
# a line, and how often lines like it were left out
function tell(line, more) { print line (more > 0 ? " [repeated " more " more times]" : "") }
function flush_rank() {
  if (rank != "") tell(rank, more)
  rank = ""; more = 0
}
# the table of ranks: one line for the ranks of a host that follow each other
/#? *Rank +[0-9]+ .* device +[0-9]+ \[/ {
  machine = $0
  sub(/^.* on +/, "", machine)
  sub(/ device.*\]/, "", machine)
  if (brief) {
    if (!ranks++) print
    if (!(machine in machines)) { machines[machine]; hosts++ }
    next
  }
  if (rank != "" && machine == held) more++
  else flush_rank()
  rank = $0; held = machine
  next
}
{ flush_rank() }
# notes of NCCL: noise is dropped; lines with the same key, which is the text without what differs between ranks, are printed at the end.
# Numbers stay in the key where a gate reads them: network, GPU Direct RDMA, connections, versions and NVLink domains.
/ NCCL INFO / {
  if ($0 ~ /NCCL INFO (Channel [0-9\/]+ : .* via (P2P|SHM)|Channel [0-9\/]+ : [0-9 ]+$|Trees|Ring [0-9]+ :|Setting affinity)/) next
  if ($0 ~ /NCCL INFO NCCL_[A-Z_]+ set by/) next
  key = $0
  sub(/^.* NCCL INFO /, "", key)
  if (brief) gsub(/[0-9a-f.:]+<[0-9]+>/, "", key)
  if (key ~ /^Channel .* via /) sub(/^.* via /, "via ", key)
  else if (key ~ / comm 0x|^comm 0x/) {
    gsub(/0x[0-9a-f]+/, "", key)
    gsub(/(^| )([Rr]ank|localRank|cliqueRank|cudaDev|nvmlDev|busId) [0-9a-f]+/, "", key)
  } else if (key !~ /Using|GPU Direct RDMA|Connected|version|MNNVL/) gsub(/[0-9]+/, "", key)
  if (key in times) { times[key]++; next }
  times[key] = 0; first[key] = $0; order[++count] = key
}
# results, warnings and errors stay as they are
{ print }
END {
  flush_rank()
  for (i = 1; i <= count; i++) if (times[order[i]]) tell(first[order[i]], times[order[i]] - 1)
  if (brief) print "@@ bringup ranks " ranks + 0 " hosts " hosts + 0
}'
launch() {
  processes=$1 per_node=$2 brief=$3; shift 3
  { timeout "$SECONDS_A_RUN" mpirun --allow-run-as-root $hostfile -np "$processes" --map-by "ppr:$per_node:node" --bind-to none \
      $transport --mca coll ^hcoll -x LD_LIBRARY_PATH -x PATH "$@" 2>&1; echo $? >/tmp/code; } | awk -v brief="$brief" "$collapse"
}
nccl() {
  processes=$1 brief=$2 debug=$3; shift 3
  launch "$processes" "$PER_NODE" "$brief" -x NCCL_SOCKET_IFNAME=eth0 -x NCCL_DEBUG="$debug" -x NCCL_DEBUG_SUBSYS=INIT,NET \
    ${NCCL_IB_HCA:+-x NCCL_IB_HCA} "$@"
}
find_program() {
  command -v "$1" || command -v "$1_mpi" || ls -d /opt/*/ompi/tests/osu*/"$1" /opt/*osu*/mpi/*/"$1" \
    /usr/lib*/osu*/*/"$1" /usr/local/libexec/osu*/mpi/*/"$1" 2>/dev/null | head -n 1
}
part() {
  name=$1 nodes=$2 repeats=$3 file=$4; shift 4
  head -n "$nodes" /etc/mpi/hostfile >/tmp/hosts
  hostfile="--hostfile /tmp/hosts" level=INFO
  for run in $(seq "$repeats"); do
    echo "@@ bringup begin $name nodes $nodes over $over"
    case $name in
      osu_*) launch "$nodes" 1 1 "$file" ;;
      *) nccl $((nodes * PER_NODE)) 1 "$level" "$file" "$@" -f 2 -g 1 -c 1 ;;
    esac
    echo "@@ bringup end $(cat /tmp/code)"
    level=WARN
  done
}
tcp="--mca pml ob1 --mca btl self,tcp --mca btl_tcp_if_include eth0"
program=$(find_program all_reduce_perf)
transport=$tcp hostfile= over=nccl exits= level=INFO
for run in $(seq "$RUNS"); do
  nccl "$ranks" 0 "$level" "$program" -b "$FIRST" -e "$LAST" -f 2 -g 1 -c 1
  exits="$exits${exits:+,}$(cat /tmp/code)"
  level=WARN
done
case $exits in *[!0,]*) PROGRAMS= ;; esac
for name in ${PROGRAMS:-}; do
  case $name in scaling) file=$program ;; osu_*) file=$(find_program "$name") ;; *) file=$(find_program "${name}_perf") ;; esac
  if [ -z "$file" ]; then echo "@@ bringup absent $name"; continue; fi
  case $name in
    scaling)
      nodes=2
      while [ "$nodes" -lt "$count" ]; do
        part all_reduce "$nodes" 1 "$file" -b "$LAST" -e "$LAST"
        nodes=$((nodes * 2))
      done ;;
    osu_*)
      if ompi_info 2>/dev/null | grep -q 'pml: ucx'; then over=ucx transport='--mca pml ucx'; else over=tcp transport=$tcp; fi
      case $name in osu_allreduce) nodes=$count ;; *) nodes=2 ;; esac
      part "$name" "$nodes" 1 "$file"
      over=nccl transport=$tcp ;;
    *) part "$name" "$count" "$RUNS" "$file" -b "$FIRST" -e "$LAST" ;;
  esac
done
printf '{"node":"%s","exits":[%s]}' "$NODE_NAME" "$exits" >/dev/termination-log
