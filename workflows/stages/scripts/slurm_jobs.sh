# Check `slurm-jobs`: joins the Slurm cluster as srun.sh does where SERVER is set, else runs in a login pod; submits the jobs of CHECKS, all
# at once, and prints what Slurm shows of them and of its own settings. `restart` comes last: it ends slurmctld under a running job.
# In: NODE_NAME, CHECKS (words of JobCheckName), SERVER (empty: in a login pod), ACCOUNTING (empty: none), GPUS, SECONDS_TO_RUN, MARKS (folder of
# prolog and epilog), SHARED_HOME, LOGIN (host), USER_NAME, CONTAINER (image), METRICS (words HOST:PORT/PATH), REPORT (file of the report). Out:
# sections @ping @partitions @sharing @qos @topology @topology_conf @jobs @sacct @answers @refusals @boots @metrics @left @sinfo @reasons
# @errors, packed as srun.sh does.
end=$(( $(date +%s) + SECONDS_TO_RUN ))
left() { now=$(date +%s); [ "$end" -gt "$now" ] && echo $((end - now)) || echo 1; }
work=$(mktemp -d /tmp/slurm-jobs-XXXXXX)
prefix=bringup-${work##*-}
if [ -n "${SERVER:-}" ]; then
  mkdir -p /etc/slurm /run/slurm
  install -o 401 -g 401 -m 600 /key/slurm.key /etc/slurm/slurm.key
  sackd --conf-server "$SERVER" -D 2>>"$work/errors" &
fi
wants() { case " $CHECKS " in *" $1 "*) ;; *) return 1;; esac; }
common() { echo "--job-name=$prefix-$1 --partition=$partition --mem=64M --time=10 --chdir=/tmp --output=/dev/null --error=/dev/null"; }
refused() { echo "$1|$(grep . "$work/last" | head -n 1 | cut -c1-300)" >>"$work/refusals"; }
# submit CHECK ARGUMENTS…: one batch job; prints its id. A check that is not wanted submits nothing.
submit() {
  check=$1; shift; wants "$check" || return 0
  sbatch --parsable $(common "$check") "$@" 2>"$work/last" | cut -d ';' -f 1 >"$work/id"
  grep . "$work/id" || refused "$check"
}
answer() { grep . "$work/last" | head -n 1 | cut -c1-300 | sed "s/^/$1|$2|/" >>"$work/answers"; }
on() { check=$1 node=$2; shift 2; timeout "$(left)" srun $(common "$check" | sed 's/--output=[^ ]* --error=[^ ]*//') -w "$node" -N 1 -n 1 "$@" 2>>"$work/errors"; }
queued() { squeue -h -o '%j|%i|%T|%r' 2>>"$work/errors" | sed -n "s/^$prefix-/bringup-/p"; }
shown() { scontrol show job -o 2>>"$work/errors" | sed -n "s/ JobName=$prefix-/ JobName=bringup-/p" | tr ' ' '\n' |
  grep -E '^(JobId|JobName|JobState|Reason|Restarts|ExitCode|StartTime|EndTime|NodeList|Comment)=' | paste -s -d ' ' - | sed 's/ JobId=/\nJobId=/g'; }
boot() { scontrol show config 2>/dev/null | sed -n 's/^BOOT_TIME *= *//p' | grep . || echo none; }
until scontrol ping >"$work/ping" 2>>"$work/errors" && sinfo -h -o '%R|%a|%N' >"$work/partitions" 2>>"$work/errors"; do
  [ "$(left)" -gt 1 ] || break
  sleep 2
done
# the partition with the most idle nodes, and two of these
most=0 partition= first= second=
for name in $(sinfo -h -o %R 2>>"$work/errors" | sort -u); do
  sinfo -h -N -p "$name" -t idle -o %N | sort -u >"$work/idle"
  [ "$(grep -c . "$work/idle")" -le "$most" ] && continue
  most=$(grep -c . "$work/idle") partition=$name first=$(sed -n 1p "$work/idle") second=$(sed -n 2p "$work/idle")
