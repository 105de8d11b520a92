# The program, the tests and the tools of Incumbent: `./setup.sh` brings what they need.

set positional-arguments

# Where rustup puts cargo, for shells that were opened before it came, and `./setup.sh` Node.js and
# cargo-nextest. Debian has nft in /usr/sbin, which a user's PATH may lack.
export PATH := justfile_directory() / ".tools/node/bin:" + justfile_directory() / ".tools/nextest:" + env("HOME") / ".cargo/bin:" + env("PATH") + ":/usr/sbin:/sbin"

[private]
default:
    @just --list --unsorted

# Run the program, built where needed, on the local store: `just run campaign my-service`
[no-exit-message]
run *ARGS: (program "incumbent-cli")
    @export INCUMBENT_STORE="${INCUMBENT_STORE:-local}"; exec "${CARGO_TARGET_DIR:-target}/debug/incumbent" "$@"

# Build a package with its program, and say how far it is: the first time takes minutes.
[private]
program PACKAGE:
    #!/usr/bin/env bash
    set -euo pipefail
    selection=(--package "$1" --package workspace-hack)
    build=(cargo build "${selection[@]}")
    if [ -x "${CARGO_TARGET_DIR:-target}/debug/${1%-cli}" ]; then exec "${build[@]}" --quiet; fi
    echo "Building Incumbent. The first time that takes some minutes: wasmtime, which runs the election, is a compiler." >&2
    if [ ! -t 2 ]; then exec "${build[@]}" --quiet; fi
    all=$(cargo tree "${selection[@]}" --edges normal,build --prefix none | sed 's/ (\*)$//' | sort -u | wc -l)
    "${build[@]}" --color never 2>&1 | awk -v all="$all" '
        $1 == "Compiling" { printf "\r  %d of about %d crates", ++built, all; fflush(); next }
        $1 == "Downloading" || $1 == "Downloaded" || $1 == "Finished" || $1 == "Blocking" { next }
        { print }
        END { printf "\r%40s\r", "" }' >&2

# Tests keep their temporary files in memory where that has room, and runs programs: a disk that is busy
# holds up each store that syncs, for seconds.
temporary := `f=/dev/shm; if [ -w $f ] && [ "$(df -Pk $f | awk 'END { print $4 }')" -gt 4000000 ] && [ "$(awk '/^MemAvailable/ { print $2 }' /proc/meminfo)" -gt 4000000 ] && ! mount | grep " on $f " | grep -q noexec; then echo $f; else echo "${TMPDIR:-/tmp}"; fi`

[private]
nextest:
    @cargo nextest --version >/dev/null 2>&1 || { echo 'cargo-nextest, which runs the tests, is not here: ./setup.sh' >&2; exit 1; }

# Run the tests, on both etcd versions, or those named: `just test --test library`, `just test NAME`
test *ARGS: nextest
    #!/usr/bin/env bash
    set -euo pipefail
    export TMPDIR={{ quote(temporary) }}
    (($# == 0)) || exec cargo nextest run --workspace --all-features "$@"
    cargo nextest run --workspace --all-features --no-run
    # Gigabytes of new programs go to the disk first, for the same reason.
    sync
    # The examples in documentation meanwhile: most of the others wait.
    documentation=$(mktemp) failed=0
    trap 'rm -f "$documentation"' EXIT
    # Ctrl-C ends it as well.
    (trap - INT; exec nice cargo test --workspace --all-features --doc >"$documentation" 2>&1) &
    cargo nextest run --workspace --all-features || failed=$?
    if wait $!; then grep '^test result: ok. [1-9]' "$documentation"; else failed=1; cat "$documentation"; fi
    exit "$failed"

# Run the long forms of tests, which `just test` leaves out: minutes of soaks, larger models, more seeds
test-all *ARGS: nextest
    TMPDIR={{ quote(temporary) }} cargo nextest run --workspace --all-features --run-ignored only -E 'test(/(^|::)long::/)' "$@"

# After a change in the guest: `just quick`. After one in a store: `just quick etcd` (`postgres`, `sqlite`, `memory`)
quick STORE="": nextest
    #!/usr/bin/env bash
    set -euo pipefail
    export TMPDIR={{ quote(temporary) }}
    case $1 in
    '') exec cargo nextest run --package incumbent-simulation --package incumbent-tests \
        --test transcripts --test limits --test scenarios --test properties ;;
    etcd) suite='binary(etcd_store) | binary(fidelity)' ;;
    postgres | sqlite) suite="binary(${1}_store)" ;;
    memory) suite='binary(fidelity)' ;;
    *) echo "there is \`just quick\`, and \`just quick\` with etcd, postgres, sqlite or memory; not $1" >&2; exit 2 ;;
    esac
    exec cargo nextest run --workspace --all-features --lib --test "*_store" --test conformance --test fidelity \
        -E "$suite | package(incumbent) & test(/^store::$1::/) | binary(conformance) & test(/$1/)"

