#!/bin/sh
# Runs what `cargo xtask stage-gpu` staged, on a machine that has a GPU and no compiler.
set -u

usage() {
    cat <<'END'
sh run.sh [tests [FILTER [ARGUMENT…]]]          every test program; the arguments go to each
sh run.sh sanitizer TOOL [FILTER [ARGUMENT…]]   the same under compute-sanitizer: memcheck, racecheck, initcheck, synccheck
sh run.sh bench [ARGUMENT…]                     warpwright bench
sh run.sh demo [ARGUMENT…]                      warpwright demo

FILTER is a part of the names of the programs to run. From the environment, with what holds otherwise:
  WARPWRIGHT_UNPACK        the folder to unpack in, which is kept [a temporary one]
  WARPWRIGHT_REQUIRE_GPU   whether tests fail without a GPU [1]
  WARPWRIGHT_GPU_ALONE     whether tests leave the CPU out [0; 1 under the sanitizer]
  WARPWRIGHT_TIMEOUT       seconds that a test program may take [300; 600 under the sanitizer]
  RAYON_NUM_THREADS        threads of the CPU checker [4]
  OUT                      the folder that gets logs/, with all output [that of this script]
END
}

fail() {
    echo "run.sh: $*" >&2
    exit 2
}

# Sets $root to a folder with the programs.
unpack() {
    archive=$here/programs.tar.xz
    [ -f "$archive" ] || fail "$archive is not here"
    if [ -n "${WARPWRIGHT_UNPACK:-}" ]; then
        mkdir -p "$WARPWRIGHT_UNPACK" || fail "$WARPWRIGHT_UNPACK cannot be made"
        root=$(cd "$WARPWRIGHT_UNPACK" && pwd)
        stamp=$(cksum <"$archive")
        [ "$(cat "$root/stamp" 2>/dev/null)" = "$stamp" ] && return
    else
        root=$(mktemp -d) || fail "there is no temporary folder: name one by WARPWRIGHT_UNPACK"
        trap 'rm -rf "$root"' EXIT
        trap 'exit 130' INT TERM
        stamp=
    fi
    if command -v xz >/dev/null 2>&1; then
        xz -dc "$archive" | tar -xf - -C "$root"
    elif command -v python3 >/dev/null 2>&1; then
        python3 -c 'import sys, tarfile; tarfile.open(sys.argv[1]).extractall(sys.argv[2])' "$archive" "$root"
    else
        fail "neither xz nor python3 is here to unpack with"
    fi || fail "$archive cannot be unpacked into $root"
    [ -f "$root/programs" ] || fail "$archive lacks its list of programs"
    [ -z "$stamp" ] || echo "$stamp" >"$root/stamp"
}

# run_test NAME DIRECTORY ARGUMENT…: a line, and of a failure what it said.
run_test() {
    name=$1 directory=$root/$2
    shift 2
    log=$logs/$name.log
    mkdir -p "$directory"
    (
        cd "$directory" || exit 2
        CARGO_MANIFEST_DIR=$directory
        export CARGO_MANIFEST_DIR
        # The prefixes are words, split on purpose.
        # shellcheck disable=SC2086
        exec $limit $tool "$root/bin/$name" "$@"
    ) >"$log" 2>&1
    status=$?
    case $status in
    0) word=ok ;;
    124 | 137) word=TIMEOUT ;;
    *) word=FAILED ;;
    esac
    summary=$(grep '^test result:' "$log" | tail -n 1 | sed 's/^test result: [a-zA-Z]*\. //')
    [ -z "$tool" ] || summary="${summary:-no summary}; $(grep 'ERROR SUMMARY' "$log" | tail -n 1 | sed 's/^=* *//')"
    echo "$word $name: ${summary:-no summary, status $status}"
    if [ "$word" != ok ]; then
        failed=$((failed + 1))
        tail -n 60 "$log" | sed 's/^/    /'
    fi
}

# run_tests [FILTER [ARGUMENT…]]
run_tests() {
    filter=${1:-}
    [ $# -eq 0 ] || shift
    logs=${OUT:-$here}/logs
    mkdir -p "$logs" || fail "$logs cannot be made"
    : "${WARPWRIGHT_REQUIRE_GPU:=1}" "${RAYON_NUM_THREADS:=4}"
    export WARPWRIGHT_REQUIRE_GPU RAYON_NUM_THREADS
    limit=
    command -v timeout >/dev/null 2>&1 && limit="timeout -k 10 $seconds"
    failed=0 ran=0 skipped=0
    # Not on standard input, which test programs may read.
    while read -r kind name rest <&3; do
        case $name in
        *"$filter"*) ;;
        *) continue ;;
        esac
        case $kind in
        test)
            ran=$((ran + 1))
            run_test "$name" "$rest" "$@"
            ;;
        skip)
            skipped=$((skipped + 1))
            echo "skipped $name: $rest"
            ;;
        esac
    done 3<"$root/programs"
    [ "$ran" -gt 0 ] || fail "no test program has \`$filter\` in its name"
    echo "$failed of $ran test programs failed, $skipped skipped"
    [ "$failed" -eq 0 ]
}

here=$(cd "$(dirname "$0")" && pwd)
root=
command=${1:-tests}
[ $# -eq 0 ] || shift
tool=
case $command in
tests)
    seconds=${WARPWRIGHT_TIMEOUT:-300}
    unpack
    run_tests "$@"
    ;;
sanitizer)
    case ${1:-} in
    memcheck | racecheck | initcheck | synccheck) ;;
    *) fail "sanitizer needs memcheck, racecheck, initcheck or synccheck, got \`${1:-}\`" ;;
    esac
    command -v compute-sanitizer >/dev/null 2>&1 || fail "compute-sanitizer is not on the PATH"
    tool="compute-sanitizer --tool $1 --error-exitcode 1"
    : "${WARPWRIGHT_GPU_ALONE:=1}"
    export WARPWRIGHT_GPU_ALONE
    shift
    seconds=${WARPWRIGHT_TIMEOUT:-600}
    unpack
    run_tests "$@"
    ;;
bench | demo)
    unpack
    "$root/bin/warpwright" "$command" "$@"
    ;;
help | -h | --help) usage ;;
*)
    usage >&2
    fail "unknown command \`$command\`"
    ;;
esac
