# SPDX-License-Identifier: GPL-2.0
# shellcheck shell=bash
#
# iSER from a device to itself: the kernel's target, open-iscsi's initiator, and the disk of loop.sh.
# Source it after loop.sh.

# shellcheck source=selftests/lib/lio.sh
. "${BASH_SOURCE[0]%/*}/lio.sh"

ISER_IQN=iqn.2026-01.test:disk
ISER_PORTAL=$LOOP_ADDRESS:3260

iser_up()
{
	local group=$LIO_TARGET/iscsi/$ISER_IQN/tpgt_1 name
	needs_irq_poll
	lio_disk_up
	modprobe -a iscsi_target_mod ib_isert ib_iser
	mkdir -p "$LIO_TARGET/iscsi"
	mkdir -p "$group/lun/lun_0" "$group/np/$ISER_PORTAL"
	ln -s "$LIO_DISK" "$group/lun/lun_0/disk"
	echo 1 >"$group/np/$ISER_PORTAL/iser"
	for name in authentication=0 generate_node_acls=1 cache_dynamic_acls=1 demo_mode_write_protect=0; do
		echo "${name#*=}" >"$group/attrib/${name%=*}"
	done
	echo 1 >"$group/enable"
	mkdir -p /etc/iscsi /run/lock/iscsi
	echo "InitiatorName=iqn.2026-01.test:host" >/etc/iscsi/initiatorname.iscsi
	pgrep -x iscsid >/dev/null || iscsid
}

# Takes down the parts of iser_up that are there.
iser_down()
{
	local target=$LIO_TARGET/iscsi/$ISER_IQN
	local group=$target/tpgt_1
	pkill -x iscsid || true
	[ -d "$LIO_TARGET" ] || return 0
	[ ! -d "$group" ] || echo 0 >"$group/enable"
	rm -f "$group/lun/lun_0/disk"
	[ ! -d "$group" ] || rmdir "$group/lun/lun_0" "$group/np/$ISER_PORTAL" "$group"
	[ ! -d "$target" ] || rmdir "$target"
	lio_disk_down
}

# The target has to be told that its device is there again.
iser_portal_again()
{
	local portal=$LIO_TARGET/iscsi/$ISER_IQN/tpgt_1/np/$ISER_PORTAL
	echo 0 >"$portal/iser"
	echo 1 >"$portal/iser"
}

# iser_target_is ENABLED: 1 or 0. Without it there is neither a login nor a session.
iser_target_is()
{
	echo "$1" >"$LIO_TARGET/iscsi/$ISER_IQN/tpgt_1/enable"
}

iser_login()
{
	local node=(iscsiadm -m node -T "$ISER_IQN" -p "$ISER_PORTAL")
	"${node[@]}" -I iser -o new
	"${node[@]}" --login
	wait_for 20 lio_session_disk >/dev/null
}

iser_logout()
{
	iscsiadm -m node -T "$ISER_IQN" -p "$ISER_PORTAL" --logout
}
