# SPDX-License-Identifier: GPL-2.0
# shellcheck shell=bash
#
# NFS over RDMA, from one end of a wire to the other: each namespace has a server of its own, the
# kernel's, with a file system in memory.  Source it after net.sh. NFS_VERSION=3 is the other version
# that there is, beside 4.2.

NFS_PORT=20049

# nfs_serve NAMESPACE DIRECTORY: serves it until nfs_end.
nfs_serve()
{
	modprobe -a nfsd rpcrdma nfsv4 nfsv3
	mkdir -p "$2"
	mount -t tmpfs -o size=512m none "$2"
	# The reader of the test's output need not wait for it.
	# shellcheck disable=SC2154 # ktap.sh has it
	ip netns exec "$1" bash -c "$(declare -f nfs_server until_so); nfs_server $2 $NFS_PORT ${NFS_VERSION:-4.2}" \
		>"$2.log" 2>&1 </dev/null {ktap_stdout}>&- &
	echo $! >"$2.pid"
	wait_for 30 nfs_is_served "$1" && return
	cat "$2.log"
	echo "nobody serves NFS"
	return 1
}

# nfs_server DIRECTORY PORT VERSION: runs in its namespace, where its mounts are private. NFS 4 does
# not need rpcbind. With nfsdcld, which knows no earlier clients, the server
# waits for none.
nfs_server()
{
	local state=/var/lib/nfs pids=''
	set -eu
	mount -t tmpfs none $state
	mkdir $state/rpc_pipefs $state/nfsdcld
	touch $state/etab $state/rmtab
	mount -t rpc_pipefs none $state/rpc_pipefs
	mount -t nfsd nfsd /proc/fs/nfsd
	exportfs -o rw,insecure,no_root_squash,fsid=0,async "*:$1"
	nfsdcld --foreground --pipefsdir=$state/rpc_pipefs --storagedir=$state/nfsdcld &
	pids=$!
	if [ "$3" = 3 ]; then
		mount -t tmpfs none /run
		rpcbind -f -w &
		pids="$pids $!"
		until_so rpcinfo -p
		rpc.mountd --foreground &
		pids="$pids $!"
		until_so rpcinfo -t 127.0.0.1 mountd 3
		rpc.nfsd --rdma="$2" 8
	else
		rpc.mountd --no-nfs-version 3 --foreground &
		pids="$pids $!"
		rpc.nfsd --no-udp --no-nfs-version 3 --rdma="$2" 8
	fi
	# shellcheck disable=SC2064 # the processes of now
	trap "rpc.nfsd 0; kill $pids" TERM
	wait || true
}

# until_so COMMAND...: for ten seconds at most.
until_so()
{
	local left=100
	until "$@" >/dev/null 2>&1; do
		[ $((left--)) -gt 0 ] || return 1
		sleep 0.1
	done
}

nfs_is_served()
{
	ip netns exec "$1" rdma resource show cm_id | grep -q "LISTEN.*:$NFS_PORT"
}

# nfs_server_process DIRECTORY: that has the server's namespaces.
nfs_server_process()
{
	cat "$1.pid"
}

# nfs_end DIRECTORY
nfs_end()
{
	local pid
	pid=$(nfs_server_process "$1")
	kill "$pid" || true
	timeout 30 tail --pid="$pid" -f /dev/null
	umount "$1"
}

# nfs_stop NAMESPACE: the kernel's threads, which outlive a killed server.
nfs_stop()
{
	! nfs_is_served "$1" || ip netns exec "$1" sh -c "mount -t nfsd nfsd /proc/fs/nfsd && rpc.nfsd 0"
}

# nfs_mount NAMESPACE ADDRESS DIRECTORY SERVED: seen by everybody, though it is this namespace's.
nfs_mount()
{
	local path="$2:/" options="proto=rdma,port=$NFS_PORT,soft,timeo=100"
	mkdir -p "$3"
	if [ "${NFS_VERSION:-4.2}" = 3 ]; then
		path="$2:$4"
		options+=",vers=3,nolock,mountproto=tcp"
	else
		options+=",vers=4.2,clientaddr=$ADDR4_A"
	fi
	nsenter --net="/run/netns/$1" mount -t nfs -o "$options" "$path" "$3"
	grep -q " $3 nfs4* .*proto=rdma" /proc/mounts
}