# Simulate elections under faults: `just sim --seeds 1000000`, `just sim --seed 7 --record DIR`, `just sim --elections 10000 --seconds 60`
[no-exit-message]
sim *ARGS:
    @cargo run --quiet --package incumbent-simulation {{ if ARGS =~ "--component|--record" { "--features component" } else { "" } }} --bin sim -- "$@"

# Hosts, etcd and the network under faults: `just soak --minutes 10 --etcd 3.4`, `--false-alarms`
[no-exit-message]
soak *ARGS:
    @cargo build --quiet --workspace --all-features --bins
    @exec "${CARGO_TARGET_DIR:-target}/debug/soak" "$@"

# Judge the logs of a soak again: `just terms DIR`
[no-exit-message]
terms DIR: (soak "--judge" DIR)

# Check format, lints, licences and what must not be depended on, as CI does
lint:
    cargo fmt --all --check
    cargo clippy --workspace --all-targets --all-features -- -D warnings
    @if command -v cargo-deny >/dev/null; then cargo deny check bans licenses sources; else echo 'cargo-deny is not here, and was not run (cargo install --locked cargo-deny)'; fi

# Ask RustSec, by network, what is known against the dependencies
advisories:
    cargo deny check advisories

# Build the documentation, into target/doc
doc *ARGS:
    RUSTDOCFLAGS=-Dwarnings cargo doc --workspace --all-features --no-deps "$@"

# Compare what is public in the libraries with tests/public-api, or `--keep` it there
api *KEEP:
    #!/usr/bin/env bash
    set -euo pipefail
    target=$(realpath "${CARGO_TARGET_DIR:-target}")
    # The form of rustdoc's JSON is that of one compiler.
    if [ "$(rustc --version)" != "$(cat host/component/incumbent.wasm.rustc)" ]; then
        echo "not compared: tests/public-api was made by $(cat host/component/incumbent.wasm.rustc), and this is $(rustc --version)"
        exit 0
    fi
    RUSTDOC=$PWD/tests/public-api/rustdoc.sh RUSTDOCFLAGS='-Zunstable-options --output-format json -Awarnings' \
        cargo doc --quiet --workspace --all-features --no-deps
    # The tests' selection: with another one, cargo would build all dependencies anew.
    cargo test --quiet --workspace --all-features --no-run
    exec "$target/debug/public_api" "$target/doc" "$@"

# Measure what is promised, and print the ratios: all of it, or `just bench killed 50`
bench NAME="*" *ROUNDS:
    cargo bench --package incumbent-cli --package incumbent-tests --all-features --bench "$1" -- {{ ROUNDS }}

