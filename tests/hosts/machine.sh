#!/usr/bin/env bash
# Runs a command, such as the interpreter of a test process, on a machine of its own as far as namespaces give one: processes,
# interfaces, mounts and cgroups that another such machine beside it, and the tests of other tiers, neither see nor end.
# Three of them share the tier, each with hosts of the same names. Nothing in them reaches a mirror: `hosts.py install` builds the roots before.
set -euo pipefail
work=$(mktemp -d "${TMPDIR:-/tmp}/machine-XXXXXX")
trap 'rm -rf --one-file-system "$work"; rmdir "/var/tmp/bringup-hosts-$$" 2>/dev/null || true' EXIT
export TMPDIR=$work BRINGUP_LAB=/var/tmp/bringup-hosts-$$
# Process 1 stays a shell, which reaps orphans. All of it ends where this script is killed: `--pdeathsig`, then `--kill-child`.
setpriv --pdeathsig KILL unshare --net --mount --pid --ipc --fork --kill-child --mount-proc bash -euo pipefail -c '
    mkdir -p /run/netns
    mount -t tmpfs tmpfs /run/netns
    mkdir "$TMPDIR/cgroup"
    mount --rbind /sys/fs/cgroup "$TMPDIR/cgroup"
    mount -t sysfs sysfs /sys  # the interfaces of this machine
    mount --rbind "$TMPDIR/cgroup" /sys/fs/cgroup
    umount --lazy "$TMPDIR/cgroup"
    ip link set lo up
    "$@"
    exit
' machine "$@"
