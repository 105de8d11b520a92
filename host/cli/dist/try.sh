#!/usr/bin/env bash
# Tries what is in target/dist as its users would: in an empty folder, in a fresh Debian, and as an
# image. Each way begins with nothing, and ends with an election. Needs root.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../../.."

dist=$(realpath "${CARGO_TARGET_DIR:-target}")/dist
readonly dist tools=$PWD/.tools
native=$(uname -m)
[[ $EUID -eq 0 ]] || { echo 'dist: root is needed to make a fresh system: sudo just dist' >&2; exit 1; }
scratch=$(mktemp -d)
clean() {
  local proc
  for proc in "$scratch"/{empty,debian}/proc; do
    if mountpoint --quiet "$proc"; then umount "$proc"; fi
  done
  rm -rf "$scratch"
}
trap clean EXIT

# within SECONDS NAME COMMAND…: says how long it took.
within() {
  local limit=$1 name=$2 begin=${EPOCHREALTIME/./} took
  shift 2
  "$@" >"$scratch/out" 2>&1 || { echo "dist: $name failed:" >&2; cat "$scratch/out" >&2; exit 1; }
  took=$(((${EPOCHREALTIME/./} - begin) / 1000))
  printf 'dist: %s: %d.%03d s\n' "$name" $((took / 1000)) $((took % 1000))
  ((took <= limit * 1000)) || { echo "dist: that is more than $limit s" >&2; exit 1; }
}

# holds TEXT: the last command printed it.
holds() { grep -q -- "$1" "$scratch/out" || { echo "dist: no \"$1\" in:" >&2; cat "$scratch/out" >&2; exit 1; }; }

# --- The static program, where there is nothing but the program and /proc ---------

copied() {
  mkdir -p "$scratch/empty/proc"
  mount -t proc proc "$scratch/empty/proc"
  cp "$dist/incumbent-$native" "$scratch/empty/incumbent"
  chroot "$scratch/empty" /incumbent run my-service --once --store sqlite:/elections --events /events \
    -- /incumbent version
}
if [[ -e $dist/incumbent-$native ]]; then
  size=$(stat --format %s "$dist/incumbent-$native")
  ((size <= 25000000)) || { echo "dist: incumbent-$native has $size bytes: at most 25 MB are promised" >&2; exit 1; }
  within 2 'a copied program, from nothing to an election' copied
  holds "with the elector's machine code inside"
  grep -q '"event":"elected"' "$scratch/empty/events"
fi

# The other processor's, by emulation: its program cannot start others, such as a guard.
emulated() {
  local events=$scratch/$1.events pid end=$((SECONDS + 50))
  "qemu-$1-static" "$2" campaign my-service --store "sqlite:$scratch/$1" -o json >"$events" &
  pid=$!
  until grep -q '"event":"elected"' "$events"; do
    kill -0 "$pid" && ((SECONDS < end)) || return 1
    sleep 0.1
  done
  kill "$pid"
  wait "$pid"
}
for program in "$dist"/incumbent-{x86_64,aarch64}; do
  arch=${program##*-}
  [[ -e $program && $arch != "$native" ]] || continue
  within 60 "the program for $arch says what it is" "qemu-$arch-static" "$program" version
  holds "with the elector's machine code inside"
  within 60 "the program for $arch leads, emulated" emulated "$arch" "$program"
done

# --- The Debian package, in a fresh Debian ------------------------------------------

debian=$scratch/debian
fresh_debian() {
  [[ -e $tools/debian/root.tar ]] || { echo 'dist: .tools/debian/root.tar is not here: sudo ./setup.sh dist' >&2; exit 1; }
  mkdir "$debian"
  tar --extract --file "$tools/debian/root.tar" --directory "$debian"
  mount -t proc proc "$debian/proc"
}
# What is there, but for what a start of the system empties, and the memory of dpkg.
inventory() {
  (cd "$debian" && find . -path ./proc -prune -o -path ./run -prune -o -path ./var/lib/dpkg -prune -o -path ./var/log -prune \
    -o -path ./var/cache -prune -o -print | grep -v -e '^./etc/.*-$' | sort)
  sort "$debian"/etc/{passwd,group,shadow,gshadow}
}
in_debian() { chroot "$debian" env -i PATH=/usr/sbin:/usr/bin:/sbin:/bin HOME=/root "$@"; }
package=$(printf '%s\n' "$dist"/incumbent_*_"$(dpkg --print-architecture)".deb)
lintian --fail-on error --suppress-tags-from-file host/cli/dist/lintian.txt "$dist"/*.deb
fresh_debian
inventory >"$scratch/before"

# An older one, to be upgraded.
dpkg-deb --raw-extract "$package" "$scratch/older"
sed -i 's/^Version: .*/Version: 0.0.1-1/' "$scratch/older/DEBIAN/control"
dpkg-deb --build "$scratch/older" "$debian/older.deb" >/dev/null
cp "$package" "$debian/package.deb"

installed() {
  in_debian dpkg --install /older.deb
  in_debian runuser -u incumbent -- incumbent run my-service --once --store sqlite:/tmp/elections -- incumbent version
}
within 20 'an installed package, from nothing to an election' installed
within 20 'it is upgraded' in_debian dpkg --install /package.deb
in_debian dpkg --status incumbent >"$scratch/out"
holds "^Version: $(dpkg-deb --field "$package" Version)"
in_debian test -e /usr/share/man/man1/incumbent-run.1.gz
in_debian test -e /lib/systemd/system/incumbent@.service
within 20 'it is removed' in_debian dpkg --remove incumbent
within 20 'it is purged' in_debian dpkg --purge incumbent
rm -r "$debian"/{older,package}.deb "$debian"/tmp/*
inventory >"$scratch/after"
diff "$scratch/before" "$scratch/after" || { echo 'dist: the package leaves something behind' >&2; exit 1; }
echo 'dist: nothing of it is left'

# --- The image -------------------------------------------------------------------------

host/cli/dist/try-image.sh "$dist/incumbent-image.tar" "$tools/debian/root.tar" "$scratch"
echo "dist: all of it works"
