# Creates or changes QoS in Slurm's accounting, and lets slurmctld read its partitions again, which name them.
# In: QOS, entries `NAME KEY=VALUE KEY=VALUE` with `;` between. Out: a line `changed QOS` for each that was added or altered.
IFS=';'
for entry in $QOS; do
  IFS=' '
  set -- $entry
  name=$1
  shift
  # without a change sacctmgr ends with 1 and says so
  sacctmgr -i add qos "$name" >/dev/null 2>&1 && echo "changed qos $name"
  sacctmgr -n -P show qos "$name" format=name | grep -qx "$name" || { echo "sacctmgr has no qos $name" >&2; exit 1; }
  [ $# -eq 0 ] || sacctmgr -i modify qos "$name" set "$@" >/dev/null || exit 1
  IFS=';'
done
scontrol reconfigure
