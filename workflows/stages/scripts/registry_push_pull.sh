# Check `registry`: the pod with index 0 pushes a small OCI artefact by HTTP, and each pod pulls it from its own node.
# Runs in any image with busybox (nc, sha256sum, sed). wget of busybox has no PUT, hence HTTP by nc.
# In: NODE_NAME, JOB_COMPLETION_INDEX, NONCE, REGISTRY_HOST, REGISTRY_PORT, REPOSITORY, WAIT_SECONDS; for a registry with TLS
# REGISTRY_TLS, for one with a login REGISTRY_USER and REGISTRY_PASSWORD.
# Out: {"node","wanted","pushed","pulled","error"}
MANIFEST_TYPE=application/vnd.oci.image.manifest.v1+json
CONFIG='{}'

digest() { printf %s "$1" | sha256sum | cut -d' ' -f1; }

# talk: sends its input to the registry, and prints the answer. ssl_client of busybox encrypts and verifies nothing.
talk() {
  if [ -z "${REGISTRY_TLS:-}" ]; then
    nc -w 10 "$REGISTRY_HOST" "$REGISTRY_PORT"
  else
    nc -w 10 "$REGISTRY_HOST" "$REGISTRY_PORT" -e sh -c 'exec ssl_client -s 5 -n "$REGISTRY_HOST" 5<&0 0<&3 1>&4' 3<&0 4>&1
  fi
}
login=
[ -z "${REGISTRY_USER:-}" ] || login=$(printf %s "$REGISTRY_USER:$REGISTRY_PASSWORD" | base64 | tr -d '\n')

# request METHOD PATH TYPE BODY: the whole answer, without carriage returns
request() {
  {
    printf '%s %s HTTP/1.1\r\nHost: %s:%s\r\nConnection: close\r\nAccept: %s\r\n' "$1" "$2" "$REGISTRY_HOST" "$REGISTRY_PORT" "$MANIFEST_TYPE"
    [ -z "$login" ] || printf 'Authorization: Basic %s\r\n' "$login"
    printf 'Content-Type: %s\r\nContent-Length: %s\r\n\r\n%s' "$3" "${#4}" "$4"
  } | talk 2>&1 | tr -d '\r'
}
status() { printf '%s\n' "$1" | sed -n '1s/^HTTP\/[0-9.]* \([0-9]*\).*/\1/p'; }
body() { printf '%s\n' "$1" | sed '1,/^$/d'; }

# upload BLOB: 0 if the registry took it
upload() {
  begun=$(request POST "/v2/$REPOSITORY/blobs/uploads/" application/octet-stream "")
  place=$(printf '%s\n' "$begun" | sed -n 's/^[Ll]ocation: *//p' | sed 's/^https\{0,1\}:\/\/[^/]*//')
  [ -n "$place" ] || { error="begin of an upload: $(status "$begun")"; return 1; }
  case $place in *\?*) mark='&' ;; *) mark='?' ;; esac
  ended=$(request PUT "$place${mark}digest=sha256:$(digest "$1")" application/octet-stream "$1")
  [ "$(status "$ended")" = 201 ] || { error="end of an upload: $(status "$ended")"; return 1; }
}

push() {
  upload "$CONFIG" && upload "$NONCE" || return 1
  manifest="{\"schemaVersion\":2,\"mediaType\":\"$MANIFEST_TYPE\",\"config\":{\"mediaType\":\"application/vnd.oci.empty.v1+json\",\"digest\":\"sha256:$(digest "$CONFIG")\",\"size\":${#CONFIG}},\"layers\":[{\"mediaType\":\"text/plain\",\"digest\":\"sha256:$(digest "$NONCE")\",\"size\":${#NONCE}}]}"
  tagged=$(request PUT "/v2/$REPOSITORY/manifests/$NONCE" "$MANIFEST_TYPE" "$manifest")
  [ "$(status "$tagged")" = 201 ] || { error="manifest: $(status "$tagged")"; return 1; }
  pushed="sha256:$(digest "$manifest")"
}

pull() {
  listed=$(request GET "/v2/$REPOSITORY/manifests/$NONCE" "" "")
  [ "$(status "$listed")" = 200 ] || { error="manifest of tag: $(status "$listed")"; return 1; }
  layer=$(body "$listed" | sed -n 's/.*"text\/plain","digest":"\(sha256:[0-9a-f]*\)".*/\1/p')
  blob=$(request GET "/v2/$REPOSITORY/blobs/$layer" "" "")
  [ "$(status "$blob")" = 200 ] || { error="blob ${layer:-unnamed}: $(status "$blob")"; return 1; }
  pulled=$(body "$blob")
}

# the image must be there within the time; the registry answers 404 until the first pod has pushed it
error= pushed= pulled= end=$(($(date +%s) + WAIT_SECONDS))
while :; do
  if [ "$JOB_COMPLETION_INDEX" != 0 ] || [ -n "$pushed" ] || push; then
    if pull; then error=; break; fi
  fi
  [ "$(date +%s)" -lt "$end" ] || break
  sleep 2
done
error=$(printf %s "$error" | tr -cd 'A-Za-z0-9 :.,_/-' | cut -c1-200)
printf '{"node":"%s","wanted":"%s","pushed":"%s","pulled":"%s","error":"%s"}' \
  "$NODE_NAME" "$NONCE" "$pushed" "$(printf %s "$pulled" | tr -cd 'A-Za-z0-9-' | cut -c1-100)" "$error" > /dev/termination-log
