#!/bin/sh
# Installs the Debian packages that `make demo` needs, if they are missing, and says which.
# Needs root or sudo only when there is something to install.
set -eu

missing=
need() { # program package
    if ! PATH="$PATH:/usr/sbin:/sbin" command -v "$1" >/dev/null 2>&1; then
        case " $missing " in
        *" $2 "*) ;;
        *) missing="$missing $2" ;;
        esac
    fi
}
need fusermount3 fuse3
need mkfs.ext4 e2fsprogs
need losetup mount
need cc gcc

if [ -z "$missing" ]; then
    exit 0
fi
echo "installing Debian packages:$missing" >&2
if ! command -v apt-get >/dev/null 2>&1; then
    echo "error: no apt-get here; install the equivalents of:$missing" >&2
    exit 1
fi
sudo=
if [ "$(id -u)" != 0 ]; then
    if ! command -v sudo >/dev/null 2>&1; then
        echo "error: installing needs root; as root: apt-get install$missing" >&2
        exit 1
    fi
    sudo=sudo
fi
$sudo apt-get update -q
# shellcheck disable=SC2086  # the names are words
$sudo env DEBIAN_FRONTEND=noninteractive apt-get install -q -y --no-install-recommends $missing
