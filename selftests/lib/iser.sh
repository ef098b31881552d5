# SPDX-License-Identifier: GPL-2.0
# shellcheck shell=bash
#
# iSER from a device to itself: the kernel's target, open-iscsi's initiator, and the disk of loop.sh.
# Source it after loop.sh.

ISER_TARGET=/sys/kernel/config/target
ISER_IQN=iqn.2026-01.test:disk
ISER_PORTAL=$LOOP_ADDRESS:3260

iser_up()
{
	local core=$ISER_TARGET/core/iblock_0/disk group=$ISER_TARGET/iscsi/$ISER_IQN/tpgt_1 name
	modprobe -a sd_mod target_core_mod target_core_iblock iscsi_target_mod ib_isert ib_iser
	mount_configfs
	mkdir -p "$core"
	echo "udev_path=$LOOP_DISK" >"$core/control"
	echo 1 >"$core/enable"
	mkdir -p "$ISER_TARGET/iscsi"
	mkdir -p "$group/lun/lun_0" "$group/np/$ISER_PORTAL"
	ln -s "$core" "$group/lun/lun_0/disk"
	echo 1 >"$group/np/$ISER_PORTAL/iser"
	for name in authentication=0 generate_node_acls=1 cache_dynamic_acls=1 demo_mode_write_protect=0; do
		echo "${name#*=}" >"$group/attrib/${name%=*}"
	done
	echo 1 >"$group/enable"
	mkdir -p /etc/iscsi /run/lock/iscsi
	echo "InitiatorName=iqn.2026-01.test:host" >/etc/iscsi/initiatorname.iscsi
	pgrep -x iscsid >/dev/null || iscsid
}

# Takes down whatever of iser_up is there.
iser_down()
{
	local core=$ISER_TARGET/core/iblock_0/disk target=$ISER_TARGET/iscsi/$ISER_IQN
	local group=$target/tpgt_1
	pkill -x iscsid || true
	[ -d "$ISER_TARGET" ] || return 0
	[ ! -d "$group" ] || echo 0 >"$group/enable"
	rm -f "$group/lun/lun_0/disk"
	[ ! -d "$group" ] || rmdir "$group/lun/lun_0" "$group/np/$ISER_PORTAL" "$group"
	[ ! -d "$target" ] || rmdir "$target"
	[ ! -d "$core" ] || rmdir "$core" "${core%/*}"
}

iser_login()
{
	local node=(iscsiadm -m node -T "$ISER_IQN" -p "$ISER_PORTAL")
	"${node[@]}" -I iser -o new
	"${node[@]}" --login
	wait_for 20 iser_disk >/dev/null
}

iser_logout()
{
	iscsiadm -m node -T "$ISER_IQN" -p "$ISER_PORTAL" --logout
}

# The block device of the session.
iser_disk()
{
	local block
	for block in /sys/block/sd*; do
		grep -q LIO-ORG "$block/device/vendor" 2>/dev/null || continue
		echo "/dev/${block##*/}"
		return
	done
	return 1
}
