// SPDX-License-Identifier: GPL-2.0
/* Ends, pairs of them, and requests that are waited for. */

#include <linux/etherdevice.h>
#include <linux/slab.h>
#include <rdma/ib_cache.h>

#include "kverbs_test.h"

#define WAIT_MS 20000

static void on_event(struct ib_event *event, void *context)
{
	struct end *end = context;

	set_bit(event->event, &end->events);
	complete(&end->event);
}

bool event_seen(struct end *end, enum ib_event_type type)
{
	unsigned long deadline = jiffies + msecs_to_jiffies(WAIT_MS);

	while (!test_bit(type, &end->events)) {
		if (time_after(jiffies, deadline))
			return false;
		wait_for_completion_timeout(&end->event, HZ / 10);
	}
	return true;
}

/* Our GID: the first of RoCEv2 that is an IPv4 address. */
static int find_gid(struct end *end)
{
	int length = end->dev->port_data[1].immutable.gid_tbl_len;
	struct net_device *netdev;
	int index;

	for (index = 0; index < length; index++) {
		const struct ib_gid_attr *gid = rdma_get_gid_attr(end->dev, 1, index);

		if (IS_ERR(gid))
			continue;
		if (gid->gid_type == IB_GID_TYPE_ROCE_UDP_ENCAP &&
		    ipv6_addr_v4mapped((struct in6_addr *)&gid->gid)) {
			end->gid = gid;
			break;
		}
		rdma_put_gid_attr(gid);
	}
	if (!end->gid)
		return fail("%s has no GID of an IPv4 address", dev_name(&end->dev->dev));
	rcu_read_lock();
	netdev = rdma_read_gid_attr_ndev_rcu(end->gid);
	if (!IS_ERR(netdev))
		ether_addr_copy(end->mac, netdev->dev_addr);
	rcu_read_unlock();
	return 0;
}

static int create_qp(struct end *end, const struct wish *wish)
{
	u32 depth = wish->depth ?: QUEUE_DEPTH;
	struct ib_qp_init_attr init = {
		.event_handler = on_event,
		.qp_context = end,
		.send_cq = end->cq,
		.recv_cq = end->cq,
		.srq = end->srq,
		.cap = {
			.max_send_wr = depth,
			.max_recv_wr = depth,
			.max_send_sge = MAX_SGES,
			.max_recv_sge = MAX_SGES,
			.max_inline_data = INLINE_BYTES,
		},
		.sq_sig_type = IB_SIGNAL_REQ_WR,
		.qp_type = wish->type,
		.port_num = 1,
	};
	struct ib_qp *qp = ib_create_qp(end->pd, &init);

	if (IS_ERR(qp))
		return fail("no queue pair: %pe", qp);
	end->qp = qp;
	return 0;
}

int end_open(struct end *end, struct ib_device *dev, enum ib_poll_context context,
	     const struct wish *wish)
{
	struct ib_pd *pd = ib_alloc_pd(dev, 0);

	if (IS_ERR(pd))
		return fail("no protection domain: %pe", pd);
	return end_open_in(end, dev, context, wish, pd);
}

int end_open_in(struct end *end, struct ib_device *dev, enum ib_poll_context context,
		const struct wish *wish, struct ib_pd *pd)
{
	memset(end, 0, sizeof(*end));
	end->pd = pd;
	end->dev = dev;
	end->context = context;
	init_completion(&end->event);
	check(find_gid(end));
	end->buffer = kmalloc(BUFFER_BYTES, GFP_KERNEL | __GFP_ZERO);
	if (!end->buffer)
		return fail("no memory");
	end->dma = ib_dma_map_single(dev, end->buffer, BUFFER_BYTES, DMA_BIDIRECTIONAL);
	end->cq = ib_alloc_cq(dev, end, 4 * QUEUE_DEPTH, 0, context);
	if (IS_ERR(end->cq))
		return fail("no completion queue: %pe", end->cq);
	if (wish->shared_receives) {
		struct ib_srq_init_attr init = {
			.event_handler = on_event,
			.srq_context = end,
			.attr = { .max_wr = QUEUE_DEPTH, .max_sge = MAX_SGES },
			.srq_type = IB_SRQT_BASIC,
		};

		end->srq = ib_create_srq(end->pd, &init);
		if (IS_ERR(end->srq))
			return fail("no shared receive queue: %pe", end->srq);
	}
	return create_qp(end, wish);
}

