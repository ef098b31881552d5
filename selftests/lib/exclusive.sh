# SPDX-License-Identifier: GPL-2.0
# shellcheck shell=bash
#
# The wire of net.sh where each network namespace has its devices for itself: rdma system set netns
# exclusive.  Source it after net.sh.

export -f gid_index gid_of

# gid_in NAMESPACE DEVICE ADDRESS: sysfs shows a device in its namespace alone.
gid_in()
{
	# shellcheck disable=SC2016 # for the shell within
	ip netns exec "$1" bash -c 'gid_index "$@"' _ "$2" "$3"
}

# has NAMESPACE DEVICE: the device is in it.
has()
{
	ip netns exec "$1" rdma link show "$2/1" >/dev/null 2>&1
}

exclusive_links_up()
{
	# Devices of a dying namespace may still have the names.
	wait_for 20 link_add a "$DEV_A" "$DRIVER_A"
	wait_for 20 link_add b "$DEV_B" "$DRIVER_B"
	wait_for 10 gid_in a "$DEV_A" "$ADDR4_A"
	wait_for 10 gid_in a "$DEV_A" "$ADDR6_A"
	wait_for 10 gid_in b "$DEV_B" "$ADDR4_B"
	wait_for 10 gid_in b "$DEV_B" "$ADDR6_B"
}

exclusive_up()
{
	load_drivers
	# Not possible while there are other namespaces.
	rdma system set netns exclusive
	wire_up
	exclusive_links_up
}

# The devices go with their namespaces, of which the kernel frees the names first.
exclusive_down()
{
	ip netns delete a
	ip netns delete b
	wait_for 20 rdma system set netns shared
	wait_for 20 no_device "$DEV_A"
	wait_for 20 no_device "$DEV_B"
}
