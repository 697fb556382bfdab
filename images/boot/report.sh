#!/bin/bash
# Posts a report about this node to the server named by the kernel argument bringup.report=URL. With bringup.tests=yes, as in a test
# boot, it first fetches tests from that server and runs them; a node in production never executes anything from the network. A URL that
# ends with /nodes is a folder of a plain web server: the node puts URL/NAME.json there, with only what `bringup image nodes` reads.
# Messages are lines of words, with arbitrary text in base64. Their format: steps/nodeimage/contract/boot_test_protocol.py.
# Usage: report [FILE with kernel arguments [SECONDS between two attempts [FOLDER into which live-boot fetched the root
# [FILE that keeps the root's digest until the next boot, because hashing it every day would take time from the node's jobs]]]]
set -u
# systemd gives system services no HOME, without which OpenMPI 5 does not start
export HOME=/root LC_ALL=C PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin
readonly cmdline=${1:-/proc/cmdline} pause=${2:-3} medium=${3:-/run/live/medium} kept=${4:-} tries=5 silence=60 longest=400
work=$(mktemp -d "${TMPDIR:-/run}/bringup-report.XXXXXX") || exit 1
trap 'rm -rf "$work"' EXIT

say() { echo "bringup-report: $*"; }

# Print the value of a kernel argument; empty if it is missing.
argument() {
    local word
    for word in $(<"$cmdline"); do
        case $word in "$1="*) printf '%s' "${word#*=}"; return ;; esac
    done
}

# Send an HTTP request: method, path below the URL, file with the body. The response body goes to $work/answer, its status to $work/status.
request() {
    local host=$server port=80 line status size=0
    case $server in *:*) host=${server%:*} port=${server##*:} ;; esac
    [ "$1" = GET ] || size=$(stat -c %s "$3")
    exec 3<>"/dev/tcp/$host/$port" || return 1
    printf '%s %s%s HTTP/1.0\r\nHost: %s\r\nContent-Length: %s\r\nConnection: close\r\n\r\n' "$1" "$prefix" "$2" "$server" "$size" >&3
    [ "$size" = 0 ] || cat "$3" >&3
    read -r -t "$silence" _ status _ <&3 || status=0
    while read -r -t "$silence" line <&3; do
        [ "${line%$'\r'}" ] || break
    done
    timeout "$silence" cat <&3 >"$work/answer" || status=0
    exec 3<&- 3>&-
    printf '%s' "${status:-0}" >"$work/status"
}

# Send a request and retry until the status is 2xx; the status goes to $work/status.
asked() {
    local try
    for ((try = 1; try <= tries; try++)); do
        printf 0 >"$work/status"
        (request "$@") 2>"$work/why"
        case $(<"$work/status") in 2??) return 0 ;; esac
        say "try $try of $tries: $1 http://$server$prefix$2: status $(<"$work/status") $(head -c 200 "$work/why")"
        sleep "$pause"
    done
    return 1
}

# Print the end of a file as one line of base64.
coded() { tail -c "$longest" "$1" | tr '\n\t' '  ' | base64 -w 0; }

# Print the time between two uptimes (with two decimals) in hundredths of a second.
hundredths() { echo $((10#${2/./} - 10#${1/./})); }

# Run the test NAME for at most SECONDS, its script given in base64, and print one line about it.
test_line() {
    local began ended code took outcome=pass
    if ! base64 -d <<<"$3" >"$work/script" 2>/dev/null; then
        printf 'test %s error 0 %s\n' "$1" "$(base64 -w 0 <<<'its script could not be read')"
        return
    fi
    read -r began _ </proc/uptime
    timeout -k 5 "$2" /bin/sh -e "$work/script" </dev/null >"$work/output" 2>&1
    code=$?
    read -r ended _ </proc/uptime
    took=$(hundredths "$began" "$ended")
    # a test killed before its time was killed by something else, such as the kernel's OOM killer
    case $code in 0) ;; 124) outcome=timeout ;; 125) outcome=error ;; *) outcome=fail ;; esac
    [ "$code" = 137 ] && [ "$took" -ge "$(hundredths 0.00 "${2%.*}.00")" ] && outcome=timeout
    printf 'test %s %s %d.%02d %s\n' "$1" "$outcome" $((took / 100)) $((took % 100)) "$(coded "$work/output")"
}

