# Measures RDMA write bandwidth from this pod to two others of a ring (the next one, and one half the ring away), one device after the
# other, and serves the two before it. Two partners on each side tell whose side of a slow pair is slow.
# Needs perftest, JOB_COMPLETION_INDEX, COUNT (pods of the ring), NODE_NAME, DEVICE_IDS, LINK, RING; FLOOR is the wanted rate in
# Gbit/s, RAILS the names of the rails if the plan has them, NUMBERS is `name` where equal names are the same rail on all nodes, NICS the
# number of rails.
# The machine's /sys is mounted at /host/sys: it shows the interfaces of the machine, the pod's own /sys those of the pod.
# Ends with 0: the report decides.
index=$JOB_COMPLETION_INDEX count=$COUNT base=18500 second=64 host=${HOST_SYSFS:-/host/sys} error= devices= excluded= interfaces=
peer=$(((index + 1) % count)) end=$(($(date +%s) + ${WINDOW:-420}))
across=$((count / 2)); [ "$count" -ne 3 ] || across=2
left() { echo $((end - $(date +%s))); }
get() { cat "${SYSFS:-/sys}/class/infiniband/$1/$2" 2>/dev/null; }
for path in "${SYSFS:-/sys}/class/infiniband"/*; do
  device=${path##*/}
  id=$(get "$device" device/device) link=$(get "$device" ports/1/link_layer)
  case " $DEVICE_IDS " in *" ${id#0x} "*) ;; *) continue;; esac
  case " ${RAILS:-$device} " in *" $device "*) ;; *) continue;; esac
  if [ "$link" = "$LINK" ]; then devices="$devices $device"
  else excluded="$excluded${excluded:+,}{\"device\":\"$device\",\"link\":\"$link\"}"; fi
done
# Prints name and MTU of the machine's interface of a device: that of the port for a virtual function, the pod's own if the pod has the
# whole device. Representors of functions, which lie beside a port in switchdev mode, are no ports.
machine_link() {
  at=$(readlink -f "$1/device") at=bus/pci/devices/${at##*/}
  for each in "$host/$at/physfn/net"/* "$host/$at/net"/* "${SYSFS:-/sys}/$at/net"/*; do
    case "$(cat "$each/phys_port_name" 2>/dev/null)" in *vf* | *sf*) continue;; esac
    mtu=$(cat "$each/mtu" 2>/dev/null) && { echo "${each##*/} $mtu"; return; }
  done
}
# Prints them for an interface in the pod: of its parent if that is an interface of the machine (macvlan, IPoIB), else by its device.
parent_link() {
  parent=$(cat "$1/iflink" 2>/dev/null)
  for each in "$host/class/net"/*; do
    [ -n "$parent" ] && [ "$parent" != "$(cat "$1/ifindex")" ] && [ "$(cat "$each/ifindex" 2>/dev/null)" = "$parent" ] || continue
    mtu=$(cat "$each/mtu") && echo "${each##*/} $mtu"; return
  done
  [ ! -e "$1/device" ] || machine_link "$1"
}
for path in "${SYSFS:-/sys}/class/net"/net*; do
  mtu=$(cat "$path/mtu" 2>/dev/null) || continue
  link=$(parent_link "$path")
  interfaces="$interfaces${interfaces:+,}{\"name\":\"${path##*/}\",\"mtu\":$mtu${link:+,\"host\":\"${link% *}\",\"host_mtu\":${link#* }}}"
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
gid() {
  [ "$LINK" = Ethernet ] || return 0
  for path in "${SYSFS:-/sys}/class/infiniband/$1/ports/1/gid_attrs/types"/*; do
    at=${path##*/}
    case "$(cat "$path" 2>/dev/null) $(get "$1" "ports/1/gids/$at")" in "RoCE v2 0000:0000:0000:0000:0000:ffff:"*) echo "-x $at"; return 0;; esac
  done
}
# The address of a port in the fabric: of RoCE v2 by its IPv4 address, of InfiniBand by its GUID. It must be unique.
address() {
  at=$(gid "$1") at=${at#-x }
  [ "$LINK" = Ethernet ] || at=0
  [ -z "$at" ] || get "$1" "ports/1/gids/$at"
}
within() { [ "$(left)" -gt 0 ] && left || echo 1; } # timeout 0 would be none
measure() { timeout "$(within)" ib_write_bw -d "$1" -p "$2" $(gid "$1") -F --report_gbits -s 8388608 -D 5 $3 2>&1; }
better() { awk "BEGIN { exit !($1 > $2) }"; }
serve() { # first port
  at=0
  for device in $devices; do
    measure "$device" "$(($1 + $(number "$device" "$at")))" "" > /dev/null &
    at=$((at + 1))
  done
}
ask() { # index of the partner, first port, `states` to report them: sets rails
  rails= at=0
  for device in $devices; do
    rail=$(number "$device" "$at") at=$((at + 1))
    state=$(get "$device" ports/1/state); state=${state#*: } gbit=0 said= tries=0
    # no answer: until the time is up; too slow: twice more, as another pair may have used a port at the same time
    while [ "$state" = ACTIVE ] && { [ "$tries" -eq 0 ] || [ "$(left)" -gt 0 ]; }; do
      tries=$((tries + 1))
      out=$(measure "$device" "$(($2 + rail))" "$RING-$1.$RING")
      new=$(printf '%s\n' "$out" | awk '/BW average\[Gb/ { unit = 1; next } unit && $1 == 8388608 { found = $4 } END { print found + 0 }')
      better "$new" "$gbit" && gbit=$new
      [ "$gbit" = 0 ] || { [ "$tries" -lt 3 ] && better "${FLOOR:-0}" "$gbit"; } || break
      said=$(printf %s "$out" | tail -n 1 | tr -dc 'A-Za-z0-9 ._:/()-' | cut -c1-80)
      sleep 2
    done
    [ "$gbit" = 0 ] || said=
    echo "$device $state: $gbit Gbit/s to $RING-$1 after $tries tries $said"
    facts="\"gbit\":$gbit"
    if [ "$3" = states ]; then
      own=$(address "$device") link=$(machine_link "${SYSFS:-/sys}/class/infiniband/$device")
      facts="\"state\":\"$state\",${own:+\"gid\":\"$own\",}${link:+\"mtu\":${link#* },}$facts,\"error\":\"$said\""
    elif [ -n "$said" ]; then facts="$facts,\"error\":\"$said\""; fi
    rails="$rails${rails:+,}{\"device\":\"$device\",\"rail\":$rail,$facts}"
  done
}
serve "$base"
[ "$across" -gt 1 ] && serve "$((base + second))"
ask "$peer" "$base" states
near=$rails further=
if [ "$across" -gt 1 ]; then
  partner=$(((index + across) % count))
  ask "$partner" "$((base + second))" ""
  further="{\"peer\":$partner,\"rails\":[$rails]}"
fi
[ -n "$devices" ] || error="no RDMA device with an id of $DEVICE_IDS and link layer $LINK"
wait
printf '{"node":"%s","index":%d,"peer":%d,"rails":[%s],"further":[%s],"excluded":[%s],"interfaces":[%s],"error":"%s"}' "$NODE_NAME" \
  "$index" "$peer" "$near" "$further" "$excluded" "$interfaces" "$error" > /dev/termination-log
