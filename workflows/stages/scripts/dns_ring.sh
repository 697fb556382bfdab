# Check `dns` (busybox): resolve the API's name, reach a Service by address and by name, ask the next pod of the ring which node it is
# on and for a file of packets in full size, answer the one before, come in by ingress. Rounds go on until all is there. The one before
# is asked back as well: two neighbours that cannot look up names are then both seen from outside.
# In: JOB_COMPLETION_INDEX, COUNT (pods), NODE_NAME, SECONDS_TO_WAIT; VIP_SERVICE_HOST (from Kubernetes; DNS says it too);
# with ingress INGRESS_HOST (the name asked for), HOST_IP (this node) and INGRESS_AT (addresses of other nodes, with spaces).
# OUTSIDE: names outside of the cluster that later stages need, with spaces; may be empty. Each is also asked for below the search
# domains that pods have from their node: pods ask there first, so that a domain with a record for every name catches it.
# Out: {"node","resolved","service","vip","named","next","peer","before","reached","large","outside":{NAME:ADDRESS},"caught",
# "ingress","own","error"}
mkdir -p /tmp/www/cgi-bin
printf '#!/bin/sh\nprintf "Content-Type: text/plain\\r\\n\\r\\n%s"\n' "$NODE_NAME" > /tmp/www/cgi-bin/name
printf '#!/bin/sh\ntouch /tmp/asked\nexec /tmp/www/cgi-bin/name\n' > /tmp/www/cgi-bin/got
chmod +x /tmp/www/cgi-bin/name /tmp/www/cgi-bin/got
size=65536
head -c $size /dev/zero > /tmp/www/large
httpd -p 8080 -h /tmp/www
next=$(( (JOB_COMPLETION_INDEX + 1) % COUNT )) last=$(( (JOB_COMPLETION_INDEX + COUNT - 1) % COUNT ))
end=$(( $(date +%s) + SECONDS_TO_WAIT ))
resolved= vip= named= peer= before= large=false ingress= own=false error= outside= caught= asked_outside=
address=$VIP_SERVICE_HOST
search=$(awk '/^search/ {print $2; exit}' /etc/resolv.conf)
services=${search#*.} # svc.cluster.local, or as the cluster's domain is
domains=$(awk -v own="${services#svc.}" '/^search/ {for (i = 2; i <= NF; i++) if ($i != own && $i !~ ("[.]" own "$")) print $i}' \
  /etc/resolv.conf | head -n 6)
look_up() {
  nslookup "$1" > /tmp/answer 2>/tmp/said
  awk '/^Name/ {seen = 1} seen && /^Address/ {print $NF; exit}' /tmp/answer
}
ask() { wget -q -O /tmp/answer -T 3 "$@" 2>/tmp/said && tr -cd 'A-Za-z0-9.-' < /tmp/answer | cut -c 1-63; }
at() { case "$1" in *:*) echo "http://[$1]$2" ;; *) echo "http://$1$2" ;; esac; }
ask_large() {
  wget -q -O /tmp/got -T 3 "$1/large" 2>/tmp/said && [ "$(wc -c < /tmp/got)" -eq $size ] || return
  large=true
  ask "$1/cgi-bin/got" > /tmp/thanked || : # it may end now, and waits some more where it has not heard
}
failed() { error=$(tail -n 1 /tmp/said); }
ask_outside() { # all names in each round, so that the report has the answers of one round
  outside= asked_outside=true
  for name in $OUTSIDE; do
    answer=$(look_up "$name." | tr -cd '0-9A-Fa-f.:')
    outside="$outside${outside:+,}\"$name\":\"$answer\""
    [ -n "$answer" ] || { asked_outside=; failed; continue; }
    for domain in $domains; do
      [ -n "$caught" ] || [ -z "$(look_up "$name.$domain.")" ] || caught=$(printf %s "$domain" | tr -cd 'A-Za-z0-9.-')
    done
  done
}
come_in() {
  ingress=$(ask --header "Host: $INGRESS_HOST" "$(at "$HOST_IP" /cgi-bin/name)")
  [ -z "$ingress" ] || { own=true; return; }
  failed
  grep -q refused /tmp/said || return
  for other in $INGRESS_AT; do
    ingress=$(ask --header "Host: $INGRESS_HOST" "$(at "$other" /cgi-bin/name)")
    [ -z "$ingress" ] || return
  done
}
through() {
  [ -n "$resolved" ] && [ -n "$vip" ] && [ -n "$named" ] && [ -n "$asked_outside" ] && { [ "$COUNT" -eq 1 ] || $large; } &&
    { [ -z "$INGRESS_HOST" ] || [ -n "$ingress" ]; }
}
while :; do # once in any case: a second may be over before it has begun
  [ -n "$resolved" ] || resolved=$(look_up "kubernetes.default.$services")
  [ -n "$resolved" ] || failed
  [ -n "$address" ] || address=$(look_up "vip.$search")
  [ -n "$vip" ] || [ -z "$address" ] || { vip=$(ask "$(at "$address" /cgi-bin/name)"); [ -n "$vip" ] || failed; }
  [ -n "$named" ] || { named=$(ask http://vip/cgi-bin/name); [ -n "$named" ] || failed; }
  [ "$COUNT" -eq 1 ] || [ -n "$peer" ] || { peer=$(ask "http://dns-$next.dns:8080/cgi-bin/name"); [ -n "$peer" ] || failed; }
  [ -z "$peer" ] || $large || ask_large "http://dns-$next.dns:8080" || failed
  [ "$COUNT" -eq 1 ] || [ -n "$before" ] || before=$(ask "http://dns-$last.dns:8080/cgi-bin/name")
  [ -n "$asked_outside" ] || ask_outside
  [ -z "$INGRESS_HOST" ] || [ -n "$ingress" ] || come_in
  if through && { [ "$COUNT" -eq 1 ] || [ -e /tmp/asked ]; }; then break; fi
  [ "$(date +%s)" -lt "$end" ] || break
  sleep 1
done
reached=false
[ -z "$peer" ] || reached=true
! through || error=
error=$(printf %s "$error" | tr -cd 'A-Za-z0-9 .:/_-' | cut -c 1-200)
printf '{"node":"%s","resolved":"%s","service":"%s","vip":"%s","named":"%s","next":%d,"peer":"%s","before":"%s",' \
  "$NODE_NAME" "$resolved" "$KUBERNETES_SERVICE_HOST" "$vip" "$named" "$next" "$peer" "$before" > /tmp/report
printf '"reached":%s,"large":%s,"outside":{%s},"caught":"%s",' "$reached" "$large" "$outside" "$caught" >> /tmp/report
printf '"ingress":"%s","own":%s,"error":"%s"}' "$ingress" "$own" "$error" >> /tmp/report
cat /tmp/report > /dev/termination-log
