#!/bin/bash
# What `scripts/test-guest-service` runs in its guest, below systemd: the package is installed, a cache is served as a service
# and mounted, killed and upgraded under load, refused to be removed, detached, removed. Each line of /run/share/results is
# "ok WHAT" or "not ok WHAT". Triggers (man-db) would look at all manual pages of this machine.
export PATH=/usr/sbin:/usr/bin:/sbin:/bin
SHARE=/run/share
DEVICE=/dev/ublkb0
CONTROL=/run/dcd/x.ctl

check() { # WHAT COMMAND...
    local what=$1
    shift
    if "$@" >> $SHARE/service.log 2>&1; then echo "ok $what"; else echo "not ok $what"; fi >> $SHARE/results
    # That alone: the file system under load waits while nothing serves it.
    sync $SHARE/results
}
refused() { ! "$@"; }
property() { systemctl show -P "$1" dcd@x; }
says() { [[ "$(property StatusText)" == *"$1"* ]]; }
is_hidden() { ! udevadm info -q property /dev/vdb | grep -q '^ID_FS_UUID=.' && udevadm info -q property /dev/vdb | grep -qx 'UDISKS_IGNORE=1'; }
links_to() { [ "$(readlink -f /dev/disk/by-label/inner)" = "$1" ]; }
restarted() { local now; now=$(property MainPID); [ "$now" != 0 ] && [ "$now" != "$1" ]; }
# Waits until a command succeeds.
eventually() { for _ in $(seq 60); do "$@" && return; sleep 1; done; return 1; }
data_disk_is_seen() {
    eventually links_to /dev/vdb && return
    ls -l /dev/disk/by-label
    udevadm info -q property /dev/vdb
    dcd probe --udev /dev/vdb
    systemctl status --no-pager dcd@x
    ls -l /proc/[0-9]*/fd/* | grep ublk
    grep ublk /proc/[0-9]*/mountinfo
    return 1
}
user_is_dcd() { [ "$(stat -c %U "/proc/$(property MainPID)")" = dcd ]; }

# How the service is, and what waits for a disk: the last look, for whoever reads why nothing goes on.
watch_blocked() {
    local task
    while sleep 20; do
        {
            uptime -p
            timeout 10 systemctl status --no-pager --lines=0 dcd@x
            # Not by unit: who ends at once is not known any more when its lines are read.
            timeout 10 journalctl --no-pager --lines=30 --identifier=dcd
            for task in /proc/[0-9]*/task/[0-9]*; do
                grep -q '^State:.D' "$task/status" || [ "$(cat "$task/comm")" = dcd ] || continue
                echo "--- ${task##*/} $(tr '\0' ' ' < "$task/cmdline" | cut -c1-100)"
                cat "$task/stack"
            done
        } > $SHARE/blocked.new 2> /dev/null
        mv $SHARE/blocked.new $SHARE/blocked
    done
}
watch_blocked &

# Disks that were closed are looked at again by udev; that is no reason to start what was stopped.
stays_stopped() { systemctl stop dcd@x && udevadm settle && sleep 2 && ! systemctl is-active dcd@x; }
plugged_in() { udevadm trigger --settle --action=add /dev/vda && eventually says "serves $DEVICE"; }

mkfs.ext4 -q -L inner -E nodiscard /dev/vdb
check "the package is installed" dpkg --no-triggers --install $SHARE/1/*.deb
check "dcd.target is reached" systemctl is-active dcd.target
cat > /etc/dcd/x.toml << 'SETTINGS'
cache-disk = "/dev/disk/by-id/virtio-guest-disk-0"
data-disk = "/dev/disk/by-id/virtio-guest-disk-1"
ublk = 0
SETTINGS
check "a cache is made" dcd create --cache-disk /dev/vda --data-disk /dev/vdb
check "the service starts" timeout 120 systemctl start dcd@x
check "what is stopped stays so" stays_stopped
check "a cache-disk that comes starts its service" plugged_in
check "it says what it serves" says "serves $DEVICE"
check "it runs as the user dcd" user_is_dcd
check "system calls are filtered, its memory is locked" eval "dcd status --control $CONTROL | grep 'isolation.*filtered.*I/O flusher, memory locked, files confined'"
check "udev hides the data-disk" eventually is_hidden
check "the label is that of the device" eventually links_to $DEVICE
mkdir -p /mnt
check "it is mounted" mount $DEVICE /mnt

fio --name=load --directory=/mnt --rw=randwrite --bs=4k --size=16M --fsync=4 --time_based --runtime="${1:-60}" --verify=crc32c \
    --verify_backlog=64 > $SHARE/fio.log 2>&1 &
load=$!
sleep 5
before=$(property MainPID)
kill -9 "$before"
check "killed under load, it is started again" eventually restarted "$before"
check "and serves" eventually says "serves $DEVICE"
before=$(property MainPID)
check "it is upgraded under load" dpkg --no-triggers --install $SHARE/2/*.deb
check "and restarted" eventually restarted "$before"
check "and serves the same device" eventually says "serves $DEVICE"
check "it is not removed under a mounted file system" refused dpkg --no-triggers --remove dcd
check "and is there" systemctl is-active dcd@x
check "the load has seen no error" wait $load

# Every third time when it serves again, else at some moment of its start: while it opens the cache, or takes its device over.
killed_often() {
    for round in $(seq 12); do
        before=$(property MainPID)
        kill -9 "$before"
        eventually restarted "$before" || return 1
        case $((round % 3)) in
            0) eventually says "serves $DEVICE" || return 1 ;;
            *) sleep "0.$(shuf -i 0-9 -n 1)$(shuf -i 0-9 -n 1)" ;;
        esac
    done
}
check "killed twelve times, while it starts too, it is started again each time" killed_often
check "it stops under a mounted file system" systemctl stop dcd@x
check "and goes on" timeout 120 systemctl start dcd@x
check "files are as they were" eval "sync && echo 3 > /proc/sys/vm/drop_caches && fio --name=load --directory=/mnt --rw=read --bs=4k --size=16M"
check "it is unmounted" umount /mnt
check "it is detached" dcd detach --control $CONTROL
eventually eval '[ "$(property ActiveState)" = inactive ]'
check "the data-disk is seen again" data_disk_is_seen
check "its file system is whole" fsck.ext4 -fn /dev/vdb

sed -i 's/guest-disk-1/guest-disk-9/' /etc/dcd/x.toml
systemctl start --no-block dcd@x
check "without its data-disk it waits" eventually says "waiting for the data-disk /dev/disk/by-id/virtio-guest-disk-9"
check "dcd status says so" eval "dcd status --control $CONTROL 2>&1 | grep 'waiting for the data-disk'"
ln -s ../../vdb /dev/disk/by-id/virtio-guest-disk-9
check "it serves when the disk comes" eventually says "serves $DEVICE"
check "a drained cache is detached" dcd detach --control $CONTROL
check "the package is removed" dpkg --no-triggers --remove dcd
check "nothing is left of it but settings" eval "! ls /usr/bin/dcd /usr/lib/systemd/system/dcd* /usr/lib/udev/rules.d/*dcd* && ls /etc/dcd/x.toml"
{ journalctl --no-pager -u 'dcd@*' | tail -60; } >> $SHARE/service.log 2>&1
echo end >> $SHARE/results
sync $SHARE/results
