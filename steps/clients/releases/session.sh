# Changes and shows one release tree. First line of the input: its folder; then one operation a line, words between tabs.
# A file's bytes follow its line. Answers: `done`, `error CODE WHAT`, and those of `look` and `claim`. Needs sh, GNU coreutils, sha256sum.
# Tokens of `look`, each with a zero byte at its end: r ROOT, e ENTRY, c CONTENTS, d DIGEST, i PRODUCT, n NODE REPORTS, t their TIMES,
# w FOLDER that cannot be written, z END.
set -u
LC_ALL=C
export LC_ALL
umask 022
tab=$(printf "\t")
lock=
mark=
unlock() {
  if [ -n "$lock" ] && holds "$lock" "$mark"; then (true >"$lock") 2>/dev/null; fi
  lock=
}
fail() {
  unlock
  code=$1
  case "$1 $2" in
    "os "*"No space left"* | "os "*"Read-only file system"* | "os "*"quota exceeded"*) code=room ;;
    "os "*"Stale file handle"* | "os "*"Input/output error"* | "os "*"Connection timed out"*) code=disk ;;
    "root "*"Stale file handle"* | "root "*"Input/output error"* | "root "*"Connection timed out"*) code=disk ;;
    "os "*"Permission denied"* | "os "*"Operation not permitted"*) code=right ;;
  esac
  printf "error %s %s\n" "$code" "$(printf "%s" "$2" | tr "\n\t" "  ")"
  exit 1
}
try() { why=$("$@" 2>&1 </dev/null) || fail os "$why"; }
renew() { if [ -n "$lock" ]; then touch -c -- "$lock" 2>/dev/null; fi; }
device() { stat -c %d -- "$(dirname -- "$1")" 2>/dev/null; }
same() { [ "$(device "$1")" = "$(device "$2")" ] || fail device "$2"; }
# NFS: if the first answer was lost, the call is repeated, and may be refused although it was done.
inode() { stat -c %d:%i -- "$1" 2>/dev/null; }
rename() {
  was=$(inode "$1")
  why=$(mv -fT -- "$1" "$2" 2>&1 </dev/null) && return 0
  if [ -z "$was" ] || [ "$(inode "$2")" != "$was" ]; then fail os "$why"; fi
}
link() {
  why=$(ln -s -T -- "$2" "$1" 2>&1 </dev/null) && return 0
  if [ ! -L "$1" ] || [ "$(readlink -- "$1")" != "$2" ]; then fail os "$why"; fi
}
# Some network file systems refuse to flush a folder: their server has to flush by itself.
flush() {
  why=$(sync -- "$1" 2>&1 </dev/null) && return 0
  case $why in *"Invalid argument"*) [ -d "$1" ] || fail os "$why" ;; *) fail os "$why" ;; esac
}
# NFS keeps a removed file, by another name, as long as a process of this machine has it open.
remove() {
  for again in yes yes no; do
    why=$(rm -rf -- "$1" 2>&1 </dev/null) && return 0
    case $why in *"not empty"* | *"resource busy"*) ;; *) fail os "$why" ;; esac
  done
  fail open "$1"
}
# A pattern that finds no names may hide an error: a mount that does not answer has none.
listed() {
  why=$(ls -f -- "$1" 2>&1 >/dev/null) && return 0
  case $why in *"Stale file handle"* | *"Input/output error"* | *"Connection timed out"*) fail os "$why" ;; esac
}
newest() {
  newest=0
  for found in "$1"/.lock.*; do
    number=${found##*.}
    case $number in "" | *[!0-9]*) continue ;; esac
    if [ "$number" -gt "$newest" ]; then newest=$number; fi
  done
}
holds() { case $(cat -- "$1" 2>/dev/null) in *"\"$2\""*) return 0 ;; esac; return 1; }

put() {
  if [ -e "$1" ] || [ -L "$1" ]; then fail exists "$1"; fi
  left=$2
  why=$( (true >"$1") 2>&1) || fail os "$why"
  while [ "$left" -gt 0 ]; do
    part=16777216
    if [ "$left" -lt "$part" ]; then part=$left; fi
    why=$(head -c "$part" 2>&1 >>"$1") || fail os "$why"
    left=$((left - part))
    renew
  done
  size=$(stat -c %s -- "$1" 2>&1) || fail os "$size"
  [ "$size" = "$2" ] || fail short "$1"
  try sync -- "$1"
}

parts() {
  left=$1
  while [ "$left" -gt 0 ]; do
    head -c 16777216
    left=$((left - 16777216))
    renew
  done
}

check() {
  size=$(stat -c %s -- "$1" 2>&1) || fail os "$size"
  [ "$size" = "$2" ] || fail digest "$1"
  sum=$(parts "$2" 2>/dev/null <"$1" | sha256sum)
  if [ "sha256:${sum%% *}" != "$3" ]; then
    why=$(cat -- "$1" 2>&1 >/dev/null) || fail os "$why"
    fail digest "$1"
  fi
}

claim() {
  mine=$1/.claim.$2
  why=$( (printf "%s\n" "$4" >"$mine") 2>&1) || fail os "$why"
  try sync -- "$mine"
  newest "$1"
  said=$(head -c 4096 -- "$1/.lock.$newest" 2>/dev/null | tr "\n\t" "  ")
  if [ "$newest" != "$3" ] && [ -n "$said" ]; then
    since=$(stat -c %Y -- "$1/.lock.$newest" 2>/dev/null) && now=$(stat -c %Y -- "$mine" 2>/dev/null) || since=
    if [ -n "$since" ]; then answer="held $newest $((now - since)) $said"; else answer=free; fi
  else
    try_lock "$1" "$2" $((newest + 1))
  fi
  rm -f -- "$mine"
  printf "%s\n" "$answer"
}

