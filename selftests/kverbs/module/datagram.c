// SPDX-License-Identifier: GPL-2.0
/* Datagrams, and address handles. */

#include <linux/slab.h>
#include <rdma/ib_cache.h>
#include <rdma/ib_pack.h>

#include "kverbs_test.h"

#define GRH 40

static struct ib_ah *new_ah(const struct end *end, const struct end *peer, u32 flags)
{
	struct rdma_ah_attr attr;

	address_of(end, peer, &attr);
	return rdma_create_ah(end->pd, &attr, flags);
}

static int send_by(struct request *send, struct ib_ah *ah, u32 qpn, u32 offset, u32 length,
		   bool with_imm)
{
	struct ib_sge sge = sge_of(send->end, offset, length);
	struct ib_ud_wr wr = {
		.wr = {
			.wr_cqe = &send->cqe,
			.sg_list = &sge,
			.num_sge = 1,
			.opcode = with_imm ? IB_WR_SEND_WITH_IMM : IB_WR_SEND,
			.send_flags = IB_SEND_SIGNALED,
			.ex.imm_data = cpu_to_be32(0x01020304),
		},
		.ah = ah,
		.remote_qpn = qpn,
		.remote_qkey = QKEY,
	};

	return ib_post_send(send->end->qp, &wr.wr, NULL);
}

static int arrives(struct request *recv, struct end *from, u32 offset, u32 length, u32 seed)
{
	struct end *end = recv->end;
	union rdma_network_hdr *header = (void *)(end->buffer + offset);
	struct rdma_ah_attr attr;
	struct ib_ah *ah;

	check(request_wait_status(recv, IB_WC_SUCCESS));
	expect_eq(recv->wc.opcode, IB_WC_RECV);
	expect_eq(recv->wc.byte_len, GRH + length);
	expect_eq(recv->wc.src_qp, from->qp->qp_num);
	expect_eq(recv->wc.pkey_index, 0);
	expect_eq(recv->wc.port_num, 1);
	expect(recv->wc.wc_flags & IB_WC_GRH);
	expect(recv->wc.wc_flags & IB_WC_WITH_NETWORK_HDR_TYPE);
	expect(!(recv->wc.wc_flags & IB_WC_WITH_VLAN));
	expect_eq(recv->wc.network_hdr_type, RDMA_NETWORK_IPV4);
	expect_eq(header->roce4grh.saddr, *(__be32 *)(from->gid->gid.raw + 12));
	expect_eq(header->roce4grh.daddr, *(__be32 *)(end->gid->gid.raw + 12));
	if (!filled(end->buffer + offset + GRH, length, seed))
		return -EINVAL;
	/* What an answer is sent by. */
	ah = ib_create_ah_from_wc(end->pd, &recv->wc, (void *)(end->buffer + offset), 1);
	if (IS_ERR(ah))
		return fail("no address handle from a completion: %pe", ah);
	check(rdma_query_ah(ah, &attr));
	if (memcmp(rdma_ah_read_grh(&attr)->dgid.raw, from->gid->gid.raw, 16))
		return fail("it leads elsewhere");
	rdma_destroy_ah(ah, RDMA_DESTROY_AH_SLEEPABLE);
	return 0;
}

static int exchange(struct pair *pair, bool with_imm)
{
	static const u32 lengths[] = { 0, 1, 3, 256, 1000, 1024 };
	struct ib_ah *ah = new_ah(&pair->a, &pair->b, RDMA_CREATE_AH_SLEEPABLE);
	struct request send, recv;
	int i, error = 0;

	if (IS_ERR(ah))
		return fail("no address handle: %pe", ah);
	for (i = 0; i < ARRAY_SIZE(lengths) && !error; i++) {
		fill(pair->a.buffer, lengths[i], i);
		request_init(&send, &pair->a);
		request_init(&recv, &pair->b);
		error = post_recv(&recv, 0x8000, 2048);
		if (!error)
			error = send_by(&send, ah, pair->b.qp->qp_num, 0, lengths[i], with_imm);
		if (!error)
			error = request_wait_status(&send, IB_WC_SUCCESS);
		if (!error)
			error = arrives(&recv, &pair->a, 0x8000, lengths[i], i);
		if (!error && with_imm && recv.wc.ex.imm_data != cpu_to_be32(0x01020304))
			error = fail("other immediate data");
		if (!error && !!(recv.wc.wc_flags & IB_WC_WITH_IMM) != with_imm)
			error = fail("immediate data or none");
	}
	rdma_destroy_ah(ah, RDMA_DESTROY_AH_SLEEPABLE);
	return error;
}