done
if [ -n "$first" ]; then {
  marked=$(submit batch -N 1 -w "$first" -n 1 --wrap 'hostname')
  submit two -N 2 --ntasks-per-node=1 --wrap 'test "$(srun hostname | sort -u | grep -c .)" = 2'
  submit array -N 1 -n 1 --array=1-4 --wrap 'test "$SLURM_ARRAY_TASK_COUNT" = 4'
  before=$(submit dependency -N 1 -n 1 --wrap 'sleep 2')
  [ -z "$before" ] || submit dependency -N 1 -n 1 --dependency="afterok:$before" --wrap true
  submit steps -N 1 -n 1 --wrap 'srun --overlap -n1 true & a=$!; srun --overlap -n1 true & b=$!; srun --overlap -n1 true && wait $a && wait $b'
  submit gpu -N 1 -n 1 --gres=gpu:1 --wrap 'seen=$(nvidia-smi -L | grep -c ^GPU)
    scontrol update JobId="$SLURM_JOB_ID" Comment="devices:$seen,visible:${CUDA_VISIBLE_DEVICES:-unset}" >/dev/null 2>&1
    case $CUDA_VISIBLE_DEVICES in *,*) false;; ?*) test "$seen" -ge 1;; *) test "$seen" = 1;; esac'
  submit exclusive -N 1 -w "$first" -n 1 --exclusive --wrap 'sleep 3'
  submit exclusive -N 1 -w "$first" -n 1 --exclusive --wrap 'sleep 3'
  cpus=$(sinfo -h -N -n "${second:-$first}" -o %c | head -n 1 | tr -d +)
  submit shared -N 1 -w "${second:-$first}" -n "${cpus:-1}" --wrap 'sleep 5'
  submit shared -N 1 -w "${second:-$first}" -n "${cpus:-1}" --wrap 'sleep 5'
  # more memory than the machine has, whatever its RealMemory says
  memory=$(on memory "$first" sed -n 's/^MemTotal: *\([0-9]*\) kB/\1/p' /proc/meminfo)
  submit memory -N 1 -w "$first" -n 1 --mem="$((${memory:-0} / 1024 + 1024))M" --wrap true
  if wants het; then
    printf '#!/bin/sh\nsrun --het-group=0,1 hostname\n' >"$work/het.sh"
    sbatch --parsable $(common het) -N 1 -n 1 : $(common het) -N 1 -n 1 "$work/het.sh" >/dev/null 2>"$work/last" || refused het
  fi
  if wants pmix; then
    # srun loads the plugin on both sides: 75 says that the image of slurmd lacks it
    srun --mpi=list >"$work/last" 2>&1
    if grep -q -w pmix "$work/last"; then
      submit pmix -N 2 --ntasks-per-node=1 --wrap 'srun --mpi=list 2>&1 | grep -q -w pmix || exit 75
        test "$(srun --mpi=pmix sh -c "echo \$PMIX_RANK" | sort | paste -s -d , -)" = 0,1'
    else
      tr '\n' ' ' <"$work/last" >"$work/list"; cp "$work/list" "$work/last"; answer pmix missing
    fi
  fi
  submit prolog -N 1 -w "$first" -n 1 --wrap "test -f $MARKS/prolog.\$SLURM_JOB_ID"
  waits='for second in 1 2 3 4 5 6 7 8 9 10; do test -f "$mark" && exit 0; sleep 1; done; exit 1'
  [ -z "$marked" ] || submit epilog -N 1 -w "$first" -n 1 --dependency="afterany:$marked" --wrap "mark=$MARKS/epilog.$marked; $waits"
  if wants user; then
    # as users do: by SSH, with a key that the user has for this check alone. The user's own lines stay: a file without a last newline gets
    # one, and only a whole line of the check's form is removed, so that one left by a killed check goes too
    su - "$USER_NAME" -s /bin/sh -c "umask 077; key=.ssh/bringup-check; mkdir -p .ssh; keys=\$(readlink -f .ssh/authorized_keys)
      own='^restrict ssh-ed25519 [^ ]* bringup-check\$'
      clean() { rm -f \$key \$key.pub; ! grep -q \"\$own\" \"\$keys\" 2>/dev/null || sed -i \"/\$own/d\" \"\$keys\"; }
      clean; trap clean EXIT; trap 'exit 1' HUP INT TERM
      ssh-keygen -q -t ed25519 -N '' -C bringup-check -f \$key || exit 1
      [ -z \"\$(tail -c 1 \"\$keys\" 2>/dev/null)\" ] || echo >>\"\$keys\" || exit 1
      echo \"restrict \$(cat \$key.pub)\" >>\"\$keys\" || exit 1
      ssh -n -i \$key -o BatchMode=yes -o StrictHostKeyChecking=no -o UserKnownHostsFile=/dev/null -o LogLevel=ERROR -o ConnectTimeout=15 \
        $LOGIN sbatch --parsable $(common user) -N 1 -n 1 --wrap true" >/dev/null 2>"$work/last" || refused user
  fi
  if wants home; then
    file=$SHARED_HOME/.bringup-check-$$ word=$(date +%s)-$$
    on home "$first" sh -c "echo $word >$file" && echo "home|written|$word" >>"$work/answers"
    on home "${second:-$first}" sh -c "cat $file; rm -f $file" >"$work/last" && answer home read
  fi
  if wants pyxis; then
    on pyxis "$first" --container-image="$CONTAINER" grep '^NAME=' /etc/os-release >"$work/last" && answer pyxis system
  fi
} >/dev/null; fi
if wants login; then timeout 15 ssh-keyscan "$LOGIN" 2>/dev/null | grep -v '^#' | cut -d ' ' -f 2 >"$work/last"; answer login key; fi
if wants metrics; then
  for place in $METRICS; do
    host=${place%%:*} port=${place#*:}
    timeout 20 bash -c 'exec 3<>"/dev/tcp/$0/$1" && printf "GET /%s HTTP/1.0\r\nHost: %s\r\n\r\n" "$2" "$0" >&3 && cat <&3' \
      "$host" "${port%%/*}" "${port#*/}" 2>>"$work/silent"
  done | tr -d '\r' | awk '/^slurm_/ { name = value = $0; sub(/[{ ].*/, "", name)
    if (index(value, "}")) sub(/.*}/, "", value); else sub(/^[^ ]* /, "", value)
    split(value, words, " "); sum[name] += words[1] }
    END { for (name in sum) printf "%s|%.0f\n", name, sum[name] }' | sort | head -n 400 >"$work/metrics"
  [ -s "$work/metrics" ] || { cp "$work/silent" "$work/last"; answer metrics silent; }
