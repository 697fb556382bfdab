# Runs as process 1 of a host's namespaces: builds the host's file systems and becomes its init.
# In: LOWER (shared root), FOLDER (this host's), INIT.
set -e
mount --make-rprivate /
hostname "$(cat "$FOLDER/upper/etc/hostname")"
mount -t overlay overlay -o "lowerdir=$LOWER,upperdir=$FOLDER/upper,workdir=$FOLDER/work" "$FOLDER/root"
cd "$FOLDER/root"
mount -t proc proc proc -o nosuid,noexec,nodev
mount --bind proc/sys proc/sys
mount -o remount,bind,ro proc/sys
mount --bind /proc/sys/net proc/sys/net
# Sysctls without a namespace belong to the whole machine: shadow them with plain files, so that writes stay in the host.
mount -t tmpfs tmpfs tmp
mkdir tmp/sys
for part in vm fs kernel; do
    mkdir "tmp/sys/$part"
    cp -r --no-preserve=all "/proc/sys/$part/." "tmp/sys/$part/" 2>/dev/null || true
done
chmod -R u+w tmp/sys
for part in vm fs kernel; do mount --bind "tmp/sys/$part" "proc/sys/$part"; done
for file in hostname domainname random; do mount --bind "/proc/sys/kernel/$file" "proc/sys/kernel/$file"; done
# The boot id is the machine's too, and tells Ansible whether a host has rebooted.
cat /proc/sys/kernel/random/uuid > tmp/boot_id
mount --bind tmp/boot_id proc/sys/kernel/random/boot_id
# `swapoff -a` reads /proc/swaps and would take the whole machine's swap away.
printf 'Filename\tType\tSize\tUsed\tPriority\n' > tmp/swaps
mount --bind tmp/swaps proc/swaps
umount -l tmp
mount -t sysfs sysfs sys -o ro,nosuid,noexec,nodev
mount -t tmpfs tmpfs dev -o mode=755,nosuid
for device in null zero full random urandom tty; do
    : > "dev/$device"
    mount --bind "/dev/$device" "dev/$device"
done
mkdir -p dev/pts dev/shm
mount -t devpts devpts dev/pts -o newinstance,ptmxmode=0666,mode=620,gid=5
ln -s pts/ptmx dev/ptmx
ln -s /proc/self/fd dev/fd
ln -s fd/0 dev/stdin
ln -s fd/1 dev/stdout
ln -s fd/2 dev/stderr
mount -t tmpfs tmpfs dev/shm
mount -t tmpfs tmpfs run -o mode=755,nosuid,nodev
mkdir -p run/sshd run/lock
mount -t tmpfs tmpfs tmp -o mode=1777
if [ "$INIT" = systemd ]; then
    mount -t tmpfs tmpfs sys/fs/cgroup 2>/dev/null || true
    mount -t cgroup2 cgroup2 sys/fs/cgroup -o nsdelegate 2>/dev/null || mount -t cgroup2 cgroup2 sys/fs/cgroup
    set -- /lib/systemd/systemd --system --log-target=null --show-status=0
else
    set -- /usr/sbin/sshd -D -e
fi
mkdir -p .old
pivot_root . .old
cd /
umount -l /.old
rmdir /.old
# The clock, kernel modules and devices have no namespace either.
exec env -i container=bringup TERM=dumb PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin \
    setpriv --bounding-set=-sys_time,-sys_module,-sys_rawio,-mknod,-syslog --inh-caps=-sys_time,-sys_module "$@"
