# Check `dcgm`, of one node by itself: host facts while a GEMM loads every GPU, nvbandwidth, and DCGM's own diagnostic with a host engine
# that lives as long as the pod. Idle GPUs lower the generation of their PCIe link, so facts are read once all GPUs are loaded, and a reading
# during which the load ended is dropped. All programs number GPUs by their PCI addresses, as nvidia-smi does.
# In: NODE_NAME, LEVEL, SECONDS_TO_RUN, COPIES (1: run nvbandwidth). Out: {"node","exits":[of dcgmi],"packed": gzip+base64 of the outputs,
# each under a line `@@ NAME EXIT_CODE` and shortened to what is read}; too long for 4 kB, it is in the log only. Exit code 127: the image
# has no such program.
part() { { echo "@@ $1 $2"; awk 1 "/tmp/$1" 2>/dev/null; } >>/tmp/all; }
sysfs=${SYSFS:-/sys}
export CUDA_DEVICE_ORDER=PCI_BUS_ID
cuda=$(nvidia-smi -q 2>/dev/null | sed -n 's/^CUDA Version *: *\([0-9]*\).*/\1/p')
gpus=$(nvidia-smi -L 2>/dev/null | grep -c '^GPU ')
tester=$(command -v "dcgmproftester$cuda" || command -v dcgmproftester13 || command -v dcgmproftester12)
copier=$(command -v nvbandwidth || ls "/usr/libexec/datacenter-gpu-manager-4/plugins/cuda$cuda/nvbandwidth" 2>/dev/null)
gemm=127
if [ -n "$tester" ]; then
  timeout 150 "$tester" --no-dcgm-validation --max-processes 0 -t 1004 -d "${LOAD_SECONDS:-60}" >/tmp/load 2>&1 &
  load=$!
  for try in $(seq "${TRIES:-8}"); do
    sleep "${PAUSE:-2}"
    nvidia-smi -q >/tmp/reading 2>/dev/null
    kill -0 "$load" 2>/dev/null || break
    mv /tmp/reading /tmp/whole
    [ "$try" -gt 3 ] && [ "$(grep -c 'Performance State *: P0' /tmp/whole)" -ge "$gpus" ] && break
  done
  wait "$load"
  gemm=$?
  awk '/ gflops/ { split($0, worker, "["); number[worker[1]]++; line[worker[1], number[worker[1]] % 3] = $0 }
    END { for (name in number) for (at = 0; at < 3; at++) if ((name, at) in line) print line[name, at] }' /tmp/load | sort >/tmp/gemm
  [ "$gemm" = 0 ] || tail -n 3 /tmp/load >>/tmp/gemm
fi
[ -s /tmp/whole ] || nvidia-smi -q >/tmp/whole 2>/dev/null
# section headings, what is judged, the fields in which a GPU says that something is wrong with it, and errors in place of any value
awk '/^(Driver Version|CUDA Version|Attached GPUs|GPU )/ { print; next }
  /^ / && !/ : / { print; next }
  /^ +(Product Name|VBIOS Version|Current|Max|Performance State|(Current )?Power Limit|HW [A-Za-z ]+Slowdown|HW Slowdown|SW [A-Za-z ]+) +:/ { print; next }
  /^ +([SD]RAM Uncorrectable[A-Za-z -]*|Double Bit|Total|Correctable Error|Uncorrectable Error|Pending|Remapping Failure Occurred) +:/ { print; next }
  /^ +(GPU Current Temp|SM|Processes) +:/ { print; next }
  { field = tolower($0) }
  field ~ /^ +(reset required|drain and reset recommended|gpu recovery action|sram threshold exceeded) +:/ { print; next }
  field ~ /^ +(pending page blacklist|pending blacklist|pending retirement|state|status|summary|bandwidth|degraded bandwidth) +:/ { print; next }
  field ~ /^ +(route recovery in progress|route unhealthy|access timeout recovery|incorrect configuration) +:/ { print; next }
  field ~ /: \[?(gpu requires reset|gpu is lost|unknown error|err!)\]?$/ { print }' /tmp/whole >/tmp/query
part query 0
nvidia-smi nvlink --status 2>&1 | sed 's/UUID: GPU-[0-9a-f-]*/UUID: GPU-x/' >/tmp/links
part links 0
dmesg >/tmp/ring 2>&1
ring=$?
# the first line of each Xid of each GPU and of each fatal SXid of each NVSwitch, so that a storm of one hides no other, and the last
# lines of the driver without one
grep -aE 'NVRM|nvidia-nvswitch' /tmp/ring | awk '/nvidia-nvswitch/ && !/SXid .*, Fatal/ { next }
  !match($0, /Xid \(PCI:[0-9A-Fa-f:.]*\): [0-9]*/) { rest[others++ % 40] = $0; next }
  { xid = substr($0, RSTART, RLENGTH); if (!times[xid]++) { order[kinds++] = xid; line[xid] = substr($0, 1, 300) } }
  END { for (at = 0; at < kinds; at++) { xid = order[at]
      print line[xid] (times[xid] > 1 ? " [repeated " (times[xid] - 1) " more times]" : "") }
    for (at = others; at < others + 40; at++) if ((at % 40) in rest) print rest[at % 40] }' >/tmp/kernel
part kernel $ring
for device in "$sysfs"/class/infiniband/*; do
  [ -e "$device" ] || continue
  set -- "${device##*/}"
  for file in board_id fw_ver device/current_link_width device/current_link_speed; do
    set -- "$@" "$(cut -d ' ' -f 1 "$device/$file" 2>/dev/null || :)"
  done
  echo "$1 ${2:--} ${3:--} ${4:--} ${5:--}"
done >/tmp/adapters
part adapters 0
part gemm $gemm
if [ "${COPIES:-0}" = 1 ]; then
  copies=127
  if [ -n "$copier" ]; then
    timeout 600 "$copier" -t host_to_device_memcpy_ce device_to_host_memcpy_ce device_to_device_memcpy_read_ce >/tmp/copied 2>&1
    copies=$?
    grep -E '^(Running|memcpy| *[0-9])|[Ee]rror' /tmp/copied >/tmp/nvbandwidth
  fi
  part nvbandwidth $copies
fi
nv-hostengine --log-level ERROR >/tmp/engine 2>&1
for try in $(seq 30); do dcgmi discovery -l >/dev/null 2>&1 && break; sleep 1; done
timeout "$SECONDS_TO_RUN" dcgmi diag -r "$LEVEL" -j >/tmp/dcgm 2>&1
code=$?
[ -s /tmp/dcgm ] || cat /tmp/engine >/tmp/dcgm
part dcgm $code
cat /tmp/all
packed=$(gzip -9c /tmp/all | base64 | tr -d '\n')
[ ${#packed} -le 3800 ] || packed=
printf '{"node":"%s","exits":[%d],"packed":"%s"}' "$NODE_NAME" "$code" "$packed" >/dev/termination-log