# Print the MAC address of the boot interface as the interface itself has it, or of another interface if none matches.
mac() {
    local wanted path found=none
    wanted=$(argument BOOTIF)
    wanted=${wanted#01-} wanted=${wanted//-/:}
    for path in /sys/class/net/*/address; do
        case $path in */lo/address) continue ;; esac
        found=$(<"$path")
        [ "$found" = "${wanted,,}" ] && break
    done
    echo "$found"
}

# Print the type of the topmost file system on /.
root_type() {
    local place type found=unknown
    while read -r _ place type _; do
        [ "$place" = / ] && found=$type
    done </proc/mounts
    echo "$found"
}

# Print the free space of the root in MiB.
free_mib() {
    local blocks size
    read -r blocks size < <(stat -f -c '%a %S' /)
    echo $((blocks * size / 1048576))
}

# Print the digest of the squashfs this node runs, computed from its bytes. The boot script only says what should have been fetched.
image() {
    local path digest
    [ ! -s "$kept" ] || { cat "$kept"; return; }
    for path in "$medium"/live/*.squashfs "$medium"/*.squashfs; do
        [ -f "$path" ] || continue
        digest=$(sha256sum <"$path" | cut -c 1-64)
        [ -z "$kept" ] || [ ${#digest} != 64 ] || printf 'sha256:%s' "$digest" >"$kept"
        printf 'sha256:%s' "$digest"
        return
    done
}

facts() {
    local unit
    echo 'bringup-report 1'
    echo "node $(uname -n)"
    echo "mac $(mac)"
    echo "address $(hostname -I 2>/dev/null | cut -d ' ' -f 1)"
    echo "kernel $(uname -r)"
    echo "modules $([ -e "/lib/modules/$(uname -r)/modules.dep" ] && echo 1 || echo 0)"
    echo "root $(root_type)"
    echo "free_mib $(free_mib)"
    echo "firmware $([ -d /sys/firmware/efi ] && echo uefi || echo bios)"
    echo "image $(image)"
    echo "uptime $(cut -d ' ' -f 1 /proc/uptime)"
    systemctl list-units --state=failed --plain --no-legend --full 2>/dev/null | while read -r unit _; do
        echo "failed $unit"
    done
}

# Print the version of the published tree in the boot script's fetch URL; empty for any other URL. Versions that differ only in groups or
# kernel arguments share one root, so its digest does not tell which of them the node booted.
version() {
    local from
    from=$(argument fetch)
    case $from in */versions/*/root.squashfs) from=${from%/*} from=${from##*/} ;; *) return ;; esac
    case $from in *[!0-9a-z-]*) ;; *) printf '%s' "$from" ;; esac
}

# Print the JSON that a published tree keeps of a node. Its name is the given host name, else its MAC address, which is unique.
seen() {
    local address booted
    address=$(mac) booted=$(($(date -u +%s) - $(cut -d . -f 1 /proc/uptime)))
    name=$(argument systemd.hostname)
    name=${name:-mac-${address//:/-}}
    printf '{"node":"%s","image":"%s","version":"%s","mac":"%s","at":%d}\n' "$name" "$(image)" "$(version)" "$address" "$booted"
}

url=$(argument bringup.report)
case $url in
    http://*) url=${url#http://} ;;
    *) say "bringup.report=$url: only http:// is understood" && exit 1 ;;
esac
server=${url%%/*} prefix=
case $url in */*) prefix=/${url#*/} prefix=${prefix%/} ;; esac

if [ "${prefix##*/}" = nodes ] && [ "$(argument bringup.tests)" != yes ]; then
    name=
    seen >"$work/seen"
    asked PUT "/$name.json" "$work/seen" || exit 1
    say "told http://$server$prefix/$name.json"
    exit 0
fi
facts >"$work/report"
count=0
if [ "$(argument bringup.tests)" = yes ]; then
    asked GET /tests || exit 1
    # a truncated list lacks its last line; the report shows which tests were received
    while read -r kind name limit script; do
        [ "$kind" = test ] || continue
        say "test $name"
        test_line "$name" "$limit" "$script" >>"$work/report"
        count=$((count + 1))
    done <"$work/answer"
fi
# the clock comes last, because the server compares it with its own on receipt
echo "clock $(date -u +%s.%N)" >>"$work/report"
echo "end $count" >>"$work/report"
asked POST /report "$work/report" || exit 1
say "told http://$server$prefix of $count tests"