# Change the elector, or files of it, in all small ways: what does no quick test notice?
mutants *FILES:
    #!/usr/bin/env bash
    set -euo pipefail
    # Each file is a shard. One that was stopped goes on where it was, for `--iterate` leaves
    # out what was caught (and does so before `--shard` counts). Without target/mutants it
    # starts over.
    command -v cargo-mutants >/dev/null || { echo 'no cargo-mutants: cargo install --locked cargo-mutants'; exit 1; }
    out=${CARGO_TARGET_DIR:-$PWD/target}/mutants
    export CARGO_TARGET_DIR=$out/build
    # The same cases for each mutant, and no time spent on making a failure small.
    export PROPTEST_CASES=300 PROPTEST_RNG_SEED=1 PROPTEST_MAX_SHRINK_ITERS=0
    export PROPTEST_DISABLE_FAILURE_PERSISTENCE=1
    # For mutants that gather things without end.
    ulimit -v 8000000
    (($#)) || mapfile -t all < <(cargo mutants --list | cut -d: -f1 | uniq)
    for file in "${@:-${all[@]}}"; do
        shard=$out/${file//\//.}
        mkdir -p "$shard"
        # What the quickest tests have not caught, the others may.
        for test in transcripts limits properties; do
            code=0
            nice cargo mutants --iterate --file "$file" --output "$shard" \
                --cargo-arg="--test=$test" || code=$?
            # 2 and 3: some were not caught, or not in time.
            case $code in 0 | 2 | 3) ;; *) exit "$code" ;; esac
        done
    done
    # Lines move: a survivor is known by what was done in which function.
    new=$(cat "$out"/*/mutants.out/missed.txt | sed -E 's/:[0-9]+:[0-9]+: /: /' | sort -u |
        grep -vxFf <(grep -o '`guest/src/[^`]*`' tests/mutants.md | tr -d '`') || true)
    if [ -n "$new" ]; then
        echo "Neither caught nor in tests/mutants.md:"
        echo "$new"
        exit 1
    fi

# Look for bytes that break a property (src/properties of tests and tests/simulation), with cargo-fuzz
fuzz TARGET SECONDS="60":
    #!/usr/bin/env bash
    set -euo pipefail
    cargo +nightly fuzz --version >/dev/null 2>&1 || {
        echo 'fuzzing needs nightly Rust and cargo-fuzz: rustup toolchain install nightly, and cargo install --locked cargo-fuzz' >&2
        exit 1
    }
    features=()
    case $1 in
    command_line)
        cargo build --quiet --package incumbent-cli
        export INCUMBENT_PROGRAM=$(realpath "${CARGO_TARGET_DIR:-target}")/debug/incumbent ;;
    component | steps | store_answers)
        just component
        export INCUMBENT_COMPONENT=$(realpath "${CARGO_TARGET_DIR:-target}")/incumbent.wasm
        features=(--features host) ;;
    esac
    # All of it is safe Rust: coverage is enough.
    cargo +nightly fuzz run --fuzz-dir tests/fuzz --sanitizer none "${features[@]}" "$1" -- -max_len=4000 -max_total_time="$2"

# Leave the component as target/incumbent.wasm, with its hash; `--keep` a new one in host/component, or `--check` the one there
component *FLAG:
    #!/usr/bin/env bash
    set -euo pipefail
    kept=host/component/incumbent.wasm
    # The component of the checkout $1, into the target directory $2.
    build() {
        mkdir -p "$2"
        cargo run --quiet --manifest-path "$1/Cargo.toml" --target-dir "$2" \
            --package incumbent-component "${@:3}" >"$2/incumbent.wasm.$$"
        # A process that loads it meanwhile has the one or the other.
        mv "$2/incumbent.wasm.$$" "$2/incumbent.wasm"
    }
    target=${CARGO_TARGET_DIR:-$PWD/target}
    case ${1:-} in
    '') build "$PWD" "$target" ;;
    --keep)
        build "$PWD" "$target" --features from-source
        cp "$target/incumbent.wasm" "$kept"
        cargo run --quiet --package incumbent-component --features from-source -- --source >"$kept.source"
        rustc --version >"$kept.rustc" ;;
    --check)
        # From a checkout, with a target directory and a cargo home elsewhere. Only the same compiler
        # makes the same bytes.
        if [ "$(rustc --version)" != "$(cat "$kept.rustc")" ]; then
            echo "$kept was made by $(cat "$kept.rustc"), and cannot be compared with what $(rustc --version) makes"
            exit 0
        fi
        elsewhere=$(mktemp -d)
        trap 'rm -rf "$elsewhere"' EXIT
        mkdir "$elsewhere/checkout" "$elsewhere/cargo"
        git ls-files -z --cached --others --exclude-standard |
            tar --create --null --files-from - | tar --extract --directory "$elsewhere/checkout"
        ln -s "${CARGO_HOME:-$HOME/.cargo}"/* "$elsewhere/cargo"
        (export CARGO_HOME=$elsewhere/cargo && build "$elsewhere/checkout" "$elsewhere/target" --features from-source)
        cmp "$elsewhere/target/incumbent.wasm" "$kept" ||
            { echo "$kept is not what the sources make: just component --keep" >&2; exit 1; }
        echo "$kept is what the sources make"
        exit 0 ;;
    *) echo "there is --keep and --check, and no $1" >&2; exit 2 ;;
    esac
    (cd "$target" && sha256sum incumbent.wasm >incumbent.wasm.sha256)
    echo "target/incumbent.wasm: $(wc -c <"$target/incumbent.wasm") bytes, sha256 $(cut -c 1-64 "$target/incumbent.wasm.sha256")"

# Pack the crates for the registry, into target/package, and build and test them from there alone
package:
    #!/usr/bin/env bash
    set -euo pipefail
    crates=(incumbent-guest incumbent-component incumbent incumbent-conformance incumbent-plugin incumbent-cli)
    target=$(realpath "${CARGO_TARGET_DIR:-target}")
    rm -rf "$target/package"
    cargo package --quiet --locked --no-verify "${crates[@]/#/--package=}"
    elsewhere=$(mktemp -d)
    trap 'rm -rf "$elsewhere"' EXIT
    # As long as the registry does not have these versions, they find each other by a workspace.
    {
        echo '[workspace]'
        echo 'resolver = "3"'
        echo 'members = ["*-*.*.*"]'
        echo '[patch.crates-io]'
    } >"$elsewhere/Cargo.toml"
    for crate in "${crates[@]}"; do
        tar --extract --file "$target"/package/"$crate"-[0-9]*.crate --directory "$elsewhere"
        echo "$crate = { path = \"$(cd "$elsewhere" && echo "$crate"-[0-9]*)\" }" >>"$elsewhere/Cargo.toml"
    done
    cp Cargo.lock "$elsewhere"
    cd "$elsewhere"
    export CARGO_TARGET_DIR=$target/packaged
    rm -rf "$CARGO_TARGET_DIR/component"
    cargo build --quiet --workspace
    [ ! -e "$CARGO_TARGET_DIR/component" ] || { echo 'the component was built, though its crate has it' >&2; exit 1; }
    # With `from-source` too.
    cargo test --quiet --workspace --all-features --doc --no-fail-fast

# Make the job in JavaScript a component, target/job.wasm (`./setup.sh job` brings what it needs)
job:
    #!/usr/bin/env bash
    set -euo pipefail
    { [ -d examples/job/node_modules ] && command -v npm; } >/dev/null || { echo 'Node.js, or examples/job/node_modules, is not there: ./setup.sh job' >&2; exit 1; }
    mkdir -p "${CARGO_TARGET_DIR:-target}"
    wasm=$(realpath "${CARGO_TARGET_DIR:-target}")/job.wasm
    npm run --prefix examples/job --silent build -- --output "$wasm" >/dev/null
    echo "target/job.wasm: $(wc -c <"$wasm") bytes"

# Test the host in Node.js, on both etcd versions (`./setup.sh node` brings what it needs)
node *FILES: component
    #!/usr/bin/env bash
    set -euo pipefail
    export INCUMBENT_COMPONENT=$(realpath "${CARGO_TARGET_DIR:-target}")/incumbent.wasm
    cd examples/node
    { [ -d node_modules ] && command -v npm; } >/dev/null || { echo 'Node.js, or examples/node/node_modules, is not there: ./setup.sh node' >&2; exit 1; }
    npm run --silent build
    (($#)) || set -- test/*.test.mjs
    node --test --test-timeout 600000 "$@"

# Test the host in Python, on both etcd versions (`./setup.sh python` brings what it needs)
python *ARGS: component
    #!/usr/bin/env bash
    set -euo pipefail
    export INCUMBENT_COMPONENT=$(realpath "${CARGO_TARGET_DIR:-target}")/incumbent.wasm
    cd examples/python
    [ -x .venv/bin/pytest ] || { echo 'examples/python/.venv is not there: ./setup.sh python' >&2; exit 1; }
    .venv/bin/mypy
    .venv/bin/pytest "$@"

# Check the manifests of examples/kubernetes, and run their commands (`./setup.sh kubernetes` brings what it needs)
kubernetes:
    #!/usr/bin/env bash
    set -euo pipefail
    python=.tools/kubernetes/bin/python
    [ -x "$python" ] || { echo '.tools/kubernetes is not there: ./setup.sh kubernetes' >&2; exit 1; }
    program=${CARGO_TARGET_DIR:-target}/debug/incumbent
    [ -x "$program" ] || just program incumbent-cli
    "$python" tests/kubernetes/check.py "$program"

# Prove the laws, for any number of candidates and requests (`./setup.sh proof` brings what it needs): `just proof --breaks`
proof *ARGS:
    #!/usr/bin/env bash
    set -euo pipefail
    python=.tools/proof/bin/python
    [ -x "$python" ] || { echo '.tools/proof is not there: ./setup.sh proof' >&2; exit 1; }
    exec "$python" tests/proof/prove.py "$@"

# Hold recordings to the model that is proved: those of `incumbent run --record` or of a soak, or else the transcripts
judge *PATHS:
    #!/usr/bin/env bash
    set -euo pipefail
    if (($#)); then exec python3 tests/proof/judge.py "$@"; fi
    python3 tests/proof/judge.py tests/transcripts/steps tests/transcripts/recorded
    exec python3 tests/proof/test_judge.py

# See an election happen: three candidates to kill, pause and stop, or `just demo --script`
[no-exit-message]
demo *ARGS: (program "incumbent-demo")
    @exec "${CARGO_TARGET_DIR:-target}/debug/incumbent-demo" "$@"

# Run a throw-away etcd on 127.0.0.1:2379 until Ctrl-C
etcd VERSION="3.5":
    #!/usr/bin/env bash
    set -euo pipefail
    named=INCUMBENT_ETCD_${1/./_}
    data=$(mktemp -d)
    trap 'kill "$etcd" 2>/dev/null || true; wait "$etcd" 2>/dev/null || true; rm -rf "$data"' EXIT
    trap 'exit 0' INT TERM HUP
    echo "etcd $1 on 127.0.0.1:2379, until Ctrl-C"
    "${!named:-.tools/etcd-$1}/etcd" --data-dir "$data" --log-level error \
        --listen-client-urls http://127.0.0.1:2379 --advertise-client-urls http://127.0.0.1:2379 \
        --listen-peer-urls http://127.0.0.1:0 &
    etcd=$!
    wait "$etcd"

# Run a throw-away etcd of 3 or 5 members on 127.0.0.1 until Ctrl-C
cluster MEMBERS="3" VERSION="3.5":
    #!/usr/bin/env bash
    set -euo pipefail
    case $1 in 3 | 5) ;; *) echo "a cluster has 3 or 5 members, not $1: just cluster 3" >&2; exit 2 ;; esac
    named=INCUMBENT_ETCD_${2/./_}
    etcd=${!named:-.tools/etcd-$2}/etcd
    data=$(mktemp -d)
    members=()
    finish() {
        trap '' INT TERM HUP
        # Those that were stopped have to go on to end.
        kill "${members[@]}" 2>/dev/null || true
        kill -CONT "${members[@]}" 2>/dev/null || true
        wait "${members[@]}" 2>/dev/null || true
        rm -rf "$data"
    }
    trap finish EXIT
    trap 'exit 0' INT TERM HUP
    all='' store=''
    for ((n = 0; n < $1; n++)); do
        all+=${all:+,}member-$n=http://127.0.0.1:$((2380 + 10 * n))
        store+=${store:+,}127.0.0.1:$((2379 + 10 * n))
    done
    for ((n = 0; n < $1; n++)); do
        client=http://127.0.0.1:$((2379 + 10 * n)) peer=http://127.0.0.1:$((2380 + 10 * n))
        # A process group of its own: Ctrl-C ends all of them by `finish`, in order.
        setsid "$etcd" --name "member-$n" --data-dir "$data/$n" --log-level error --logger zap \
            --listen-client-urls "$client" --advertise-client-urls "$client" \
            --listen-peer-urls "$peer" --initial-advertise-peer-urls "$peer" \
            --initial-cluster "$all" >"$data/$n.log" 2>&1 &
        members+=($!)
    done
    for ((n = 0; n < $1; n++)); do
        until (: <"/dev/tcp/127.0.0.1/$((2379 + 10 * n))") 2>/dev/null; do
            kill -0 "${members[n]}" 2>/dev/null || { cat "$data/$n.log"; exit 1; }
            sleep 0.1
        done
        echo "member $n is process ${members[n]}: kill -9, kill -STOP or kill -CONT it"
    done
    echo "etcd $2 of $1 members, until Ctrl-C: --store etcd://$store"
    wait "${members[@]}"

# Make what people install, into target/dist, and try it: `just dist`, or `just dist x86_64` (`./setup.sh dist` brings the tools)
[no-exit-message]
dist *ARCHITECTURES:
    @host/cli/dist/make.sh "$@"
    @host/cli/dist/try.sh

# Push the component and its WIT to a registry on this machine, and fetch them (`./setup.sh artifact` brings the tools)
artifact:
    @host/cli/dist/try-registry.sh

# Make a release of what is committed, and say what to publish: `just release 0.2.0`
[no-exit-message]
release VERSION:
    @host/cli/dist/release.sh "$1"

# Have the program of the last release, built from its commit, in one election with this one
released:
    #!/usr/bin/env bash
    set -euo pipefail
    last=$(git describe --tags --abbrev=0 --match 'v*' HEAD^ 2>/dev/null) ||
        { echo 'nothing was released before'; exit 0; }
    target=$(realpath "${CARGO_TARGET_DIR:-target}")
    if [ ! -x "$target/released/$last/incumbent" ]; then
        tree=$(mktemp -d)
        trap 'git worktree remove --force "$tree"' EXIT
        git worktree add --quiet --detach "$tree" "$last"
        (cd "$tree" && cargo build --quiet --locked --package incumbent-cli --target-dir "$target/released/build")
        install -D "$target/released/build/debug/incumbent" "$target/released/$last/incumbent"
    fi
    INCUMBENT_RELEASED=$target/released/$last/incumbent \
        cargo test --workspace --all-features --test program -- released
