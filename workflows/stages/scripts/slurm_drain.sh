# Command `slurm-drain` in a pod with Slurm's tools: drains or resumes NODE by ACTION (show: neither), and prints what slurmctld has of it.
case $ACTION in
  drain) scontrol update nodename="$NODE" state=drain reason="bringup: check of drains" || exit 1;;
  resume) scontrol update nodename="$NODE" state=resume || exit 1;;
esac
scontrol show node "$NODE" -o
