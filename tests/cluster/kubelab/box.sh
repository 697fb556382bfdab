# Runs as process 1 of the box: a mount and process namespace in which real Kubernetes may do as it likes.
# In: FOLDER (what the box may keep).
set -e
mount --make-rprivate /
mount -t proc proc /proc
# What node programs keep under fixed paths stays in the box.
mount -t tmpfs tmpfs /run -o mode=755
mkdir -p /run/netns /run/lock /run/lib /run/lib-work
mount -t tmpfs tmpfs /var/log
# The kubelet's device plugins and CNI's results have no option for another path, and two boxes would take each other's socket.
mount -t overlay overlay -o lowerdir=/var/lib,upperdir=/run/lib,workdir=/run/lib-work /var/lib
# Sysctls without a namespace belong to the whole machine: the kubelet finds the values it wants, in plain files.
while read -r name value; do
    printf '%s\n' "$value" > "$FOLDER/sysctl.${name##*/}"
    mount --bind "$FOLDER/sysctl.${name##*/}" "/proc/sys/$name"
done <<END
vm/overcommit_memory 1
vm/panic_on_oom 0
kernel/panic 10
kernel/panic_on_oops 1
kernel/keys/root_maxkeys 1000000
kernel/keys/root_maxbytes 25000000
END
mount --make-rshared /
: > "$FOLDER/ready"
# Adopt and reap what the container shims leave behind.
while :; do
    sleep 3600 &
    wait $!
done
