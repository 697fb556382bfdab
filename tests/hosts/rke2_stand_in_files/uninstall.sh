#!/bin/sh
# A stand-in for rke2-uninstall.sh: removes units, programs and folders; some traces stay, for the reset to find.
systemctl disable rke2-server.service rke2-agent.service
rm -rf /etc/rancher/rke2 /etc/rancher/node /var/lib/kubelet /etc/cni /usr/local/share/rke2-stand-in
rm -rf /usr/local/lib/systemd/system/rke2-*.service
find /var/lib/rancher/rke2 -delete
rm -f /usr/local/bin/rke2 /usr/local/bin/rke2-*.sh
systemctl daemon-reload
exit 0
