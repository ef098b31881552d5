# SPDX-License-Identifier: GPL-2.0
# shellcheck shell=bash
#
# The tests of any MPI, with consumers/mpi. Source it after net.sh.

# shellcheck source=selftests/consumers/consumers.sh
. "${BASH_SOURCE[0]%/*}/consumers.sh"

MPIRUN=${BASH_SOURCE[0]%/*}/mpirun

# by_mpirun OVER RANKS PROGRAM...
by_mpirun()
{
	client=(env "MPI_OVER=$1" "MPI_RANKS=$2" "$MPIRUN" "a/$DEV_A" "b/$DEV_B" "${@:3}")
}

# The program as it is built with the MPI that has this way.
mpi_program()
{
	case $1 in
	mpich) echo "$KTAP_BIN/consumers/mpi.mpich" ;;
	*) echo "$KTAP_BIN/consumers/mpi" ;;
	esac
}

# mpi OVER RANKS TEST SIZE COUNT
mpi()
{
	by_mpirun "$1" "$2" "$(mpi_program "$1")" "${@:3}"
}

# under_load OVER DISTURBANCE...: the job ends in time, and the next one works.
under_load()
{
	local server client load load_server stays port client_pid seen=0
	heal
	consumer mpi "$1" 2 alltoall 65536 1000000
	"${client[@]}" >"$ktap_tmp/client" 2>&1 &
	client_pid=$!
	wait_for 60 packets_flow || {
		cat "$ktap_tmp/client"
		return 1
	}
	"${@:2}"
	end_process "$client_pid"
	tail -n 5 "$ktap_tmp/client"
	heal
	wait_for 20 no_objects
	works mpi "$1" 2 alltoall 65536 10
}

a_rank_is_killed()
{
	kill -KILL "$(pgrep -f -n "consumers/mpi[.a-z]* alltoall")"
	client_notices
}

# mpi_messages HOW NAME OVER: messages of two and of more ranks, and their disturbances. HOW, ktap_test or
# ktap_more, decides whether a short run has them, or another MPI represents this one.
mpi_messages()
{
	ktap_test "$2, ping-pong" works mpi "$3" 2 latency 8 200
	ktap_more "$2, ping-pong of 1 MiB" works mpi "$3" 2 latency 1048576 20
	"$1" "$2, windows" works mpi "$3" 2 bandwidth 65536 100
	ktap_test "$2, alltoall, 4 ranks" works mpi "$3" 4 alltoall 20000 20
	ktap_more "$2, alltoall, 8 ranks" works mpi "$3" 8 alltoall 65536 10
	ktap_more "$2, a rank is killed" under_load "$3" a_rank_is_killed
	ktap_more "$2, the link goes down and up" under_load "$3" link_bounces
	ktap_more "$2, the link is deleted" under_load "$3" link_is_deleted
}

# mpi_windows HOW NAME OVER: one rank reads, writes and adds to another one's memory. HOW as above.
mpi_windows()
{
	ktap_test "$2, put, 4 ranks" works mpi "$3" 4 put 20000 20
	"$1" "$2, get, 4 ranks" works mpi "$3" 4 get 20000 20
	ktap_more "$2, put, 8 ranks" works mpi "$3" 8 put 3000 20
	"$1" "$2, a counter, 4 ranks" works mpi "$3" 4 count 8 50
}
