"""Disks of the site beside a machine's RKE2, and what an old RKE2 left there: shell text in which `@NAME@` stands for a path."""

DATA = "/var/lib/rancher/rke2"
VOLUME = "/var/lib/kubelet/pods/1f3c/volumes/kubernetes.io~csi/pvc-7/mount"
MADE = """
for disk in @DISKS@; do
    mkdir -p $disk
    mount -t tmpfs site $disk
done
mkdir -p @DATA@/server/db/etcd @DATA@/agent @VOLUME@ /srv/volume
echo old > @DATA@/server/db/etcd/member
echo old > @DATA@/agent/kubelet.kubeconfig
echo old > /var/lib/kubelet/cpu_manager_state
echo precious > /srv/volume/rows
mount --bind /srv/volume @VOLUME@
"""
LINKED = """
for place in @LINKS@; do
    mkdir -p /data$place $(dirname $place)
    ln -s /data$place $place
done
"""


def script(words: str, links: tuple[str, ...] = ()) -> str:
    """The words with their paths."""
    places = {"LINKS": " ".join(links), "DISKS": "", "SHARE": DATA + "/server/db/snapshots", "DATA": DATA, "VOLUME": VOLUME}
    for name, path in places.items():
        words = words.replace(f"@{name}@", path)
    return words