void end_close(struct end *end)
{
	if (!IS_ERR_OR_NULL(end->qp))
		ib_destroy_qp(end->qp);
	if (!IS_ERR_OR_NULL(end->srq))
		ib_destroy_srq(end->srq);
	if (!IS_ERR_OR_NULL(end->cq))
		ib_free_cq(end->cq);
	if (!IS_ERR_OR_NULL(end->pd))
		ib_dealloc_pd(end->pd);
	kfree(end->buffer);
	if (end->gid)
		rdma_put_gid_attr(end->gid);
	memset(end, 0, sizeof(*end));
}

int address_of(const struct end *end, const struct end *peer, struct rdma_ah_attr *attr)
{
	union ib_gid dgid = peer->gid->gid;

	memset(attr, 0, sizeof(*attr));
	attr->type = rdma_ah_find_type(end->dev, 1);
	rdma_ah_set_port_num(attr, 1);
	rdma_ah_set_grh(attr, &dgid, 0, end->gid->index, 64, 0);
	ether_addr_copy(attr->roce.dmac, peer->mac);
	return 0;
}

static const int remote_access = IB_ACCESS_LOCAL_WRITE | IB_ACCESS_REMOTE_WRITE |
				 IB_ACCESS_REMOTE_READ | IB_ACCESS_REMOTE_ATOMIC;

int end_modify(struct end *end, enum ib_qp_state state, const struct end *peer)
{
	enum ib_qp_type type = end->qp->qp_type;
	struct ib_qp_attr attr = { .qp_state = state };
	int mask = IB_QP_STATE, error;

	switch (state) {
	case IB_QPS_INIT:
		attr.port_num = 1;
		mask |= IB_QP_PKEY_INDEX | IB_QP_PORT;
		if (type == IB_QPT_UD) {
			attr.qkey = QKEY;
			mask |= IB_QP_QKEY;
		} else {
			attr.qp_access_flags = remote_access;
			mask |= IB_QP_ACCESS_FLAGS;
		}
		break;
	case IB_QPS_RTR:
		if (type == IB_QPT_UD)
			break;
		check(address_of(end, peer, &attr.ah_attr));
		attr.path_mtu = IB_MTU_1024;
		attr.dest_qp_num = peer->qp->qp_num;
		attr.rq_psn = 7;
		attr.max_dest_rd_atomic = 4;
		attr.min_rnr_timer = 1;
		mask |= IB_QP_AV | IB_QP_PATH_MTU | IB_QP_DEST_QPN | IB_QP_RQ_PSN;
		if (type == IB_QPT_RC)
			mask |= IB_QP_MAX_DEST_RD_ATOMIC | IB_QP_MIN_RNR_TIMER;
		break;
	case IB_QPS_RTS:
		attr.sq_psn = 7;
		mask |= IB_QP_SQ_PSN;
		if (type != IB_QPT_RC)
			break;
		attr.timeout = 14;
		attr.retry_cnt = 7;
		attr.rnr_retry = 7;
		attr.max_rd_atomic = 4;
		mask |= IB_QP_TIMEOUT | IB_QP_RETRY_CNT | IB_QP_RNR_RETRY | IB_QP_MAX_QP_RD_ATOMIC;
		break;
	default:
		break;
	}
	error = ib_modify_qp(end->qp, &attr, mask);
	return error ? fail("to state %d: %d", state, error) : 0;
}

