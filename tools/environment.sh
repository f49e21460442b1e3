# SPDX-License-Identifier: MIT
# Sourced by the scripts beside it: a virtual environment of the checkout's own.
#
#   useEnvironment NAME FILE...    makes .venv-NAME hold what the requirements files ask for, and
#                                  sets $python. Does nothing where it does so already, so a
#                                  second run needs no network.
#   useFolder NAME FILE            the same with a folder of $environment, which is on no path.
#
# PYTHON names the Python to make it with; TENSILE_PARALLEL_VENV another folder for all of them.

root=$(CDPATH= cd -- "$(dirname -- "$0")/.." && pwd -P)

say() {
    printf '%s: %s\n' "$(basename -- "$0")" "$*" >&2
}

# The first Python from 3.9 on, as $basePython.
findPython() {
    for candidate in "${PYTHON:-}" python3 python3.14 python3.13 python3.12 python3.11 \
        python3.10 python3.9; do
        [ -n "$candidate" ] || continue
        if "$candidate" -c 'import sys; sys.exit(sys.version_info < (3, 9))' 2>/dev/null; then
            basePython=$candidate
            return
        fi
    done
    say "Python 3.9 or newer is needed and was not found (PYTHON=... names one)"
    exit 1
}

# An empty virtual environment in folder $1. Debian keeps what `venv` needs in a package of its own.
makeEnvironment() {
    if ! "$basePython" -c 'import ensurepip, venv' 2>/dev/null; then
        if "$basePython" -m virtualenv --version >/dev/null 2>&1; then
            "$basePython" -m virtualenv -q "$1"
            return
        fi
        package=$("$basePython" -c 'import sys; print("python%d.%d-venv" % sys.version_info[:2])')
        if [ "$(id -u)" != 0 ] || ! command -v apt-get >/dev/null; then
            say "$basePython cannot make virtual environments: run 'sudo apt-get install $package'"
            exit 1
        fi
        say "installing $package"
        apt-get update -qq </dev/null
        DEBIAN_FRONTEND=noninteractive apt-get install -qq -y "$package" </dev/null >/dev/null
    fi
    "$basePython" -m venv "$1"
}

useEnvironment() {
    name=$1
    shift
    environment=${TENSILE_PARALLEL_VENV:-$root}/.venv-$name
    python=$environment/bin/python
    # What the packages of the person who runs this are is no business of ours.
    unset PYTHONHOME PYTHONPATH
    # A run starts dozens of processes. Where nothing may be written beside the sources, or the user
    # has turned that off, each would compile them again: a sixth of a short run.
    unset PYTHONDONTWRITEBYTECODE
    export PYTHONPYCACHEPREFIX="$environment/compiled"
    wanted=$(cat -- "$@" && printf '%s' "$environment ${PYTHON:-}")
    if [ -x "$python" ] && "$python" -c '' && [ "$(cat "$environment/ready" 2>/dev/null)" = "$wanted" ]
    then
        return
    fi
    findPython
    say "making $environment with $basePython"
    rm -rf -- "$environment"
    makeEnvironment "$environment"
    for file in "$@"; do
        set -- "$@" -r "$file"
        shift
    done
    "$python" -m pip install --disable-pip-version-check -q "$@" </dev/null
    printf '%s' "$wanted" >"$environment/ready"
}

useFolder() {
    folder=$environment/$1
    wanted=$(cat -- "$2")
    [ "$(cat "$folder/ready" 2>/dev/null)" != "$wanted" ] || return 0
    say "making $folder"
    rm -rf -- "$folder"
    "$python" -m pip install --disable-pip-version-check -q --target "$folder" -r "$2" </dev/null
    printf '%s' "$wanted" >"$folder/ready"
}