static int send(struct pair *pair)
{
	return exchange(pair, false);
}

static int send_imm(struct pair *pair)
{
	return exchange(pair, true);
}

/* An address handle that is made, used and gone under a lock with interrupts disabled, as ib_cm has it. */
static int atomic(struct pair *pair)
{
	static DEFINE_SPINLOCK(lock);
	struct request send, recv;
	struct rdma_ah_attr attr;
	unsigned long flags;
	struct ib_ah *ah;
	int i;

	for (i = 0; i < 20; i++) {
		int error;

		fill(pair->a.buffer, 100, i);
		request_init(&send, &pair->a);
		request_init(&recv, &pair->b);
		check(post_recv(&recv, 0x8000, 2048));
		spin_lock_irqsave(&lock, flags);
		ah = new_ah(&pair->a, &pair->b, 0);
		error = IS_ERR(ah) ? PTR_ERR(ah) : rdma_query_ah(ah, &attr);
		if (!error)
			error = send_by(&send, ah, pair->b.qp->qp_num, 0, 100, false);
		if (!IS_ERR(ah))
			rdma_destroy_ah(ah, 0);
		spin_unlock_irqrestore(&lock, flags);
		expect_eq(error, 0);
		check(request_wait_status(&send, IB_WC_SUCCESS));
		check(arrives(&recv, &pair->a, 0x8000, 100, i));
	}
	return 0;
}

/* What is refused, when it is posted. */
static int refused(struct pair *pair)
{
	struct ib_pd *other = ib_alloc_pd(pair->a.dev, 0);
	struct rdma_ah_attr attr;
	struct request send;
	struct ib_ah *ah;
	int error;

	expect(!IS_ERR(other));
	request_init(&send, &pair->a);
	address_of(&pair->a, &pair->b, &attr);
	ah = rdma_create_ah(other, &attr, RDMA_CREATE_AH_SLEEPABLE);
	expect(!IS_ERR(ah));
	error = send_by(&send, ah, pair->b.qp->qp_num, 0, 10, false);
	rdma_destroy_ah(ah, RDMA_DESTROY_AH_SLEEPABLE);
	ib_dealloc_pd(other);
	expect_eq(error, -EINVAL);
	expect_eq(send_by(&send, NULL, pair->b.qp->qp_num, 0, 10, false), -EINVAL);
	expect_eq(atomic_read(&send.completions), 0);
	return 0;
}

/* A datagram with a bad lkey stops the send queue, which goes on when it is told to. */
static int bad_lkey(struct pair *pair)
{
	struct ib_ah *ah = new_ah(&pair->a, &pair->b, RDMA_CREATE_AH_SLEEPABLE);
	struct ib_sge sge = sge_of(&pair->a, 0, 10);
	struct request send;
	struct ib_ud_wr wr = {
		.wr = {
			.wr_cqe = &send.cqe,
			.sg_list = &sge,
			.num_sge = 1,
			.opcode = IB_WR_SEND,
			.send_flags = IB_SEND_SIGNALED,
		},
		.ah = ah,
		.remote_qpn = pair->b.qp->qp_num,
		.remote_qkey = QKEY,
	};

	expect(!IS_ERR(ah));
	request_init(&send, &pair->a);
	sge.lkey ^= 0x12300;
	expect_eq(ib_post_send(pair->a.qp, &wr.wr, NULL), 0);
	check(request_wait_status(&send, IB_WC_LOC_PROT_ERR));
	rdma_destroy_ah(ah, RDMA_DESTROY_AH_SLEEPABLE);
	return 0;
}

static int drain(struct pair *pair)
{
	struct request recvs[5];
	int i;

	for (i = 0; i < ARRAY_SIZE(recvs); i++) {
		request_init(&recvs[i], &pair->a);
		check(post_recv(&recvs[i], i * 0x1000, 0x1000));
	}
	ib_drain_qp(pair->a.qp);
	for (i = 0; i < ARRAY_SIZE(recvs); i++) {
		check(request_wait_status(&recvs[i], IB_WC_WR_FLUSH_ERR));
		check(request_once(&recvs[i]));
	}
	return 0;
}

#define UD { .type = IB_QPT_UD }

const struct test datagram_tests[] = {
	{ "ud_send", send, UD },
	{ "ud_send_imm", send_imm, UD },
	{ "ud_atomic_context", atomic, UD },
	{ "ud_refused", refused, UD },
	{ "ud_bad_lkey", bad_lkey, UD },
	{ "ud_drain", drain, UD },
	{ "ud_shared_receives", send, { .type = IB_QPT_UD, .shared_receives = true } },
	{},
};
