# SPDX-License-Identifier: GPL-2.0
# shellcheck shell=bash
#
# A narrow network that marks packets (RED or fq_codel with ECN), for programs that source it after net.sh.

# For setup().
load_narrow()
{
	modprobe -a ifb sch_ingress sch_red sch_tbf act_mirred cls_matchall
}

# narrow NAMESPACE [QUEUE]: packets on their way into it pass a queue that is emptied at 200 Mbit/s,
# until the test ends.  RED marks packets from 40 KB on, fq_codel those that wait for longer than 1 ms.
# Those that may not be marked are dropped instead.  The sender is not told: rdma_rxe fails if its own
# queue drops a packet.
narrow()
{
	local words=(red limit 1m min 40k max 400k avpkt 4k burst 20 probability 1 bandwidth 200mbit ecn)
	narrowed=$1 narrow_queue=${2-red}
	[ "$narrow_queue" = red ] || words=(fq_codel limit 1000 target 1ms interval 10ms ecn)
	trap widen EXIT
	# The queue is to see packets, not trains of them.
	in_a ethtool -K eth0 tx-udp-segmentation off
	in_b ethtool -K eth0 tx-udp-segmentation off
	ip -n "$narrowed" link add narrow0 mtu 9000 type ifb
	ip -n "$narrowed" link set narrow0 up
	tc -n "$narrowed" qdisc add dev narrow0 root handle 1: tbf rate 200mbit burst 40k limit 2m
	tc -n "$narrowed" qdisc add dev narrow0 parent 1: handle 2: "${words[@]}"
	tc -n "$narrowed" qdisc add dev eth0 ingress
	tc -n "$narrowed" filter add dev eth0 ingress matchall action mirred egress redirect dev narrow0
}

widen()
{
	tc -n "$narrowed" qdisc delete dev eth0 ingress
	ip -n "$narrowed" link delete narrow0
	in_a ethtool -K eth0 tx-udp-segmentation on
	in_b ethtool -K eth0 tx-udp-segmentation on
}

show_queue()
{
	tc -n "$narrowed" -s qdisc show dev narrow0 handle 2:
}

# queue_count marked|early: prints how many packets the queue has marked, or dropped though it was not full.
queue_count()
{
	local field
	case $narrow_queue:$1 in
	red:*) field=$1 ;;
	*:marked) field=ecn_mark ;;
	*) field=dropped ;;
	esac
	show_queue | sed -n "s/.*\b$field \([0-9]*\).*/\1/p"
}
