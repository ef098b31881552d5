# SPDX-License-Identifier: GPL-2.0
# shellcheck shell=bash
#
# Processes in a memory control group of their own, that make objects until they get no
# more.  Source it after traffic.sh.

CGROUPS=/tmp/ktap-cgroup
LIMIT=$((24 << 20))

cgroups_up()
{
	mkdir -p "$CGROUPS"
	mount -t cgroup2 none "$CGROUPS"
	echo "+memory +rdma" >"$CGROUPS/cgroup.subtree_control"
}

cgroups_down()
{
	if mountpoint -q "$CGROUPS"; then
		[ ! -d "$CGROUPS/hoard" ] || rmdir "$CGROUPS/hoard"
		umount "$CGROUPS"
	fi
	rmdir "$CGROUPS"
}

# Makes a group for the current test.
make_group()
{
	mkdir "$CGROUPS/hoard"
	trap 'rmdir "$CGROUPS/hoard"' EXIT
	echo "$LIMIT" >"$CGROUPS/hoard/memory.max"
}

# as_group COMMAND...: in that group.
as_group()
{
	# shellcheck disable=SC2016 # for the shell within
	sh -c 'echo $$ >"$0" && exec "$@"' "$CGROUPS/hoard/cgroup.procs" "$@"
}

# Prints the kernel memory of the group.
kernel_memory()
{
	awk '/^(SUnreclaim|VmallocUsed|Percpu):/ { kib += $2 } END { print kib }' /proc/meminfo
}

group_is_empty()
{
	local left
	left=$(<"$CGROUPS/hoard/memory.current")
	[ "$left" -lt $((4 << 20)) ]
}

kernel_has_it_back()
{
	[ "$(kernel_memory)" -lt $(($1 + 8192)) ]
}

# hoard KIND MOST [STATUS]: it gets an error, and not that many.
hoard()
{
	local before status=0
	before=$(kernel_memory)
	make_group
	as_group "$KTAP_BIN/manage/hoard" "$1" "$2" || status=$?
	echo "status $status, $(grep -w oom_kill "$CGROUPS/hoard/memory.events")"
	case $status in
	"${3:-0}") ;;
	137) [ "${3:-0}" -eq 0 ] && grep -q "oom_kill [1-9]" "$CGROUPS/hoard/memory.events" ;;
	*) ktap_fail "status $status" ;;
	esac
	no_objects_left
	wait_for 20 group_is_empty
	wait_for 20 kernel_has_it_back "$before"
	still_works
}

# For objects that are small, and few at most.
hoard_in_little()
{
	LIMIT=$((8 << 20))
	hoard "$@"
}
