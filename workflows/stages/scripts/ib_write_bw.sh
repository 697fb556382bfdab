# Measures RDMA write bandwidth from this pod to the next one of a ring, one device after the other, and serves the one before.
# Needs perftest, JOB_COMPLETION_INDEX, COUNT (pods of the ring), NODE_NAME, DEVICE_IDS, LINK, RING. Ends with 0: the report decides.
index=$JOB_COMPLETION_INDEX count=$COUNT base=18500 rails= error=
peer=$(((index + 1) % count)) end=$(($(date +%s) + ${WINDOW:-420}))
left() { echo $((end - $(date +%s))); }
get() { cat "${SYSFS:-/sys}/class/infiniband/$1/$2" 2>/dev/null; }
devices=$(for path in "${SYSFS:-/sys}/class/infiniband"/*; do
  device=${path##*/}
  id=$(get "$device" device/device)
  case " $DEVICE_IDS " in *" ${id#0x} "*) [ "$(get "$device" ports/1/link_layer)" = "$LINK" ] && echo "$device";; esac
done)
gid() {
  [ "$LINK" = Ethernet ] || return 0
  for path in "${SYSFS:-/sys}/class/infiniband/$1/ports/1/gid_attrs/types"/*; do
    at=${path##*/}
    case "$(cat "$path" 2>/dev/null) $(get "$1" "ports/1/gids/$at")" in "RoCE v2 0000:0000:0000:0000:0000:ffff:"*) echo "-x $at"; return 0;; esac
  done
}
within() { [ "$(left)" -gt 0 ] && left || echo 1; } # timeout 0 would be none
measure() { timeout "$(within)" ib_write_bw -d "$1" -p "$2" $(gid "$1") -F --report_gbits -s 8388608 -D 5 $3 2>&1; }
port=$base
for device in $devices; do
  measure "$device" "$port" "" > /dev/null &
  port=$((port + 1))
done
port=$base
for device in $devices; do
  state=$(get "$device" ports/1/state); state=${state#*: } gbit=0 said= tries=0
  while [ "$state" = ACTIVE ] && { [ "$tries" -eq 0 ] || [ "$(left)" -gt 0 ]; }; do
    tries=$((tries + 1))
    out=$(measure "$device" "$port" "$RING-$peer.$RING")
    gbit=$(printf '%s\n' "$out" | awk '/BW average\[Gb/ { unit = 1; next } unit && $1 == 8388608 { found = $4 } END { print found + 0 }')
    [ "$gbit" != 0 ] && break
    said=$(printf %s "$out" | tail -n 1 | tr -dc 'A-Za-z0-9 ._:/()-' | cut -c1-80)
    sleep 2
  done
  [ "$gbit" = 0 ] || said=
  echo "$device $state: $gbit Gbit/s to $RING-$peer after $tries tries $said"
  rails="$rails${rails:+,}{\"device\":\"$device\",\"state\":\"$state\",\"gbit\":$gbit,\"error\":\"$said\"}"
  port=$((port + 1))
done
[ -n "$devices" ] || error="no RDMA device with an id of $DEVICE_IDS and link layer $LINK"
wait
printf '{"node":"%s","index":%d,"peer":%d,"rails":[%s],"error":"%s"}' "$NODE_NAME" "$index" "$peer" "$rails" "$error" > /dev/termination-log