int pair_connect(struct pair *pair)
{
	static const enum ib_qp_state states[] = { IB_QPS_INIT, IB_QPS_RTR, IB_QPS_RTS };
	int i;

	for (i = 0; i < ARRAY_SIZE(states); i++) {
		check(end_modify(&pair->a, states[i], &pair->b));
		check(end_modify(&pair->b, states[i], &pair->a));
	}
	return 0;
}

static void on_completion(struct ib_cq *cq, struct ib_wc *wc)
{
	struct request *request = container_of(wc->wr_cqe, struct request, cqe);

	request->wc = *wc;
	if (request->then)
		request->then(request);
	atomic_inc(&request->completions);
	complete(&request->done);
}

void request_init(struct request *request, struct end *end)
{
	memset(request, 0, sizeof(*request));
	request->cqe.done = on_completion;
	request->end = end;
	init_completion(&request->done);
}

int request_wait(struct request *request)
{
	struct end *end = request->end;
	unsigned long deadline = jiffies + msecs_to_jiffies(WAIT_MS);

	if (end->context != IB_POLL_DIRECT) {
		if (!wait_for_completion_timeout(&request->done, msecs_to_jiffies(WAIT_MS)))
			return fail("nothing completes");
		return 0;
	}
	while (!try_wait_for_completion(&request->done)) {
		if (time_after(jiffies, deadline))
			return fail("nothing completes");
		if (!ib_process_cq_direct(end->cq, -1))
			usleep_range(50, 100);
	}
	return 0;
}

int request_wait_status(struct request *request, enum ib_wc_status status)
{
	check(request_wait(request));
	if (request->wc.status != status)
		return fail("completes with \"%s\", not \"%s\"",
			    ib_wc_status_msg(request->wc.status), ib_wc_status_msg(status));
	if (request->wc.qp != request->end->qp)
		return fail("completes with another queue pair");
	return 0;
}

int request_once(struct request *request)
{
	if (request->end->context == IB_POLL_DIRECT)
		ib_process_cq_direct(request->end->cq, -1);
	else
		msleep(20);
	expect_eq(atomic_read(&request->completions), 1);
	return 0;
}

int request_wait_none(struct request *request)
{
	if (request->end->context == IB_POLL_DIRECT)
		ib_process_cq_direct(request->end->cq, -1);
	else
		msleep(20);
	expect_eq(atomic_read(&request->completions), 0);
	return 0;
}

struct ib_sge sge_of(const struct end *end, u32 offset, u32 length)
{
	return (struct ib_sge){
		.addr = end->dma + offset,
		.length = length,
		.lkey = end->pd->local_dma_lkey,
	};
}

int post_recv(struct request *request, u32 offset, u32 length)
{
	struct ib_sge sge = sge_of(request->end, offset, length);
	struct ib_recv_wr wr = { .wr_cqe = &request->cqe, .sg_list = &sge, .num_sge = 1 };
	int error;

	if (request->end->srq)
		error = ib_post_srq_recv(request->end->srq, &wr, NULL);
	else
		error = ib_post_recv(request->end->qp, &wr, NULL);
	return error ? fail("receive not posted: %d", error) : 0;
}

int post_send(struct request *request, u32 offset, u32 length)
{
	struct ib_sge sge = sge_of(request->end, offset, length);
	struct ib_send_wr wr = {
		.wr_cqe = &request->cqe,
		.sg_list = &sge,
		.num_sge = 1,
		.opcode = IB_WR_SEND,
		.send_flags = IB_SEND_SIGNALED,
	};
	int error = ib_post_send(request->end->qp, &wr, NULL);

	return error ? fail("send not posted: %d", error) : 0;
}

void fill(u8 *bytes, u32 length, u32 seed)
{
	u32 i;

	for (i = 0; i < length; i++)
		bytes[i] = pattern(i, seed);
}

bool filled(const u8 *bytes, u32 length, u32 seed)
{
	u32 i;

	for (i = 0; i < length; i++) {
		if (bytes[i] != pattern(i, seed)) {
			fail("byte %u of %u is %#x", i, length, bytes[i]);
			return false;
		}
	}
	return true;
}
