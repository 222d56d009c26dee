#!/bin/sh
# Run targets of the Makefile one after another, each with its variables, also if one fails. The last lines say of
# each: green or red, and its seconds.
#
# With LANE_LIMIT, a number of seconds: what has not ended by then hangs. It is stopped, with the stacks of its Python
# processes in the log, and run once more. Nothing else is run twice: a test that fails makes its target red.
set -u
failed=0 report=$(mktemp)
trap 'rm -f "$report"' EXIT

run() { # ABRT makes pytest print its stacks
    ${LANE_LIMIT:+timeout --signal=ABRT --kill-after=20 "$LANE_LIMIT"} $MAKE --no-print-directory $1 </dev/null
}

for lane in "$@"; do
    start=$(date +%s) colour=green
    run "$lane"
    code=$?
    case ${LANE_LIMIT:+$code} in
    124 | 137)
        printf 'hangs %5d s  %s: run once more\n' "$LANE_LIMIT" "$lane" | tee -a "$report"
        run "$lane"
        code=$?
        ;;
    esac
    [ $code -eq 0 ] || colour=red failed=1
    printf '%-5s %5d s  %s\n' "$colour" "$(($(date +%s) - start))" "$lane" >>"$report"
done
cat "$report"
exit $failed
