# SPDX-License-Identifier: GPL-2.0
# shellcheck shell=bash
#
# For storage of the kernel's, both ends of which know the first namespace alone: a wire there, with an
# RDMA device that is connected to itself, and a disk in memory.  Source it after net.sh.

# shellcheck disable=SC2034 # for those who source this
LOOP_ADDRESS=192.0.2.1
LOOP_DISK=/dev/ram0
LOOP_DISK_KIB=131072

# loop_up DEVICE DRIVER
loop_up()
{
	modprobe "$(module_of "$2")"
	modprobe brd rd_nr=1 rd_size=$LOOP_DISK_KIB
	ip link add nv0 mtu "$WIRE_MTU" type veth peer name nv1 mtu "$WIRE_MTU"
	ip link set nv1 up
	ip link set nv0 up
	ip address add $LOOP_ADDRESS/24 dev nv0
	rdma link add "$1" type "$2" netdev nv0
	wait_gid "$1" $LOOP_ADDRESS
}

# loop_down DEVICE: takes down whatever of the wire is there. The disk's module goes when nobody has it.
loop_down()
{
	link_delete "$1"
	[ ! -e /sys/class/net/nv0 ] || ip link delete nv0
}

mount_configfs()
{
	mountpoint -q /sys/kernel/config || mount -t configfs none /sys/kernel/config
}
