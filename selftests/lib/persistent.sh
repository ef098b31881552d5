# SPDX-License-Identifier: GPL-2.0
# shellcheck shell=bash
#
# Persistent memory, of a machine that was booted with memmap=128M!1G,128M!1536M: a file system and
# a device.  Source it after ktap.sh.

export PERSISTENT_DEVICE=/dev/dax1.0 PERSISTENT_DIR=/run/persistent

# The first part carries a file system, the second one is a device without one.
persistent_up()
{
	local devices=/sys/bus/nd/devices drivers=/sys/bus/nd/drivers
	modprobe -a nd_e820 nd_pmem dax_pmem device_dax
	wait_for 10 test -b /dev/pmem0
	mkfs.ext4 -q -b 4096 /dev/pmem0
	mkdir -p "$PERSISTENT_DIR"
	mount -t ext4 -o dax /dev/pmem0 "$PERSISTENT_DIR"
	# It stays a device until the next boot.
	[ ! -c "$PERSISTENT_DEVICE" ] || return 0
	wait_for 10 test -b /dev/pmem1
	echo namespace1.0 >$drivers/nd_pmem/unbind
	cat /proc/sys/kernel/random/uuid >$devices/dax1.0/uuid
	echo 2097152 >$devices/dax1.0/align
	echo ram >$devices/dax1.0/mode
	echo namespace1.0 >$devices/dax1.0/namespace
	echo dax1.0 >$drivers/dax_pmem/bind
	wait_for 10 test -c "$PERSISTENT_DEVICE"
}
