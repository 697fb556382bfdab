# Check `nccl-intra`: NCCL all-reduce over all GPUs of this node, several times; with ADAPTERS=1 also with P2P and shared memory off, so that
# all data pass through the node's adapters. Those runs tell which network they use (NCCL_DEBUG=INFO); of lines that differ in ranks only
# one is kept, with the number of the others.
# In: NODE_NAME, FIRST, LAST (sizes), RUNS, SECONDS_A_RUN, ADAPTERS. Out: {"node","exits":[one per run],"fabric_exits":[...],"packed":
# gzip+base64 of everything nccl-tests printed, with a mark before the runs over adapters}; too long for 4 kB, it stays in the log only.
PATH=$PATH:/opt/nccl_tests/build:/opt/nccl-tests/build
gpus=$(nvidia-smi -L | grep -c '^GPU ')
exits= fabric_exits=
for run in $(seq "$RUNS"); do
  NCCL_DEBUG=WARN timeout "$SECONDS_A_RUN" all_reduce_perf -b "$FIRST" -e "$LAST" -f 2 -g "$gpus" -c 1 >>/tmp/all 2>&1
  exits="$exits${exits:+,}$?"
done
shorten='
/ via NET\// || /NET\/IB|Using network|GPU Direct RDMA|Connected all rings|comm 0x/ {
  if (!/ NCCL INFO /) { print; next }
  key = $0
  sub(/^.* NCCL INFO /, "", key)
  if (key ~ / via NET/) sub(/^.* via /, "via ", key)
  else if (key ~ /comm 0x/) key = "comm"
  if (key in times) { times[key]++; next }
  times[key] = 0; first[key] = $0
  if (key !~ /^via /) print
  next
}
!/ NCCL INFO / { print }
END { for (key in first) if (key ~ /^via /) print first[key] (times[key] ? " [repeated " times[key] " more times]" : "") }'
if [ "${ADAPTERS:-0}" = 1 ]; then
  echo '@@ fabric 0' >>/tmp/all
  debug=INFO
  for run in $(seq "$RUNS"); do
    NCCL_DEBUG=$debug NCCL_DEBUG_SUBSYS=INIT,NET NCCL_P2P_DISABLE=1 NCCL_SHM_DISABLE=1 timeout "$SECONDS_A_RUN" \
      all_reduce_perf -b "$LAST" -e "$LAST" -f 2 -g "$gpus" -c 1 >/tmp/run 2>&1
    fabric_exits="$fabric_exits${fabric_exits:+,}$?"
    awk "$shorten" /tmp/run >>/tmp/all
    debug=WARN
  done
fi
cat /tmp/all
packed=$(gzip -9c /tmp/all | base64 | tr -d '\n')
[ ${#packed} -le 3800 ] || packed=
printf '{"node":"%s","exits":[%s],"fabric_exits":[%s],"packed":"%s"}' "$NODE_NAME" "$exits" "$fabric_exits" "$packed" >/dev/termination-log
