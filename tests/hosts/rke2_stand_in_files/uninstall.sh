#!/bin/sh
# A stand-in for rke2-uninstall.sh: removes units, programs and folders, and on the RHEL family packages and repositories; some traces
# stay, for the reset to find.
systemctl disable rke2-server.service rke2-agent.service
if [ -r /etc/redhat-release ]; then
    yum remove -y "rke2-*"
    rm -f /etc/yum.repos.d/rancher-rke2*.repo
fi
rm -rf /etc/rancher/rke2 /etc/rancher/node /var/lib/kubelet /etc/cni /usr/local/share/rke2-stand-in
rm -rf /usr/local/lib/systemd/system/rke2-*.service
find /var/lib/rancher/rke2 -delete
rm -f /usr/local/bin/rke2 /usr/local/bin/rke2-*.sh
systemctl daemon-reload
exit 0
