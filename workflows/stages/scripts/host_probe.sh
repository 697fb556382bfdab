# Check `host` (busybox, in the network of a server, with the resolv.conf that its kubelet gives to CoreDNS): ask each DNS server of that
# file for an outside name, and a Service by its cluster address, as API servers do, until a pod on another node has answered.
# In: NODE_NAME, SECONDS_TO_WAIT, OUTSIDE (names, with spaces; may be empty), ALONE (set where no other node can answer);
# ANSWER_SERVICE_HOST (from Kubernetes).
# Out: {"node","upstreams":[{"server","answer"}],"answered":[nodes],"unanswered","error"}
end=$(( $(date +%s) + SECONDS_TO_WAIT ))
name=${OUTSIDE%% *} nodes= unanswered=0 error=
case "$ANSWER_SERVICE_HOST" in
  *:*) service="http://[$ANSWER_SERVICE_HOST]/cgi-bin/name" ;;
  *) service="http://$ANSWER_SERVICE_HOST/cgi-bin/name" ;;
esac
ask_server() {
  nslookup "$name" "$1" > /tmp/answer 2>/tmp/said
  awk '/^Name/ {seen = 1} seen && /^Address/ {print $NF; exit}' /tmp/answer | tr -cd '0-9A-Fa-f.:'
}
ask_service() { wget -q -O /tmp/answer -T 3 "$service" 2>/tmp/said && tr -cd 'A-Za-z0-9.-' < /tmp/answer | cut -c 1-63; }
failed() { error=$(tail -n 1 /tmp/said); }
through() {
  for node in $nodes; do
    [ -z "$ALONE" ] && [ "$node" = "$NODE_NAME" ] || return 0
  done
  return 1
}
for server in $(awk '/^nameserver/ {print $2}' /etc/resolv.conf | head -n 3); do
  answer=
  for _ in 1 2 3; do
    [ -n "$name" ] && [ -z "$answer" ] || break
    answer=$(ask_server "$server")
    [ -n "$answer" ] || failed
  done
  server=$(printf %s "$server" | tr -cd '0-9A-Fa-f.:%')
  upstreams="$upstreams${upstreams:+,}{\"server\":\"$server\",\"answer\":\"$answer\"}"
done
while ! through; do
  node=$(ask_service)
  if [ -z "$node" ]; then
    unanswered=$(( unanswered + 1 ))
    failed
  else
    case " $nodes " in *" $node "*) ;; *) nodes="$nodes${nodes:+ }$node" ;; esac
  fi
  [ "$(date +%s)" -lt "$end" ] || break
  through || sleep 1
done
! through || error=
error=$(printf %s "$error" | tr -cd 'A-Za-z0-9 .:/_-' | cut -c 1-200)
answered=$(printf %s "$nodes" | sed 's/ /","/g')
printf '{"node":"%s","upstreams":[%s],"answered":[%s],"unanswered":%d,"error":"%s"}' \
  "$NODE_NAME" "$upstreams" "${answered:+\"$answered\"}" "$unanswered" "$error" > /dev/termination-log
