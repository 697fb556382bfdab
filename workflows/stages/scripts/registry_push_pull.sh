# Check `registry`: the pod with index 0 pushes a small OCI artefact and a small image by HTTP, and each pod pulls the artefact from its own
# node. It is an init container: once it has ended, the node itself pulls the image for the pod's main container.
# Runs in any image with busybox (nc, sha256sum, sed, tar, wc). wget of busybox has no PUT, hence HTTP by nc.
# In: NODE_NAME, JOB_COMPLETION_INDEX, NONCE, REGISTRY_HOST, REGISTRY_PORT, REPOSITORY, IMAGE_TAG, WAIT_SECONDS; for a registry with TLS
# REGISTRY_TLS, for one with a login REGISTRY_USER and REGISTRY_PASSWORD.
# Out: {"node","wanted","pushed","image","pulled","error"}; `pushed` and `image` are digests of manifests
MANIFEST_TYPE=application/vnd.oci.image.manifest.v1+json
CONFIG_TYPE=application/vnd.oci.image.config.v1+json
LAYER_TYPE=application/vnd.oci.image.layer.v1.tar
work=$(mktemp -d)

digest() { sha256sum < "$1" | sed 's/ .*//; s/^/sha256:/'; }
size() { wc -c < "$1" | tr -d ' '; }

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

# request METHOD PATH TYPE FILE: the whole answer, without carriage returns
request() {
  {
    printf '%s %s HTTP/1.1\r\nHost: %s:%s\r\nConnection: close\r\nAccept: %s\r\n' "$1" "$2" "$REGISTRY_HOST" "$REGISTRY_PORT" "$MANIFEST_TYPE"
    [ -z "$login" ] || printf 'Authorization: Basic %s\r\n' "$login"
    printf 'Content-Type: %s\r\nContent-Length: %s\r\n\r\n' "$3" "$(size "$4")"
    cat "$4"
  } | talk 2>&1 | tr -d '\r'
}
status() { printf '%s\n' "$1" | sed -n '1s/^HTTP\/[0-9.]* \([0-9]*\).*/\1/p'; }
body() { printf '%s\n' "$1" | sed '1,/^$/d'; }

# upload FILE: 0 if the registry took it
upload() {
  begun=$(request POST "/v2/$REPOSITORY/blobs/uploads/" application/octet-stream /dev/null)
  place=$(printf '%s\n' "$begun" | sed -n 's/^[Ll]ocation: *//p' | sed 's/^https\{0,1\}:\/\/[^/]*//')
  [ -n "$place" ] || { error="begin of an upload: $(status "$begun")"; return 1; }
  case $place in *\?*) mark='&' ;; *) mark='?' ;; esac
  ended=$(request PUT "$place${mark}digest=$(digest "$1")" application/octet-stream "$1")
  [ "$(status "$ended")" = 201 ] || { error="end of an upload: $(status "$ended")"; return 1; }
}

part() { printf '{"mediaType":"%s","digest":"%s","size":%s}' "$1" "$(digest "$2")" "$(size "$2")"; }

# tag NAME TYPE CONFIG TYPE LAYER: uploads both files and a manifest of them
tag() {
  upload "$3" && upload "$5" || return 1
  printf '{"schemaVersion":2,"mediaType":"%s","config":%s,"layers":[%s]}' "$MANIFEST_TYPE" "$(part "$2" "$3")" "$(part "$4" "$5")" > "$work/manifest"
  tagged=$(request PUT "/v2/$REPOSITORY/manifests/$1" "$MANIFEST_TYPE" "$work/manifest")
  [ "$(status "$tagged")" = 201 ] || { error="manifest: $(status "$tagged")"; return 1; }
}

# program: a file of ELF whose instructions are exit(0), for the architecture of this machine
program() {
  case $(uname -m) in
    aarch64) kind='\267' length='\204' code='\000\000\200\322\250\013\200\322\001\000\000\324' ;; # mov x0, 0; mov x8, 93; svc 0
    *) kind='\076' length='\201' code='\061\377\270\074\000\000\000\017\005' ;; # xor edi, edi; mov eax, 60; syscall
  esac
  none='\000\000\000\000' base='\000\000\100\000\000\000\000\000'
  printf "\\177ELF\\002\\001\\001\\000$none$none\\002\\000$kind\\000\\001\\000\\000\\000\\170\\000\\100\\000$none"
  printf "\\100\\000\\000\\000$none$none$none$none\\100\\000\\070\\000\\001\\000\\000\\000\\000\\000\\000\\000"
  printf "\\001\\000\\000\\000\\005\\000\\000\\000$none$none$base$base$length\\000\\000\\000$none$length\\000\\000\\000$none\\000\\000\\001\\000$none$code"
}

# the image differs from check to check by its label: a node that has an older one under this tag is noticed
push_image() {
  case $(uname -m) in aarch64) architecture=arm64 ;; *) architecture=amd64 ;; esac
  mkdir -p "$work/root" && program > "$work/root/exit" && chmod 755 "$work/root/exit" && tar -cf "$work/layer" -C "$work/root" exit || return 1
  printf '{"architecture":"%s","os":"linux","config":{"Entrypoint":["/exit"],"Labels":{"check":"%s"}},"rootfs":{"type":"layers","diff_ids":["%s"]}}' \
    "$architecture" "$NONCE" "$(digest "$work/layer")" > "$work/config"
  tag "$IMAGE_TAG" "$CONFIG_TYPE" "$work/config" "$LAYER_TYPE" "$work/layer" && image=$(digest "$work/manifest")
}

# the artefact comes last: once others see it, the image is there as well
push() {
  push_image || return 1
  printf '{}' > "$work/empty" && printf %s "$NONCE" > "$work/nonce"
  tag "$NONCE" application/vnd.oci.empty.v1+json "$work/empty" text/plain "$work/nonce" && pushed=$(digest "$work/manifest")
}

pull() {
  listed=$(request GET "/v2/$REPOSITORY/manifests/$NONCE" "" /dev/null)
  [ "$(status "$listed")" = 200 ] || { error="manifest of tag: $(status "$listed")"; return 1; }
  layer=$(body "$listed" | sed -n 's/.*"text\/plain","digest":"\(sha256:[0-9a-f]*\)".*/\1/p')
  blob=$(request GET "/v2/$REPOSITORY/blobs/$layer" "" /dev/null)
  [ "$(status "$blob")" = 200 ] || { error="blob ${layer:-unnamed}: $(status "$blob")"; return 1; }
  pulled=$(body "$blob")
}

# the artefact must be there within the time; the registry answers 404 until the first pod has pushed it
error= pushed= image= pulled= end=$(($(date +%s) + WAIT_SECONDS))
while :; do
  if [ "$JOB_COMPLETION_INDEX" != 0 ] || [ -n "$pushed" ] || push; then
    if pull; then error=; break; fi
  fi
  [ "$(date +%s)" -lt "$end" ] || break
  sleep 2
done
error=$(printf %s "$error" | tr -cd 'A-Za-z0-9 :.,_/-' | cut -c1-200)
printf '{"node":"%s","wanted":"%s","pushed":"%s","image":"%s","pulled":"%s","error":"%s"}' \
  "$NODE_NAME" "$NONCE" "$pushed" "$image" "$(printf %s "$pulled" | tr -cd 'A-Za-z0-9-' | cut -c1-100)" "$error" > /dev/termination-log
