# Pods behind the Service that check `host` asks (busybox): answer with the name of the node until the check is over.
# In: NODE_NAME, SECONDS_TO_WAIT.
mkdir -p /tmp/www/cgi-bin
printf '#!/bin/sh\nprintf "Content-Type: text/plain\\r\\n\\r\\n%s"\n' "$NODE_NAME" > /tmp/www/cgi-bin/name
chmod +x /tmp/www/cgi-bin/name
httpd -p 8080 -h /tmp/www
exec sleep "$SECONDS_TO_WAIT"
