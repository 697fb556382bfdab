# Check `srun`: joins the Slurm cluster as a login host does, then asks sinfo, runs one job over all idle nodes of each partition, and one
# job on each node that counts its GPUs. In: NODE_NAME, SERVER (slurmctld's host:port), GPUS, SECONDS_TO_RUN; the key at /key/slurm.key.
# Out: {"node","exits":{"sinfo","hosts","gpus"},"packed": gzip+base64 of the sections @sinfo @reasons @hosts @gpus @errors}
end=$(( $(date +%s) + SECONDS_TO_RUN ))
left() { now=$(date +%s); [ "$end" -gt "$now" ] && echo $((end - now)) || echo 1; }
mkdir -p /etc/slurm /run/slurm /tmp/said
install -o 401 -g 401 -m 600 /key/slurm.key /etc/slurm/slurm.key
sackd --conf-server "$SERVER" -D 2>>/tmp/said/errors &
hosts=0 gpus=0
until sinfo -h -o '%T|%G|%N' >/tmp/said/sinfo 2>/tmp/said/last; do
  [ "$(left)" -gt 1 ] || break
  sleep 2
done
grep -q . /tmp/said/sinfo; sinfo=$?
cat /tmp/said/last >>/tmp/said/errors
sinfo -h -R -o '%E|%N' >/tmp/said/reasons 2>>/tmp/said/errors
for partition in $(sinfo -h -o %R | sort -u); do
  idle=$(sinfo -h -N -p "$partition" -o '%N %T' | awk '$2 == "idle" { print $1 }' | sort -u)
  [ -n "$idle" ] || continue
  count=$(echo "$idle" | wc -l) list=$(echo $idle | tr ' ' ,)
  timeout "$(left)" srun -p "$partition" -w "$list" -N "$count" -n "$count" hostname >>/tmp/said/hosts 2>>/tmp/said/errors || hosts=$?
  [ "$GPUS" -gt 0 ] || continue
  echo "$idle" | timeout "$(left)" xargs -P 16 -I{} srun -p "$partition" -w {} -N 1 -n 1 --gres="gpu:$GPUS" \
    sh -c 'echo "$(hostname) $(nvidia-smi -L | grep -c "^GPU ")"' >>/tmp/said/gpus 2>>/tmp/said/errors || gpus=$?
done
for part in sinfo reasons hosts gpus errors; do echo "@$part"; cat "/tmp/said/$part" 2>/dev/null; done >/tmp/all
cat /tmp/all
packed=$(gzip -9c /tmp/all | base64 | tr -d '\n')
[ ${#packed} -le 3800 ] || packed=
printf '{"node":"%s","exits":{"sinfo":%d,"hosts":%d,"gpus":%d},"packed":"%s"}' \
  "$NODE_NAME" "$sinfo" "$hosts" "$gpus" "$packed" >/dev/termination-log
