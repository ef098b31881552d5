# SPDX-License-Identifier: GPL-2.0
# shellcheck shell=bash
#
# The environment of the programs that try kinds of memory, and the check of their cells: these must
# equal the record of scripts/memory.  Source it after program.sh.

export TMPFS_DIR=/run/kinds/tmpfs EXT4_DIR=/run/kinds/ext4
KSM=/sys/kernel/mm/ksm
kinds_cells=/run/kinds/cells

# Two disks of files in memory: one with a file system, one to swap to.
disks_up()
{
	modprobe loop
	mkdir -p /run/kinds
	mount -t tmpfs tmpfs /run/kinds
	mkdir "$TMPFS_DIR" "$EXT4_DIR"
	truncate -s 64M /run/kinds/disk
	truncate -s 256M /run/kinds/swap
	losetup /dev/loop0 /run/kinds/disk
	losetup /dev/loop1 /run/kinds/swap
	mkfs.ext4 -q /dev/loop0
	mount -t ext4 /dev/loop0 "$EXT4_DIR"
	mkswap -q /dev/loop1
	swapon /dev/loop1
	: >"$kinds_cells"
}

disks_down()
{
	swapoff /dev/loop1
	umount "$EXT4_DIR"
	losetup -d /dev/loop0
	losetup -d /dev/loop1
	umount /run/kinds
}

# The kernel looks for pages of the same content without a rest.
ksm_up()
{
	echo none >$KSM/advisor_mode
	# Two pages that are skipped now and then may never be looked at in the same turn.
	echo 0 >$KSM/smart_scan
	echo 2000 >$KSM/pages_to_scan
	echo 1 >$KSM/sleep_millisecs
	echo 1 >$KSM/run
}

ksm_down()
{
	echo 2 >$KSM/run
	echo 0 >$KSM/run
}

# The expected cells are those of ferroce alone.
[ "$DRIVER" = ferroce ] || ktap_skip_program "other drivers may do otherwise"

kinds_up()
{
	net_up
	huge_pages 8
	disks_up
	ksm_up
}

kinds_down()
{
	ksm_down
	disks_down
	huge_pages 0
	net_down
}

# Runs a test of one kind, and keeps its cells.
kind_test()
{
	program_test "$@"
	# shellcheck disable=SC2154 # ktap.sh has it
	grep '^cell: ' "$ktap_tmp/said" >>"$kinds_cells"
}

# The last test: the cells equal the record.
cells_are_as_recorded()
{
	[ -s "$kinds_cells" ] || ktap_skip "no cell was tried"
	python3 -B ../scripts/memory compare "$kinds_cells"
}
