# Functions of scripts/setup and scripts/clients, which source this file.
# shellcheck shell=bash

script=${0##*/}
export DEBIAN_FRONTEND=noninteractive

# A Python of 3.9 or later that can make a virtual environment. Debian's own
# cannot before python3-venv is there, so importing ensurepip is the test.
python_for_venv() {
    local candidate
    for candidate in python3 /usr/bin/python3; do
        if "$candidate" -c 'import sys, venv, ensurepip
sys.exit(sys.version_info < (3, 9))' 2>/dev/null; then
            echo "$candidate"
            return
        fi
    done
}

# Runs a command without its output, which is shown only if the command fails.
quietly() {
    local log
    log=$(mktemp)
    if ! "$@" >"$log" 2>&1 </dev/null; then
        echo "$script: this failed: $*" >&2
        cat "$log" >&2
        rm -f "$log"
        return 1
    fi
    rm -f "$log"
}

apt() {
    quietly apt-get -q -o DPkg::Lock::Timeout=600 "$@"
}

# Ends with status 1, and the names of the packages, where they cannot be installed by apt-get.
can_install() {
    if ! command -v apt-get >/dev/null || [ "$(id -u)" != 0 ]; then
        echo "$script: missing: $* (names of Debian packages)." >&2
        echo "$script: run scripts/$script as root on Debian or Ubuntu, or install them by hand." >&2
        return 1
    fi
}
