# Check `srun`: joins the Slurm cluster as a login host does where SERVER is set, else runs in a login pod; asks sinfo, runs one job over all idle nodes of each partition, and one
# job on each node with GPUs (by its Gres) that counts them and adds vectors on each; with accounting it asks for the clusters that slurmdbd knows.
# In: NODE_NAME, SERVER (slurmctld's host:port), GPUS (0: none are asked for), ACCOUNTING (empty: none), SECONDS_TO_RUN; the key at
# /key/slurm.key. Out: {"node","exits":{"sinfo","hosts","gpus","accounting"},"packed": gzip+base64 of the sections @sinfo @reasons
# @hosts @gpus @clusters @errors}
end=$(( $(date +%s) + SECONDS_TO_RUN ))
left() { now=$(date +%s); [ "$end" -gt "$now" ] && echo $((end - now)) || echo 1; }
said=$(mktemp -d /tmp/srun-XXXXXX)
if [ -n "${SERVER:-}" ]; then
  mkdir -p /etc/slurm /run/slurm
  install -o 401 -g 401 -m 600 /key/slurm.key /etc/slurm/slurm.key
  sackd --conf-server "$SERVER" -D 2>>"$said/errors" &
fi
hosts=0 gpus=0 accounting=0
# Prints each idle node with its number of GPUs, by its Gres (`gpu:h200:8(S:0-1),gpu:b200:2`, or `(null)`).
idle_nodes='$2 == "idle" { count = 0; gsub(/\([^)]*\)/, "", $3); split($3, parts, ",")
  for (at in parts) if (parts[at] ~ /^gpu(:|$)/) { n = split(parts[at], words, ":"); count += words[n] ~ /^[0-9]+$/ ? words[n] : 1 }
  print $1, count }'
# Runs in the job, with the program of cuda_program.sh as its input: prints host, GPUs that it sees, GPUs that added vectors, an error.
export ADD='program=$(mktemp); cat >"$program"; chmod 700 "$program"; seen=0; passed=0; error=
for gpu in $(nvidia-smi -L | sed -n "s/^GPU .*UUID: \(GPU-[0-9A-Za-z-]*\)).*/\1/p"); do
  seen=$((seen + 1))
  said=$(CUDA_VISIBLE_DEVICES=$gpu "$program" 2>&1)
  case $said in *"Test PASSED"*) passed=$((passed + 1));; *) error=$(echo ${said:-it prints nothing} | cut -c1-160);; esac
done; rm -f "$program"; echo "$(hostname) $seen $passed $error"'
export PROGRAM=/program/add
[ -f "$PROGRAM" ] || { PROGRAM=$said/add; printf '#!/bin/sh\necho the check has no CUDA program, see its init container\n' >"$PROGRAM"; }
until sinfo -h -o '%T|%G|%N' >"$said/sinfo" 2>"$said/last"; do
  [ "$(left)" -gt 1 ] || break
  sleep 2
done
grep -q . "$said/sinfo"; sinfo=$?
cat "$said/last" >>"$said/errors"
sinfo -h -R -o '%E|%N' >"$said/reasons" 2>>"$said/errors"
for partition in $(sinfo -h -o %R | sort -u); do
  sinfo -h -N -p "$partition" -o '%N %T %G' | awk "$idle_nodes" | sort -u >"$said/idle"
  [ -s "$said/idle" ] || continue
  count=$(grep -c . "$said/idle") list=$(cut -d ' ' -f 1 "$said/idle" | paste -s -d , -)
  timeout "$(left)" srun -p "$partition" -w "$list" -N "$count" -n "$count" hostname >>"$said/hosts" 2>>"$said/errors" || hosts=$?
  [ "$GPUS" -gt 0 ] && grep -v ' 0$' "$said/idle" >"$said/asked" || continue
  timeout "$(left)" xargs -P 16 -n 2 sh -c 'srun -p "$0" -w "$1" -N 1 -n 1 --gres="gpu:$2" sh -c "$ADD" <"$PROGRAM"' "$partition" \
    <"$said/asked" >>"$said/gpus" 2>>"$said/errors" || gpus=$?
done
if [ -n "${ACCOUNTING:-}" ]; then
  timeout "$(left)" sacctmgr -n -P show cluster format=cluster,controlhost >"$said/clusters" 2>>"$said/errors" || accounting=$?
fi
for part in sinfo reasons hosts gpus clusters errors; do echo "@$part"; cat "$said/$part" 2>/dev/null; done >"$said/all"
cat "$said/all"
packed=$(gzip -9c "$said/all" | base64 | tr -d '\n')
[ ${#packed} -le 3800 ] || packed=
rm -rf "$said"
printf '{"node":"%s","exits":{"sinfo":%d,"hosts":%d,"gpus":%d%s},"packed":"%s"}' \
  "$NODE_NAME" "$sinfo" "$hosts" "$gpus" "${ACCOUNTING:+,\"accounting\":$accounting}" "$packed" >"${REPORT:-/dev/termination-log}"
