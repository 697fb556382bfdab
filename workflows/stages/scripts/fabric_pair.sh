# Check `fabric`: RDMA write bandwidth between the pods of a Job on all rails at once. In each step of a tournament a pod meets one other
# pod, and both measure their own direction; after all steps every two pods have met. A pod alone measures its ports against themselves.
# In: JOB_COMPLETION_INDEX, COUNT, STEPS (of the tournament at most; empty: all), JOB (name of the Job), SERVICE, NODE_NAME, DEVICE_IDS,
# LINK, NICS (number of rails), RAILS (names, or empty), NUMBERS (`name` where equal names are one rail on all nodes), TESTED (numbers of
# rails, empty for all), MEMORY (`cuda` for GPU memory).
# Out: {"node","rails":[{"device","rail","gbit","peer","error"}],"error"}: the least bandwidth of each rail, and the pod that it was to.
index=$JOB_COMPLETION_INDEX base=18500 error= rails= devices= files=$(mktemp -d) seconds=5
[ "$COUNT" -le 2 ] || seconds=2
get() { cat "${SYSFS:-/sys}/class/infiniband/$1/$2" 2>/dev/null; }
for path in "${SYSFS:-/sys}/class/infiniband"/*; do
  device=${path##*/} id=$(get "${path##*/}" device/device)
  case " $DEVICE_IDS " in *" ${id#0x} "*) ;; *) continue;; esac
  case " ${RAILS:-$device} " in *" $device "*) ;; *) continue;; esac
  [ "$(get "$device" ports/1/link_layer)" = "$LINK" ] || continue
  devices="$devices $device"
done
# The number of a rail, equal on both ends also where one end lacks a device: its place among the planned rails; else the number in its
# name if the names are numbered from 0; else its place among the devices, as with names such as mlx5_11 of eight, or ibp24s0. GPUs have the
# same order on the PCI bus as the ports beside them.
devices=$(printf '%s\n' $devices | sort -V)
row=$(for each in $devices; do echo "${each##*[!0-9]}"; done | sort -u | awk -v most="${NICS:-64}" '/^[0-9]+$/ && $1 < most + 0' | wc -l)
[ "$row" -eq "$(echo $devices | wc -w)" ] || row=
number() { # device, place
  if [ "${NUMBERS:-}" = name ] && [ -n "${RAILS:-}" ]; then
    place=0
    for each in $RAILS; do [ "$each" != "$1" ] || break; place=$((place + 1)); done
    echo "$place"
  elif [ "${NUMBERS:-}" = name ] && [ -n "$row" ]; then echo "${1##*[!0-9]}"
  else echo "$2"; fi
}
at=0 all=$devices devices=
for device in $all; do
  rail=$(number "$device" "$at") at=$((at + 1))
  case " ${TESTED:-$rail} " in *" $rail "*) devices="$devices $device:$rail";; esac
done
gid() {
  [ "$LINK" = Ethernet ] || return 0
  for path in "${SYSFS:-/sys}/class/infiniband/$1/ports/1/gid_attrs/types"/*; do
    case "$(cat "$path" 2>/dev/null) $(get "$1" "ports/1/gids/${path##*/}")" in
      "RoCE v2 0000:0000:0000:0000:0000:ffff:"*) echo "-x ${path##*/}"; return 0;;
    esac
  done
}
# memory of the GPU with the number of the rail, which rail-optimised machines have next to the port
memory() { [ "${MEMORY:-}" != cuda ] || echo "--use_cuda=$1"; }
measure() { # device, port, rail, seconds until it gives up, host to measure to (none: serve)
  timeout "$4" ib_write_bw -d "$1" -p "$2" $(gid "$1") $(memory "$3") -F --report_gbits -s 8388608 -D "$seconds" $5 2>&1
}
meets() { # the pod that this one meets in a step, by the circle method; COUNT or more: nobody
  m=$((COUNT + COUNT % 2)) k=$((m - 1))
  if [ "$COUNT" -eq 1 ]; then echo 0
  elif [ "$index" -eq "$k" ]; then echo $(($1 * (m / 2) % k))
  else p=$((($1 - index + 2 * k) % k)); [ "$p" -ne "$index" ] || p=$k; echo "$p"; fi
}
ask() { # device, rail, port, pod: until the other pod answers; the first figure counts, repeats are the localisation's own rounds
  gbit=0 said= end=$(($(date +%s) + ${STEP:-60}))
  while [ "$gbit" = 0 ] && [ "$(date +%s)" -lt "$end" ]; do
    out=$(measure "$1" "$3" "$2" "${STEP:-60}" "$JOB-$4.$SERVICE")
    gbit=$(printf '%s\n' "$out" | awk '/BW average\[Gb/ { unit = 1; next } unit && $1 == 8388608 { g = $4 } END { print g + 0 }')
    [ "$gbit" != 0 ] || said=$(printf %s "$out" | tail -n 1 | tr -dc 'A-Za-z0-9 ._:/()-' | cut -c1-60)
    [ "$gbit" != 0 ] || sleep 1
  done
  [ "$gbit" = 0 ] || said=
  least=$(cut -d' ' -f1 "$files/$2" 2>/dev/null)
  if [ -z "$least" ] || awk "BEGIN { exit !($gbit < $least) }"; then printf '%s %s %s' "$gbit" "$4" "$said" >"$files/$2"; fi
}
step=0 steps=$((COUNT + COUNT % 2 - 1))
[ "$steps" -le "${STEPS:-$steps}" ] || steps=$STEPS
while [ "$step" -lt "$steps" ] && [ -n "$devices" ]; do
  peer=$(meets "$step") running=
  if [ "$peer" -lt "$COUNT" ]; then
    for entry in $devices; do
      device=${entry%:*} rail=${entry#*:} port=$((base + ${entry#*:} + 64 * (step % 8)))
      measure "$device" "$port" "$rail" "${STEP:-60}" "" >/dev/null & running="$running $!"
      ask "$device" "$rail" "$port" "$peer" & running="$running $!"
    done
    wait $running
  fi
  step=$((step + 1))
done
for entry in $devices; do
  read -r gbit peer said <"$files/${entry#*:}"
  rails="$rails${rails:+,}{\"device\":\"${entry%:*}\",\"rail\":${entry#*:},\"gbit\":$gbit,\"peer\":$peer,\"error\":\"$said\"}"
done
[ -n "$devices" ] || error="no RDMA device with an id of $DEVICE_IDS and link layer $LINK"
printf '{"node":"%s","rails":[%s],"error":"%s"}' "$NODE_NAME" "$rails" "$error" >/dev/termination-log
