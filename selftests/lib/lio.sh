# SPDX-License-Identifier: GPL-2.0
# shellcheck shell=bash
#
# Common parts of the kernel's SCSI targets: the disk of loop.sh, which they offer, and the disk of an
# initiator. Source it after loop.sh.

LIO_TARGET=/sys/kernel/config/target
LIO_DISK=$LIO_TARGET/core/iblock_0/disk

lio_disk_up()
{
	modprobe -a sd_mod target_core_mod target_core_iblock
	mount_configfs
	mkdir -p "$LIO_DISK"
	# shellcheck disable=SC2153 # of loop.sh
	echo "udev_path=$LOOP_DISK" >"$LIO_DISK/control"
	echo 1 >"$LIO_DISK/enable"
}

lio_disk_down()
{
	[ ! -d "$LIO_DISK" ] || rmdir "$LIO_DISK" "${LIO_DISK%/*}"
}

# The block device of the session.
lio_session_disk()
{
	local block
	for block in /sys/block/sd*; do
		grep -q LIO-ORG "$block/device/vendor" 2>/dev/null || continue
		echo "/dev/${block##*/}"
		return
	done
	return 1
}
