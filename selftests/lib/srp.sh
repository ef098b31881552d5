# SPDX-License-Identifier: GPL-2.0
# shellcheck shell=bash
#
# SRP over rdma_cm: the kernel's target on DEV_B, for which b has to be the first namespace (first_is), as
# it knows no other one; its initiator in a; and the disk of loop.sh.  Source it after net.sh.

# shellcheck source=selftests/lib/loop.sh
. "${BASH_SOURCE[0]%/*}/loop.sh"
# shellcheck source=selftests/lib/lio.sh
. "${BASH_SOURCE[0]%/*}/lio.sh"

SRP_TARGET=$LIO_TARGET/srpt
SRP_GUID=020000000000f00d
SRP_PORT=5010

# The initiator tries again each second, has requests wait for half a minute, and then gives up.
srp_up()
{
	needs_irq_poll
	loop_disk_up
	lio_disk_up
	modprobe ib_srpt srpt_service_guid=0x$SRP_GUID
	modprobe ib_srp reconnect_delay=1 fast_io_fail_tmo=30 dev_loss_tmo=40
	mkdir -p "$SRP_TARGET"
	echo $SRP_PORT >"$SRP_TARGET/discovery_auth/rdma_cm_port"
	srp_port_up
}

# Offers the disk on DEV_B. The name of a port is the second half of its first GID. Only named initiators
# may log in. By rdma_cm the target takes its own address for the initiator's name.
srp_port_up()
{
	local port group acl
	port=$(cut -d : -f 5- "/sys/class/infiniband/$DEV_B/ports/1/gids/0")
	group=$SRP_TARGET/$port/$port
	acl=$group/acls/$ADDR4_B
	mkdir -p "$group/lun/lun_0" "$acl/lun_0"
	ln -s "$LIO_DISK" "$group/lun/lun_0/disk"
	ln -s "$group/lun/lun_0" "$acl/lun_0/disk"
	echo 1 >"$group/enable"
}

# Also where the device is gone.
srp_port_down()
{
	local port group acl
	for port in "$SRP_TARGET"/*:*; do
		[ -d "$port" ] || continue
		group=$port/${port##*/}
		acl=$group/acls/$ADDR4_B
		echo 0 >"$group/enable"
		rm -f "$acl/lun_0/disk" "$group/lun/lun_0/disk"
		rmdir "$acl/lun_0" "$acl" "$group/lun/lun_0" "$group" "$port"
	done
}

# Takes down the parts of srp_up that are there.
srp_down()
{
	srp_port_down
	if [ -d "$SRP_TARGET" ]; then
		echo 0 >"$SRP_TARGET/discovery_auth/rdma_cm_port"
		rmdir "$SRP_TARGET"
	fi
	lio_disk_down
	wait_for 20 modprobe -r ib_srp ib_srpt target_core_iblock brd
}

srp_login()
{
	# In its namespace, by the first one's sysfs.
	nsenter --net=/run/netns/a sh -c "echo id_ext=$SRP_GUID,ioc_guid=$SRP_GUID,dest=$ADDR4_B:$SRP_PORT \
		>/sys/class/infiniband_srp/srp-$DEV_A-1/add_target"
	wait_for 20 lio_session_disk >/dev/null
}

srp_has_no_session()
{
	not lio_session_disk
}

srp_logout()
{
	local port
	for port in /sys/class/srp_remote_ports/port-*; do
		[ ! -e "$port" ] || echo 1 >"$port/delete"
	done
	wait_for 30 srp_has_no_session
}
