#!/bin/sh
# A stand-in for rke2-killall.sh: stops services and takes away the most of what they left, as RKE2's own does.
systemctl stop rke2-server.service rke2-agent.service
pkill -9 -f /var/lib/rancher/rke2/data/
umount -l /run/k3s/containerd/sandbox /var/lib/kubelet/pods/a/volumes/token
ip netns delete cni-stand-in
ip link delete cni0
exit 0
