"""The items of OS prep in POSIX shell, each read before it is changed: the script that one SSH login runs."""

import shlex

import os_prep_items as items

HEAD = r"""set -u
fail=0
changed() { echo "changed $1"; }
put() {
    [ "$(cat "$1" 2>/dev/null)" = "$2" ] && return 1
    mkdir -p "${1%/*}"
    printf '%s\n' "$2" > "$1.new" && mv "$1.new" "$1" && changed "$1"
}
"""
FSTAB = r"""if grep -Eq '^[^#]\S*\s+\S+\s+swap\s' /etc/fstab; then
    sed -Ei 's/^([^#]\S*\s+\S+\s+swap\s)/# \1/' /etc/fstab && changed fstab
fi"""
PACKAGES = "dpkg-query --show --showformat='${Status}\\n' PACKAGES | grep -vq '^install ok installed' && fail=1"
SPACE = f"[ $(df -m --output=avail {items.DISK[0].rsplit('/', 1)[0]} | tail -1) -ge {items.DISK[1]} ]"
ROUTE = "ip route show default | grep -q ."


def script(name: str, address: str) -> str:
    """All items for one host."""
    lines = [HEAD, PACKAGES.replace("PACKAGES", " ".join(items.PACKAGES)), f"{SPACE} || fail=1", f"{ROUTE} || fail=1"]
    lines += [f'put /etc/hostname {name}; [ "$(hostname)" = {name} ] || hostname {name}']
    lines += [f"grep -qx '{address} {name}' /etc/hosts || {{ echo '{address} {name}' >> /etc/hosts; changed hosts; }}"]
    for path, content in items.files().items():
        then = "systemctl daemon-reexec" if path == items.REEXEC else ":"
        lines += [f"put {path} {shlex.quote(content.rstrip())} && {then}"]
    lines += [f"[ -d {path} ] || {{ mkdir -p {path}; changed {path}; }}; chmod 755 {path}" for path in items.DIRECTORIES]
    lines += [FSTAB, *kernel(), *_units(), "exit $fail", ""]
    return "\n".join(lines)


def kernel() -> list[str]:
    """Swap, modules and sysctls of the running kernel."""
    lines = ["[ $(wc -l < /proc/swaps) -le 1 ] || swapoff --all"]
    lines += [f"[ -e /sys/module/{name} ] || modprobe {name} 2>/dev/null" for name in items.MODULES]
    lines += [f"[ ! -e /sys/module/{name} ] || modprobe --remove {name}" for name in items.BLACKLIST]
    for key, value in items.SYSCTLS.items():
        path = "/proc/sys/" + key.replace(".", "/")
        lines += [f'[ ! -e {path} ] || [ "$(cat {path})" = {value} ] || {{ echo {value} > {path}; echo changed {key}; }}']
    return lines


def _units() -> list[str]:
    lines = [f"systemctl is-active --quiet {unit} && systemctl disable --now {unit}" for unit in items.STOPPED]
    for unit in items.MASKED:
        lines += [
            f'[ "$(systemctl is-enabled {unit} 2>/dev/null)" = masked ] || {{ systemctl mask --now {unit}; changed {unit}; }}'
        ]
    return [*lines, f"systemctl is-active --quiet {items.TIME_SERVICE} || systemctl start {items.TIME_SERVICE}"]
