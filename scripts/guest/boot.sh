#!/bin/bash
# What `scripts/test-guest-service` runs in guests that are started and shut down as machines are, with one pair of disks:
# `prepare` before systemd, `check` below it. Boot 1 has the file system in /etc/fstab; boot 2 looks at it and mounts it by hand;
# boot 3 looks again, and keeps it busy to the last moment, on a cache that outlives systemd; boot 4 looks at that.
export PATH=/usr/sbin:/usr/bin:/sbin:/bin
SHARE=/run/share
DEVICE=/dev/ublkb0
BOOT=$(cat $SHARE/boot)

check() { # WHAT COMMAND...
    local what=$1
    shift
    if "$@" >> $SHARE/service.log 2>&1; then echo "ok $what"; else echo "not ok $what"; fi >> $SHARE/results
}
eventually() { for _ in $(seq 120); do "$@" && return; sleep 1; done; return 1; }
# Unmounted in order: fsck, which looks before it is mounted, found nothing to repair, and nothing in the journal. After it has
# gone through a journal it says "clean", too.
was_clean() {
    local said
    said=$(journalctl --no-pager -b -u systemd-fsck@dev-ublkb0)
    echo "$said"
    [[ "$said" == *": clean,"* && "$said" != *"recovering journal"* ]]
}
# Not a word of it is flushed.
write_file() { seq 1 400000 > "$1" && cksum < "$1" > $SHARE/written; }
# Somebody is in there until all processes are killed: systemd cannot unmount it, only the program that it becomes at the end.
keep_busy() {
    systemd-run --unit=busy -p DefaultDependencies=no -p IgnoreOnIsolate=yes -p Slice=-.slice sh -c "cd '$1' && exec sleep infinity" &&
        eventually eval '[ "$(readlink "/proc/$(systemctl show -P MainPID busy)/cwd")" = "'"$1"'" ]'
}
is_there() { cksum < "$1" | diff - $SHARE/written; }
prepare() {
    dpkg --no-triggers --install $SHARE/1/*.deb
    cat > /etc/dcd/x.toml << 'SETTINGS'
cache-disk = "/dev/disk/by-id/virtio-guest-disk-0"
data-disk = "/dev/disk/by-id/virtio-guest-disk-1"
ublk = 0
SETTINGS
    sed -e 's/guest-disk-0/guest-disk-2/' -e 's/guest-disk-1/guest-disk-9/' -e 's/ublk = 0/ublk = 7/' /etc/dcd/x.toml > /etc/dcd/y.toml
    chmod 644 /etc/dcd/*.toml
    if [ "$BOOT" = 1 ]; then
        mkfs.ext4 -q -L inner -E nodiscard /dev/vdb
        dcd create --cache-disk /dev/vda --data-disk /dev/vdb
    fi
    # As docs/service.md has it; and one whose disk is missing.
    service=dcd@x.service
    if [ "$BOOT" = 3 ]; then
        cp /usr/share/doc/dcd/examples/dcd-late@.service /etc/systemd/system/
        service=dcd-late@x.service
    fi
    mkdir -p /srv/data /srv/missing
    printf '%s %s ext4 nofail,x-systemd.requires=%s,x-systemd.device-timeout=%s 0 2\n' \
        $DEVICE /srv/data $service 120s /dev/ublkb7 /srv/missing dcd@y.service 5s > /etc/fstab
    # udev starts the service of a cache-disk that comes; here another one has it.
    [ "$BOOT" != 3 ] || systemctl --root=/ mask dcd@x.service
    systemctl --root=/ enable "$service" dcd@y.service dcd.target
} >> $SHARE/service.log 2>&1

check_boot() {
    echo "--- boot $BOOT" >> $SHARE/service.log
    # One word each: of several, one that is active is enough for systemctl.
    check "boot $BOOT: a missing disk has held up no file systems" systemctl is-active local-fs.target
    check "and no caches" systemctl is-active dcd.target
    check "the file system of fstab is mounted" eventually mountpoint -q /srv/data
    case $BOOT in
        1)
            check "of the cache's device" [ "$(findmnt -no SOURCE /srv/data)" = $DEVICE ]
            check "its cache waits" eventually eval '[[ "$(systemctl show -P StatusText dcd@y)" == "waiting for the data-disk"* ]]'
            check "a file is written" write_file /srv/data/file
            ;;
        2)
            check "it was clean" was_clean
            check "the file is there" is_there /srv/data/file
            check "it is mounted by hand" eval "umount /srv/data && mkdir -p /mnt && mount $DEVICE /mnt"
            check "a file is written" write_file /mnt/file
            ;;
        3)
            check "it was clean" was_clean
            check "the file is there" is_there /srv/data/file
            check "somebody is in there until systemd has ended" keep_busy /srv/data
            check "a file is written" write_file /srv/data/file
            ;;
        4)
            check "it was clean" was_clean
            check "the file is there" is_there /srv/data/file
            ;;
    esac
    journalctl --no-pager -u 'dcd@*' -u 'dcd-late@*' | tail -20 >> $SHARE/service.log
    echo "end $BOOT" >> $SHARE/results
    sync $SHARE/results $SHARE/service.log
}

case $1 in
    prepare) prepare ;;
    check) check_boot ;;
esac
