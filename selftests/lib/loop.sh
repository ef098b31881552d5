# SPDX-License-Identifier: GPL-2.0
# shellcheck shell=bash
#
# For storage of the kernel's, both ends of which know the first namespace alone: a wire there, with an
# RDMA device that is connected to itself, and a disk in memory.  Source it after net.sh.

# shellcheck disable=SC2034 # for files that source this
LOOP_ADDRESS=192.0.2.1
LOOP_DISK=/dev/ram0
LOOP_DISK_KIB=131072

loop_disk_up()
{
	modprobe brd rd_nr=1 rd_size=$LOOP_DISK_KIB
}

# loop_up DEVICE DRIVER
loop_up()
{
	modprobe "$(module_of "$2")"
	loop_disk_up
	loop_wire_up nv0 nv1 $LOOP_ADDRESS
	loop_link_up "$1" "$2" nv0 $LOOP_ADDRESS
}

# loop_wire_up NETDEV PEER ADDRESS
loop_wire_up()
{
	ip link add "$1" mtu "$WIRE_MTU" type veth peer name "$2" mtu "$WIRE_MTU"
	ip link set "$2" up
	ip link set "$1" up
	ip address add "$3/24" dev "$1"
}

# loop_link_up DEVICE DRIVER NETDEV ADDRESS
loop_link_up()
{
	rdma link add "$1" type "$2" netdev "$3"
	wait_gid "$1" "$4"
}

# loop_down DEVICE: takes down the parts of the wire that are there. The disk's module goes with its last user.
loop_down()
{
	link_delete "$1"
	[ ! -e /sys/class/net/nv0 ] || ip link delete nv0
}

mount_configfs()
{
	mountpoint -q /sys/kernel/config || mount -t configfs none /sys/kernel/config
}