fi
# a job whose request no node can meet may wait for ever
while queued | grep -v '^bringup-memory|' | grep -q . && [ "$(left)" -gt 240 ]; do sleep 2; done
queued >"$work/waiting"
shown >"$work/jobs"
scancel $(sed -n 's/^bringup-memory|\([0-9_]*\)|.*/\1/p' "$work/waiting") 2>/dev/null
if wants restart && [ -n "$first" ]; then
  boot >"$work/boots"
  id=$(submit restart -N 1 -n 1 --wrap 'sleep 25')
  until [ -z "$id" ] || squeue -h -j "$id" -o %T 2>/dev/null | grep -q RUNNING || [ "$(left)" -lt 200 ]; do sleep 1; done
  scontrol reconfigure 2>>"$work/errors"
  scontrol shutdown slurmctld 2>>"$work/errors"
  sleep 2
  until { boot >"$work/boot"; ! grep -q -x -F -f "$work/boots" "$work/boot" && ! grep -q none "$work/boot"; } || [ "$(left)" -lt 60 ]; do sleep 2; done
  cat "$work/boot" >>"$work/boots"
  while queued | grep -q '^bringup-restart|' && [ "$(left)" -gt 30 ]; do sleep 2; done
  shown | grep 'JobName=bringup-restart ' >>"$work/jobs"
fi
if [ -n "${ACCOUNTING:-}" ]; then
  ids=$(sed -n 's/^JobId=\([0-9]*\).*/\1/p' "$work/jobs" | sort -u | paste -s -d , -)
  for try in 1 2 3 4 5; do  # slurmctld sends its records every few seconds
    [ -z "$ids" ] || sacct -n -P -j "$ids" -o jobidraw,jobname,state,exitcode >"$work/sacct" 2>>"$work/errors"
    grep -q -E '\|(RUNNING|PENDING)\|' "$work/sacct" || break
    sleep 3
  done
  sacctmgr -n -P show qos format=name >"$work/qos" 2>>"$work/errors"
fi
scontrol show topology >"$work/topology" 2>/dev/null
scontrol show partition -o 2>/dev/null | tr ' ' '\n' | grep -E '^(PartitionName|OverSubscribe)=' | paste -d ' ' - - >"$work/sharing"
cat /run/slurm/conf/topology.* /etc/slurm/topology.* >"$work/topology_conf" 2>/dev/null
while sinfo -h -t completing -o %N 2>/dev/null | grep -q . && [ "$(left)" -gt 5 ]; do sleep 1; done
queued >"$work/left"
sinfo -h -o '%T|%G|%N' >"$work/sinfo" 2>>"$work/errors"
sinfo -h -R -o '%E|%N' >"$work/reasons" 2>>"$work/errors"
for part in ping partitions sharing qos topology topology_conf jobs sacct answers refusals boots metrics waiting left sinfo reasons errors; do
  echo "@$part"; cat "$work/$part" 2>/dev/null
done >"$work/all"
cat "$work/all"
packed=$(gzip -9c "$work/all" | base64 | tr -d '\n')
[ ${#packed} -le 3800 ] || packed=
rm -rf "$work"
printf '{"node":"%s","packed":"%s"}' "$NODE_NAME" "$packed" >"${REPORT:-/dev/termination-log}"
