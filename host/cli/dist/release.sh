#!/usr/bin/env bash
# Makes a release of what is committed: `just release VERSION`. It sets the versions, dates the
# changelog's section, runs all gates, commits, and says what to publish in which order. It
# publishes nothing itself.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../../.."

refuse() { printf 'release: %s\n' "$*" >&2; exit 2; }

[[ $# -eq 1 && $1 =~ ^(0|[1-9][0-9]*)\.(0|[1-9][0-9]*)\.(0|[1-9][0-9]*)$ ]] \
  || refuse "\"${1-}\" is no version: just release 1.2.3"
readonly version=$1
[[ ! $(git status --porcelain) ]] || refuse 'there are changes that are not committed: commit them, or put them away'
[[ ! $(git tag --list "v$version") ]] || refuse "v$version is there already: choose the next version"
present=$(cargo pkgid --package incumbent-cli)
present=${present##*[@#]}
last=$(git tag --list 'v*' --sort=-version:refname | head -n 1)
[[ $(printf '%s\n' "${last#v}" "$version" | sort --version-sort | tail -n 1) == "$version" ]] \
  || refuse "$version is older than $last: choose a later version"
grep -qx "## $version, unreleased" CHANGELOG.md || grep -qx '## Unreleased' CHANGELOG.md \
  || refuse 'CHANGELOG.md has no section "## Unreleased": say there what is new'

# From here on a failure leaves the tree as it was.
undo() { git restore --staged --worktree .; printf 'release: nothing was released, and the tree is as it was\n' >&2; }
trap undo ERR
trap 'undo; exit 130' INT TERM

sed -i -E "s/^## (Unreleased|$version, unreleased)\$/## $version, $(date --utc +%F)/" CHANGELOG.md
# The workspace's version, and the versions by which its crates ask for each other.
sed -i -E "s/^version = \"$present\"\$/version = \"$version\"/; s/(path = \"[^\"]*\", version = )\"$present\"/\1\"$version\"/" Cargo.toml
cargo update --quiet --workspace
cargo update --quiet --workspace --manifest-path host/cli/dist/machine-code/Cargo.toml
just component --keep
git add --all
git commit --quiet --message "release: $version"
trap 'git reset --quiet --soft HEAD^; undo' ERR
trap 'git reset --quiet --soft HEAD^; undo; exit 130' INT TERM

.ci/run
just package
just dist
just released

git tag --annotate --message "Incumbent $version" "v$version"
cat <<END

$version is committed and tagged, and every gate has passed. Publish, in this order:

  git push --follow-tags
  cargo publish --package incumbent-guest --package incumbent-component --package incumbent \\
    --package incumbent-conformance --package incumbent-plugin --package incumbent-cli
  every file of target/dist, SHA256SUMS among them, as the release's files
  skopeo copy --all oci-archive:target/dist/incumbent-image.tar docker://REGISTRY/incumbent:$version
  wkg oci push REGISTRY/incumbent-elector:$version target/dist/incumbent.wasm

Nothing can be taken back from a registry: if one of these fails, repair it, and go on from there.
END
