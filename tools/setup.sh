#!/bin/sh
# Make .venv and install at the pins. `make lab` and `make test` call this; it does
# nothing when .venv is up to date. Each thing that can be wrong gets one line.
#   EXTRAS=lab     what a learner needs; EXTRAS=all: what the checks need too
#   PYTHON=...    use this Python        VENV=...    put the environment there
#   NEED_MB=...   free space to ask for (3000)
#   CONSTRAINTS=...    other versions than the pins
set -u

VENV=${VENV:-.venv}
NEED_MB=${NEED_MB:-3000}
CONSTRAINTS=${CONSTRAINTS:-constraints.txt}
EXTRAS=${EXTRAS:-lab}
READY=$VENV/.ready-$EXTRAS

stop() { printf 'make: %s\n' "$1" >&2; exit 1; }

# The columns cannot be counted from the left: the name of a file system may have spaces.
free_mb() {
    df -Pk "$1" 2>/dev/null |
        awk 'match($0, /[0-9]+ +[0-9]+ +[0-9]+ +[0-9]+%/) { split(substr($0, RSTART), n); print int(n[3] / 1024) }'
}

is_new_enough() { "$1" -c 'import sys; sys.exit(sys.version_info < (3, 11))' >/dev/null 2>&1; }

find_python() {
    found=""
    if [ -n "${PYTHON:-}" ]; then set -- "$PYTHON"; else set -- python3 python3.13 python3.12 python3.11 python; fi
    for name in "$@"; do
        command -v "$name" >/dev/null 2>&1 || continue
        if is_new_enough "$name"; then
            printf '%s\n' "$name"
            return 0
        fi
        version=$("$name" -c 'import sys; print("%d.%d" % sys.version_info[:2])' 2>/dev/null)
        found="$found${found:+, }$name is ${version:-broken}"
    done
    if [ -n "$found" ]; then
        stop "Python 3.11 or newer is needed, and here $found: install it, or say make PYTHON=/path/to/python3.11"
    fi
    stop "Python 3.11 or newer is needed, and none was found: install it, or say make PYTHON=/path/to/python3.11"
}

# A mark that is newer than what it was made from, and a Python that still runs: nothing to do.
if [ -f "$READY" ] && "$VENV/bin/python" -c '' 2>/dev/null; then
    # JupyterLab reads copies of the explorables' scripts.
    newer=$(find pyproject.toml setup.py "$CONSTRAINTS" tools/setup.sh hub/overrides.json mha_course/explore/*.js \
        mha_course/explore/*.css mha_course/explore/labextension tools/nbconvert -newer "$READY" 2>/dev/null)
    [ -z "$newer" ] && exit 0
fi
# The first time, pip shows its progress; after a change, only what is wrong.
quiet=""
[ -f "$READY" ] && quiet=--quiet
rm -f "$READY"

python=$(find_python) || exit 1
"$python" -c 'import ensurepip, venv' 2>/dev/null ||
    stop "$python has no venv module: install it (on Debian and Ubuntu: apt install python3-venv)"
place=$(dirname "$VENV")
[ -d "$place" ] || place=.
free=$(free_mb "$place")
if [ ! -d "$VENV" ] && [ -n "$free" ] && [ "$free" -lt "$NEED_MB" ]; then
    stop "the disk has $free MB free and the set-up needs about $NEED_MB MB: free some space first"
fi

if ! "$VENV/bin/python" -c 'import pip' 2>/dev/null; then
    echo "[1/2] making $VENV with $python"
    rm -rf "$VENV"
    message=$("$python" -m venv "$VENV" 2>&1) || {
        case $message in
        *"No space left"*) stop "the disk is full: free about $NEED_MB MB, then run this again" ;;
        *) stop "making $VENV failed: $(printf '%s' "$message" | tail -n 1)" ;;
        esac
    }
fi

echo "[2/2] installing the packages of pyproject.toml at the versions of $CONSTRAINTS (a few minutes the first time)"
# pip's standard output stays on the terminal, with its progress bars; what it complains about is
# read here, so that a full disk gets one line and not a traceback.
# For a learner, Python compiles each module at its first import: pip would take a third longer to compile all.
wanted=lab
compile=--no-compile
[ "$EXTRAS" = all ] && compile=--compile && wanted=lab,dev,class,browser,pretrained,project,site
exec 3>&1
complaints=$(
    PIP_DISABLE_PIP_VERSION_CHECK=1 "$VENV/bin/python" -m pip install $quiet $compile \
        --editable ".[$wanted]" --constraint "$CONSTRAINTS" 2>&1 >&3 || echo "pip failed"
)
exec 3>&-
case $complaints in
*"No space left on device"*)
    stop "the disk became full during the installation: free about $NEED_MB MB, then run this again"
    ;;
*"pip failed"*)
    printf '%s\n' "$complaints" | grep -v '^pip failed$' >&2
    stop "the installation failed; the lines above are pip's. Run this again to go on"
    ;;
esac
# JupyterLab asks about news, and covers what the learner reads. Not here, and not on the hub.
mkdir -p "$VENV/share/jupyter/lab/settings/overrides.d"
cp hub/overrides.json "$VENV/share/jupyter/lab/settings/overrides.d/mha-lab.json"
# nbgrader adds a teacher's menus to JupyterLab. A learner's stays without them: docs/grading.md says
# how to get them back.
if [ "$EXTRAS" = all ]; then
    touch "$VENV/.ready-lab"
else
    touch "$READY"
    echo "ready"
    exit 0
fi
settings=$VENV/etc/jupyter
mkdir -p "$settings/labconfig"
printf '%s\n' '{"disabledExtensions": {"@jupyter/nbgrader": true}}' >"$settings/labconfig/page_config.json"
printf '%s\n' '{"ServerApp": {"jpserver_extensions": {
  "nbgrader.server_extensions.formgrader": false,
  "nbgrader.server_extensions.validate_assignment": false,
  "nbgrader.server_extensions.assignment_list": false,
  "nbgrader.server_extensions.course_list": false}}}' >"$settings/jupyter_server_config.json"
touch "$READY"
echo "ready"
