#!/bin/sh
# Run targets of the Makefile one after another, each with its variables, also if one fails. The last lines say of
# each: green or red, and its seconds.
#
# With LANE_SILENCE, a number of seconds: what has written nothing for so long hangs. It is stopped, with the stacks of
# its Python processes in the log, and run once more. Nothing else is run twice: a test that fails makes its target red.
set -u
failed=0 job= report=$(mktemp) log=$(mktemp)
trap 'rm -f "$report" "$log"' EXIT
trap '[ -z "$job" ] || kill -s TERM -- "-$job" 2>/dev/null; exit 130' INT TERM

silent() { [ $(($(date +%s) - $(stat -c %Y "$log"))) -ge "$LANE_SILENCE" ]; }

run() { # ABRT makes pytest print its stacks
    [ -n "${LANE_SILENCE:-}" ] || { $MAKE --no-print-directory $1 </dev/null; return; }
    : >"$log"
    setsid $MAKE --no-print-directory $1 </dev/null >"$log" 2>&1 &
    job=$! hung=
    tail -f -n +1 --pid=$job "$log" &
    shown=$!
    while kill -0 $job 2>/dev/null; do
        sleep 1
        if silent; then
            hung=yes
            kill -s ABRT -- "-$job"
            sleep "${LANE_GRACE:-20}"
            kill -s KILL -- "-$job"
        fi
    done 2>/dev/null
    wait $job
    code=$?
    wait $shown
    return "$([ -n "$hung" ] && echo 124 || echo $code)"
}

for lane in "$@"; do
    start=$(date +%s) colour=green
    run "$lane"
    code=$?
    if [ -n "${LANE_SILENCE:-}" ] && [ $code -eq 124 ]; then
        printf 'hangs %5d s  %s: run once more\n' "$LANE_SILENCE" "$lane" | tee -a "$report"
        run "$lane"
        code=$?
    fi
    [ $code -eq 0 ] || colour=red failed=1
    printf '%-5s %5d s  %s\n' "$colour" "$(($(date +%s) - start))" "$lane" >>"$report"
done
cat "$report"
exit $failed
