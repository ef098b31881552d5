# SPDX-License-Identifier: GPL-2.0
# shellcheck shell=bash
#
# Measures the kernel memory in use, and its growth.  Source it after traffic.sh.
# shellcheck disable=SC2154 # ktap.sh has ktap_tmp

# The caches that a driver's objects come from: not those of files and processes, which come and go
# with the test itself.
CACHES='^(kmalloc|skbuff|ip_dst|rt6|ip6_dst|vmap|UDP|net_name|iommu|pool_work|xarray)'

# Prints their objects in use.
slab_in_use()
{
	local cache
	# The kernel keeps unmapped address space until there is much of it, or a module goes.
	modprobe dummy numdummies=0
	modprobe -r dummy
	# Frees the objects that CPUs keep for themselves, and those in KASAN's quarantine.
	while read -r cache; do
		[ ! -e "/sys/kernel/slab/$cache" ] || echo 1 >"/sys/kernel/slab/$cache/shrink"
	done < <(awk -v caches="$CACHES" '$1 ~ caches { print $1 }' /proc/slabinfo)
	awk -v caches="$CACHES" '$1 ~ caches { print $1, $2 }' /proc/slabinfo | sort
}

# How many references to netdevs and namespaces, given up already, a kernel that looks for mistakes
# (NET_DEV_REFCNT_TRACKER) may remember: 128 of each.
remembered_references()
{
	local each
	each=$(find /sys/kernel/debug/ref_tracker -type f 2>/dev/null | wc -l)
	echo $((each * 128))
}

# slab_growth BEFORE AFTER LIMIT: prints the caches that have so many objects more in use.
slab_growth()
{
	join "$1" "$2" | awk -v limit="$3" -v remembered="$(remembered_references)" '
		{ most = limit + ($1 == "kmalloc-32" ? remembered : 0) }
		$3 - $2 >= most { print $1, $2, "->", $3 }'
}

vmalloc_areas()
{
	grep -c "$MODULE" /proc/vmallocinfo || true
}

memory_kb()
{
	awk -v key="$1:" '$1 == key { print $2 }' /proc/meminfo
}

# Notes the memory in use now.
note_memory()
{
	slab_in_use >"$ktap_tmp/slab.before"
	vmalloc_areas >"$ktap_tmp/areas"
	memory_kb Percpu >"$ktap_tmp/percpu"
}

# no_growth LIMIT: no cache has so many objects more in use than was noted.
no_growth()
{
	local growth
	slab_in_use >"$ktap_tmp/slab.after"
	growth=$(slab_growth "$ktap_tmp/slab.before" "$ktap_tmp/slab.after" "$1")
	echo "$growth"
	[ -z "$growth" ]
}

# no_more_areas KB: no more of the address space is used, and at most KB more for each CPU.
no_more_areas()
{
	local areas percpu
	areas=$(<"$ktap_tmp/areas") percpu=$(<"$ktap_tmp/percpu")
	echo "vmalloc areas: $areas, then $(vmalloc_areas)"
	[ "$(vmalloc_areas)" -le "$areas" ]
	echo "per CPU: $percpu kB, then $(memory_kb Percpu) kB"
	[ "$(memory_kb Percpu)" -lt $((percpu + $1)) ]
}
