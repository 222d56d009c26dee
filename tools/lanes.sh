#!/bin/sh
# Run targets of the Makefile one after another, each with its variables, also if one fails. The last lines say of
# each: green or red, and its seconds.
set -u
failed=0 report=$(mktemp)
trap 'rm -f "$report"' EXIT
for lane in "$@"; do
    start=$(date +%s) colour=green
    $MAKE --no-print-directory $lane </dev/null || { colour=red failed=1; }
    printf '%-5s %5d s  %s\n' "$colour" "$(($(date +%s) - start))" "$lane" >>"$report"
done
cat "$report"
exit $failed
