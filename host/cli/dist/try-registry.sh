#!/usr/bin/env bash
# Pushes the component and its WIT to a registry on this machine by wkg, and fetches them:
# `just artifact` (`./setup.sh artifact` brings the tools).
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../../.."

wkg=$PWD/.tools/wkg/bin/wkg
command -v docker-registry >/dev/null && [[ -x $wkg ]] || { echo 'the tools are not here: ./setup.sh artifact' >&2; exit 1; }
scratch=$(mktemp -d)
registry=
clean() { [[ ! $registry ]] || { kill "$registry"; wait "$registry" || true; }; rm -rf "$scratch"; }
trap clean EXIT

version=$(cargo pkgid --package incumbent-component)
version=${version##*[@#]}
port=$(python3 -c 'import socket; s = socket.socket(); s.bind(("127.0.0.1", 0)); print(s.getsockname()[1])')
cat >"$scratch/config.yml" <<END
version: 0.1
log: {level: error, accesslog: {disabled: true}}
storage: {filesystem: {rootdirectory: $scratch/registry}}
http: {addr: "127.0.0.1:$port"}
END
docker-registry serve "$scratch/config.yml" >"$scratch/log" 2>&1 &
registry=$!
until (: <"/dev/tcp/127.0.0.1/$port") 2>/dev/null; do
  kill -0 "$registry" || { cat "$scratch/log" >&2; exit 1; }
  sleep 0.1
done

# The package's own README and lock are not part of it.
mkdir "$scratch/wit"
cp wit/*.wit "$scratch/wit"
(cd "$scratch" && "$wkg" build --wit-dir wit --output incumbent-wit.wasm >/dev/null)
cp host/component/incumbent.wasm "$scratch/incumbent-elector.wasm"
for name in incumbent-elector incumbent-wit; do
  reference=127.0.0.1:$port/$name:$version
  "$wkg" oci push --insecure "127.0.0.1:$port" "$reference" "$scratch/$name.wasm" >/dev/null
  "$wkg" oci pull --insecure "127.0.0.1:$port" --output "$scratch/fetched.wasm" "$reference" >/dev/null
  cmp "$scratch/$name.wasm" "$scratch/fetched.wasm"
  echo "$name:$version was pushed and fetched, byte for byte"
done
