# Check `dns` (busybox): resolve the API's name, ask the next pod of the ring which node it is on, answer the one before.
# In: JOB_COMPLETION_INDEX, COUNT (pods), NODE_NAME, SECONDS_TO_WAIT. Out: {"node","resolved","service","next","peer","reached","error"}
mkdir -p /tmp/www/cgi-bin
printf '#!/bin/sh\ntouch /tmp/asked\nprintf "Content-Type: text/plain\\r\\n\\r\\n%s"\n' "$NODE_NAME" > /tmp/www/cgi-bin/node
chmod +x /tmp/www/cgi-bin/node
httpd -p 8080 -h /tmp/www
next=$(( (JOB_COMPLETION_INDEX + 1) % COUNT ))
end=$(( $(date +%s) + SECONDS_TO_WAIT ))
resolved= peer= error=
while [ "$(date +%s)" -lt "$end" ]; do
  if [ -z "$resolved" ]; then
    nslookup kubernetes.default.svc.cluster.local > /tmp/answer 2>/tmp/said
    resolved=$(awk '/^Name/ {seen = 1} seen && /^Address/ {print $NF; exit}' /tmp/answer)
    [ -n "$resolved" ] || error=$(tail -n 1 /tmp/said)
  fi
  if [ "$COUNT" -gt 1 ] && [ -z "$peer" ]; then
    peer=$(wget -q -O - -T 3 "http://dns-$next.dns:8080/cgi-bin/node" 2>/tmp/said) || error=$(tail -n 1 /tmp/said)
  fi
  if [ -n "$resolved" ] && { [ "$COUNT" -eq 1 ] || { [ -n "$peer" ] && [ -e /tmp/asked ]; }; }; then break; fi
  sleep 1
done
reached=false
[ -z "$peer" ] || reached=true
[ -z "$resolved" ] || [ "$reached" = false ] || error=
error=$(printf %s "$error" | tr -cd 'A-Za-z0-9 .:/_-' | cut -c 1-200)
printf '{"node":"%s","resolved":"%s","service":"%s","next":%d,"peer":"%s","reached":%s,"error":"%s"}' \
  "$NODE_NAME" "$resolved" "$KUBERNETES_SERVICE_HOST" "$next" "$peer" "$reached" "$error" > /dev/termination-log
