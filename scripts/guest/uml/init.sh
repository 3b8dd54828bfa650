#!/bin/sh
# First program in User Mode Linux. Makes the host's files the root, with a layer in memory on top, and goes on there. What begins with
# guest_ are words of the kernel's command line.
PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin
GUEST_DISKS=$guest_disks
export PATH GUEST_DISKS
b=$guest_busybox
$b mount -t proc proc /proc
$b mount -t sysfs sysfs /sys
$b mount -t devtmpfs dev /dev
$b mount -t tmpfs layer /run
mkdir /run/upper /run/work /run/root
root=/run/root
$b mount -t overlay -o lowerdir=/,upperdir=/run/upper,workdir=/run/work overlay $root || $b poweroff -f
for kept in dev proc sys; do $b mount --move /$kept $root/$kept; done
for fresh in run tmp dev/shm dev/pts; do mkdir -p $root/$fresh; done
$b mount -t tmpfs fresh $root/run
$b mount -t tmpfs fresh $root/dev/shm
$b mount -t devpts devpts $root/dev/pts
mkdir $root/run/share
$b mount -t hostfs -o "$guest_share" share $root/run/share
$b touch $root/run/share/started
$b ip link set lo up
if [ -n "$guest_clock" ]; then
    export LD_PRELOAD="$guest_clock"
fi
$b chroot $root "$guest_python" "$guest_inside"
exec $b poweroff -f