try_lock() {
  why=$(ln -T -- "$mine" "$1/.lock.$3" 2>&1)
  answer="free $why"
  holds "$1/.lock.$3" "$2" || return 0
  newest "$1"
  if [ "$newest" -gt "$3" ]; then
    rm -f -- "$1/.lock.$3"
    return 0
  fi
  lock=$1/.lock.$3
  mark=$2
  answer=claimed
  for found in "$1"/.lock.*; do
    if [ "$found" != "$lock" ]; then rm -f -- "$found"; fi
  done
}

entry() {
  stat --printf "e %f %s %Y %h %n\0" -- "$1" 2>/dev/null || return 1
  if [ -L "$1" ]; then readlink -n -- "$1"; printf "\0"; fi
}

is_read() {
  case $1 in *.json | *.jsonl | *.sig | */SHA256SUMS) return 0 ;; esac
  rest=$ends
  while [ -n "$rest" ]; do
    case $1 in *"${rest%%:*}") return 0 ;; esac
    rest=${rest#*:}
  done
  return 1
}

contents() {
  is_read "$1" || return 0
  {
    size=$(stat -L -c %s /dev/fd/3)
    if [ "$size" -le 4194304 ]; then
      printf "c %s %s\0" "$size" "$1"
      head -c "$size" <&3 || { unlock; exit 1; }  # so many were promised
    fi
  } 3<"$1"
}

digest() {
  version=${1#"$product"/versions/}
  if [ "$version" = "$1" ] || [ "${version#*/}" = "$version" ]; then return 0; fi
  case $wanted in
    *",${version%%/*},"* | *,all,*) ;;
    *) return 0 ;;
  esac
  if sum=$(sha256sum 2>/dev/null <"$1"); then printf "d %s %s\0" "${sum%% *}" "$1"; fi
  renew
}

walk() {
  listed "$1"
  for found in "$1"/* "$1"/.[!.]*; do
    if [ ! -e "$found" ] && [ ! -L "$found" ]; then continue; fi
    entry "$found" || continue
    if [ -L "$found" ]; then continue; fi
    if [ -f "$found" ]; then
      contents "$found"
      digest "$found"
    elif [ -d "$found" ]; then
      walk "$found"
    fi
  done
}

# One line a file. All names and bytes are of one list: a node that reports meanwhile must not shift those after it, nor must a file
# that cannot be opened, which has no line.
reports() {
  lines=$(paste -s -d " " -- "$@" 2>/dev/null) || return 1
  printf "n %s %s\0" "${#lines}" "$(printf "/%s" "$@")"
  printf "%s" "$lines"
  stat -L --printf "t %f %Y %n\0" -- "$@" 2>/dev/null
  return 0
}

nodes() (
  cd ./nodes 2>/dev/null || exit 0 # and not where CDPATH has another one
  set -- *.json
  reports "$@" && exit 0
  # Each by itself takes two programs a node: only where one goes even after those that can never be read are left out.
  # No name has a slash, and a list that grows by a string takes no time of its own.
  kept=
  for found in "$@"; do
    if [ -f "$found" ] && [ -r "$found" ]; then kept=$kept/$found; fi
  done
  set -f
  IFS=/
  # shellcheck disable=SC2086 # it is to be split
  set -- ${kept#/}
  unset IFS
  [ "$#" = 0 ] || reports "$@" || for found in "$@"; do reports "$found"; done
)

written() {
  at=$1
  while [ ! -d "$at" ]; do at=$(dirname -- "$at"); done
  if [ ! -w "$at" ] || [ ! -x "$at" ]; then printf "w %s\0" "$at"; fi
}

look() {
  product=$1
  wanted=$2
  shared=${3#:}
  ends=${4#:}
  printf "r %s\0" "$(pwd -P)"
  listed .
  for found in * .[!.]*; do
    if [ ! -e "$found" ] && [ ! -L "$found" ]; then continue; fi
    entry "$found"
    if [ -d "$found/versions" ]; then printf "i %s\0" "$found"; fi
  done
  if [ ! -L "$product" ]; then walk "$product"; fi
  if [ -n "$shared" ] && [ ! -L "$shared" ]; then walk "$shared"; fi
  nodes
  for found in "$product/incoming" "$product/versions" "$product" ${shared:+"$shared"}; do written "$found"; done
  printf "z\0"
}

IFS= read -r root || exit 1
cd -- "$root" 2>/dev/null || fail root "$(stat -- "$root/." 2>&1 >/dev/null)"
printf "done\n"
while IFS=$tab read -r word a b c d; do
  case $word in
    folder) try mkdir -p -- "$a" ;;
    put) put "$a" "$b" ;;
    check) check "$a" "$b" "$c" ;;
    sync) flush "$a" ;;
    move)
      if [ -e "$b" ] || [ -L "$b" ]; then fail exists "$b"; fi
      same "$a" "$b"
      rename "$a" "$b"
      ;;
    replace)
      same "$a" "$b"
      rename "$a" "$b"
      ;;
    link) link "$a" "$b" ;;
    remove) remove "$a" ;;
    held)
      listed "$a"
      newest "$a"
      holds "$a/.lock.$newest" "$b" || fail lost "$a"
      renew
      ;;
    release) unlock ;;
    claim) claim "$a" "$b" "$c" "$d" ;;
    look) look "$a" "$b" "$c" "$d" ;;
    end) printf "done\n" ;;
    *) fail os "$word is no operation" ;;
  esac
done
unlock
