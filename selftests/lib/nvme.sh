# SPDX-License-Identifier: GPL-2.0
# shellcheck shell=bash
#
# NVMe over RDMA from a device to itself: the kernel's target and host, which know the first namespace
# alone, a wire there, and a disk in memory.  Source it after net.sh.

# shellcheck source=selftests/lib/loop.sh
. "${BASH_SOURCE[0]%/*}/loop.sh"

NVME_ADDRESS=$LOOP_ADDRESS
NVME_NQN=nqn.2026-01.test:kverbs
NVME_HOST=nqn.2014-08.org.nvmexpress:uuid:5a1f24b0-7d6c-4a55-9a0e-2d1c9b3e4f10
NVME_TARGET=/sys/kernel/config/nvmet

# nvme_up DEVICE DRIVER: the wire with this device on it, and a target that offers the disk.
nvme_up()
{
	needs_irq_poll
	loop_up "$1" "$2"
	modprobe -a nvmet nvmet-rdma nvme-rdma
	nvme_target_up
}

# nvme_down DEVICE: takes down the parts of nvme_up that are there.
nvme_down()
{
	nvme disconnect -n "$NVME_NQN" >/dev/null 2>&1 || true
	nvme_target_down
	loop_down "$1"
	modprobe -r nvme-rdma nvmet-rdma
	modprobe -r brd
}

nvme_target_up()
{
	local subsystem=$NVME_TARGET/subsystems/$NVME_NQN
	mount_configfs
	mkdir "$subsystem"
	echo 1 >"$subsystem/attr_allow_any_host"
	mkdir "$subsystem/namespaces/1"
	echo "$LOOP_DISK" >"$subsystem/namespaces/1/device_path"
	echo 1 >"$subsystem/namespaces/1/enable"
	nvme_port_up 1 $NVME_ADDRESS
}

# nvme_port_up NUMBER ADDRESS: the target listens there.
nvme_port_up()
{
	local port=$NVME_TARGET/ports/$1
	mkdir "$port"
	echo rdma >"$port/addr_trtype"
	echo ipv4 >"$port/addr_adrfam"
	echo "$2" >"$port/addr_traddr"
	echo 4420 >"$port/addr_trsvcid"
	nvme_port_enable "$1"
}

nvme_port_enable()
{
	ln -s "$NVME_TARGET/subsystems/$NVME_NQN" "$NVME_TARGET/ports/$1/subsystems/$NVME_NQN"
}

nvme_port_disable()
{
	rm -f "$NVME_TARGET/ports/$1/subsystems/$NVME_NQN"
}

nvme_port_down()
{
	nvme_port_disable "$1"
	[ ! -d "$NVME_TARGET/ports/$1" ] || rmdir "$NVME_TARGET/ports/$1"
}

nvme_target_down()
{
	local subsystem=$NVME_TARGET/subsystems/$NVME_NQN
	nvme_port_down 1
	[ ! -d "$subsystem/namespaces/1" ] || rmdir "$subsystem/namespaces/1"
	[ ! -d "$subsystem" ] || rmdir "$subsystem"
}

# The block device of the connection, and not one of the paths to it.
nvme_disk()
{
	local block
	for block in /sys/block/nvme*n1; do
		[[ $block =~ /nvme[0-9]+n1$ ]] || continue
		[ "$(cat "$block/device/subsysnqn" 2>/dev/null)" = "$NVME_NQN" ] || continue
		echo "/dev/${block##*/}"
		return
	done
}

nvme_disk_is_there()
{
	[ -b "$(nvme_disk)" ]
}

nvme_not_connected()
{
	[ -z "$(nvme_disk)" ]
}

nvme_connect()
{
	nvme_connect_to "$NVME_ADDRESS"
}

# nvme_connect_to ADDRESS [OPTION...]
nvme_connect_to()
{
	nvme connect -t rdma -a "$1" -s 4420 -n "$NVME_NQN" -q "$NVME_HOST" -I "${NVME_HOST##*:}" -i 2 "${@:2}" ||
		return 1
	wait_for 20 nvme_disk_is_there
}

nvme_disconnect()
{
	nvme disconnect -n "$NVME_NQN"
	wait_for 20 nvme_not_connected
}
