# Common parts of the tests of packages, which install them in bare systems. Sourced as root.
set -euo pipefail
cd "$(dirname "$0")/../.."
packages=${PACKAGES_DIR:-$PWD/target/packages}
cache=$PWD/target/tools
mirror=${MIRROR:-http://deb.debian.org/debian}
work=$(mktemp -d /var/tmp/longhaul-test.XXXXXX)
trap 'rm -rf --one-file-system "$work"' EXIT

# step TEXT: prints the seconds of the step before, and begins another.
step() {
    local now=${EPOCHREALTIME/[.,]/}
    [ -z "${doing:-}" ] || printf '%8d.%02d s  %s\n' $(((now - began) / 1000000)) \
        $(((now - began) / 10000 % 100)) "$doing"
    doing=$1 began=$now
}

fail() {
    echo "failed: ${doing:-}: $1" >&2
    exit 1
}

# logged COMMAND...: runs a command, and shows its output only if it fails.
logged() {
    "$@" >"$work/output" 2>&1 || {
        cat "$work/output"
        fail "$*"
    }
}

# package PATTERN: prints the path of a built package.
package() {
    local found=("$packages"/$1)
    [ -e "${found[0]}" ] || fail "no $1 in $packages: make packages"
    echo "${found[0]}"
}

# older_package PACKAGE FILE: makes a previous package, with the same files under an older version.
older_package() {
    local tree=$work/older
    dpkg-deb --raw-extract "$1" "$tree"
    sed -i 's/^Version: .*/Version: 0.0.1-1/' "$tree/DEBIAN/control"
    dpkg-deb -Zgzip -z1 --build "$tree" "$2" >/dev/null
    rm -r "$tree"
}

# debian_root DIRECTORY [PACKAGES]: unpacks Debian 13 with nothing but its essential packages.
debian_root() {
    local archive=$cache/trixie${2:+-$2}.tar
    [ -e "$archive" ] || {
        mkdir -p "$cache"
        mmdebstrap --quiet --format=tar --variant=minbase ${2:+--include="$2"} trixie \
            "$archive.new" "$mirror"
        mv "$archive.new" "$archive"
    }
    mkdir "$1"
    tar -x -C "$1" -f "$archive"
    cp packaging/test/unit "$1/usr/local/bin/unit"
    # The programs in it write there.
    cp /etc/resolv.conf "$1/etc/resolv.conf"
}

# in_root DIRECTORY COMMAND...: runs a command in the root, in its own mount and PID namespaces.
in_root() {
    local root=$1
    shift
    unshare --mount --pid --fork --kill-child sh -c '
        mount --make-rprivate /
        mount --bind "$1" "$1"
        mount -t proc proc "$1/proc"
        mount -t tmpfs tmpfs "$1/run"
        root=$1
        shift
        exec env -i PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin HOME=/root \
            DEBIAN_FRONTEND=noninteractive chroot "$root" "$@"' sh "$root" "$@"
}

# alone COMMAND...: runs a command in a network namespace that has only loopback.
alone() {
    unshare --net sh -c 'ip link set lo up; exec "$@"' sh "$@"
}
