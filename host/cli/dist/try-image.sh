#!/usr/bin/env bash
# Tries the image, and an image that is built on it: try-image.sh IMAGE.tar DEBIAN.tar SCRATCH. As the
# first process of a container, the program reaps, has a guard that works, and gets signals.
set -euo pipefail

readonly archive=$1 debian=$2 scratch=$3
fail() { printf 'dist: image: %s\n' "$*" >&2; exit 1; }
# Storage of its own, so that nothing of the user's is touched. The limits of this process may be
# below those that a container would get.
run=(--runtime runc --network none --ulimit nofile=1024:1024 --ulimit nproc=1000:1000)
podman=(podman --root "$scratch/storage" --runroot "$scratch/run" --storage-driver vfs --cgroup-manager cgroupfs)
clean() { "${podman[@]}" rm --force --all >/dev/null 2>&1 || true; }
trap clean EXIT
# until WHAT COMMAND…: as soon as the command succeeds; not later than after 20 s.
await() {
  local what=$1 end=$((SECONDS + 20))
  shift
  until "$@" >/dev/null 2>&1; do
    ((SECONDS < end)) || { "${podman[@]}" logs worker >&2 || true; fail "$what did not happen within 20 s"; }
    sleep 0.1
  done
}

begin=${EPOCHREALTIME/./}
image=$("${podman[@]}" load --quiet --input "$archive")
image=${image##*: }
"${podman[@]}" run --rm "${run[@]}" --tmpfs /data:mode=1777 "$image" \
  run my-service --once --store sqlite:/data/elections -- /incumbent version >"$scratch/out" 2>&1 \
  || { cat "$scratch/out" >&2; fail 'it held no election'; }
grep -q "with the elector's machine code inside" "$scratch/out" || fail 'it says no version'
took=$(((${EPOCHREALTIME/./} - begin) / 1000))
printf 'dist: an image, from nothing to an election: %d.%03d s\n' $((took / 1000)) $((took % 1000))
((took <= 20000)) || fail 'that is more than 20 s'

# A work image, as OPERATING.md builds one.
"${podman[@]}" import --quiet "$debian" localhost/debian >/dev/null
printf 'FROM localhost/debian\nCOPY --from=%s /incumbent /usr/bin/incumbent\nENTRYPOINT ["incumbent", "run", "my-service", "--"]\n' \
  "$image" >"$scratch/Containerfile"
"${podman[@]}" build --quiet --runtime runc --ulimit nofile=1024:1024 --ulimit nproc=1000:1000 \
  --file "$scratch/Containerfile" --tag localhost/worker "$scratch" >/dev/null
# The work leaves children behind that end, and goes on.
"${podman[@]}" run --detach --name worker "${run[@]}" --env INCUMBENT_STORE=sqlite:/tmp/elections --env INCUMBENT_TTL=3s \
  localhost/worker bash -c 'for n in 1 2 3; do (setsid sleep 0.1 &); done; exec sleep 1000' >/dev/null
inside() { "${podman[@]}" exec worker "$@"; }
works() { inside bash -c 'for p in /proc/[0-9]*; do [[ $(tr "\0" " " <$p/cmdline) == "sleep 1000 " ]] && exit; done; exit 1'; }
zombies() { inside bash -c 'grep -h "^State:" /proc/[0-9]*/status' | grep -c Z; }
rests() { ! works; }
clear_of_zombies() { [[ $(zombies) == 0 ]]; }
await 'work' works
await 'the end of all zombies' clear_of_zombies

first=$("${podman[@]}" inspect --format '{{.State.Pid}}' worker)
kill -STOP "$first"
await 'the end of the work, while the first process stands still,' rests
kill -CONT "$first"
await 'work in a new term' works

begin=$SECONDS
"${podman[@]}" stop --time 15 worker >/dev/null
((SECONDS - begin < 10)) || fail 'SIGTERM did not end it'
status=$("${podman[@]}" inspect --format '{{.State.ExitCode}}' worker)
[[ $status == 0 ]] || fail "after SIGTERM its status was $status"
echo 'dist: as the first process of a container it reaps, its guard works, and signals arrive'
