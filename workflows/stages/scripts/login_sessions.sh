# Command `login-sessions` in a login pod: who would lose work with the pod. Sessions are known by the titles of sshd's processes, which also
# connections without a terminal have (scp, editors: `notty`); other processes of users, such as a detached tmux, by their uid (>= 1000) and
# their shell, which daemons have none of.
# Out: lines `session USER TERMINAL`, `session USER PROGRAM` for processes without a session, and `end`.
titles() { for file in /proc/[0-9]*/cmdline; do tr '\000' ' ' <"$file" 2>/dev/null && echo; done; }
titles | sed -n 's/^sshd\(-session\)\{0,1\}: \([^ @]*\)@\([^ ]*\) *$/session \2 \3/p' | sort -u >/tmp/.sessions.$$
for folder in /proc/[0-9]*; do
  uid=$(sed -n 's/^Uid:[[:space:]]*\([0-9]*\).*/\1/p' "$folder/status" 2>/dev/null)
  [ "${uid:-0}" -ge 1000 ] && [ "$uid" -ne 65534 ] || continue
  entry=$(getent passwd "$uid")
  case ${entry##*:} in */nologin|*/false) continue;; esac
  user=${entry%%:*}
  grep -q "^session ${user:-$uid} " /tmp/.sessions.$$ && continue
  echo "session ${user:-$uid} $(tr -cd 'A-Za-z0-9_.-' <"$folder/comm" 2>/dev/null | cut -c1-32)"
done | sort -u | cat /tmp/.sessions.$$ - | grep ' [^ ][^ ]*$'
rm -f /tmp/.sessions.$$
echo end
