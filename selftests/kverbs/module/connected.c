// SPDX-License-Identifier: GPL-2.0
/* Connections: everything that is sent, and what is refused. */

#include <linux/slab.h>

#include "kverbs_test.h"

static int send(struct pair *pair)
{
	static const u32 lengths[] = { 0, 1, 1024, 1025, 65536 };
	struct request send, recv;
	int i;

	for (i = 0; i < ARRAY_SIZE(lengths); i++) {
		fill(pair->a.buffer, lengths[i], i);
		request_init(&send, &pair->a);
		request_init(&recv, &pair->b);
		check(post_recv(&recv, 0x10000, 0x10000));
		check(post_send(&send, 0, lengths[i]));
		check(request_wait_status(&send, IB_WC_SUCCESS));
		expect_eq(send.wc.opcode, IB_WC_SEND);
		check(request_wait_status(&recv, IB_WC_SUCCESS));
		expect_eq(recv.wc.opcode, IB_WC_RECV);
		expect_eq(recv.wc.byte_len, lengths[i]);
		expect_eq(recv.wc.wc_flags, 0);
		if (!filled(pair->b.buffer + 0x10000, lengths[i], i))
			return -EINVAL;
	}
	return 0;
}

/* Several elements on either side, an empty one among them. */
/* Rules: SEG-20 */
static int gather(struct pair *pair)
{
	struct request send, recv;
	struct ib_sge from[] = {
		sge_of(&pair->a, 0, 10),
		sge_of(&pair->a, 0x1000, 0),
		sge_of(&pair->a, 10, 2000),
		sge_of(&pair->a, 2010, 90),
	};
	struct ib_sge to[] = {
		sge_of(&pair->b, 0x8000, 1),
		sge_of(&pair->b, 0x8001, 1499),
		sge_of(&pair->b, 0x8000 + 1500, 4000),
	};
	struct ib_send_wr send_wr = {
		.wr_cqe = &send.cqe,
		.sg_list = from,
		.num_sge = ARRAY_SIZE(from),
		.opcode = IB_WR_SEND,
		.send_flags = IB_SEND_SIGNALED,
	};
	struct ib_recv_wr recv_wr = {
		.wr_cqe = &recv.cqe,
		.sg_list = to,
		.num_sge = ARRAY_SIZE(to),
	};

	fill(pair->a.buffer, 2100, 1);
	request_init(&send, &pair->a);
	request_init(&recv, &pair->b);
	expect_eq(ib_post_recv(pair->b.qp, &recv_wr, NULL), 0);
	expect_eq(ib_post_send(pair->a.qp, &send_wr, NULL), 0);
	check(request_wait_status(&send, IB_WC_SUCCESS));
	check(request_wait_status(&recv, IB_WC_SUCCESS));
	expect_eq(recv.wc.byte_len, 2100);
	return filled(pair->b.buffer + 0x8000, 2100, 1) ? 0 : -EINVAL;
}

/* What is inline is copied as it is posted, wherever it is. */
static int inline_data(struct pair *pair)
{
	struct request send, recv;
	u8 bytes[INLINE_BYTES];
	struct ib_sge sges[] = {
		{ .addr = (uintptr_t)bytes, .length = 20 },
		{ .addr = (uintptr_t)(bytes + 20), .length = INLINE_BYTES - 20 },
	};
	struct ib_send_wr wr = {
		.wr_cqe = &send.cqe,
		.sg_list = sges,
		.num_sge = ARRAY_SIZE(sges),
		.opcode = IB_WR_SEND,
		.send_flags = IB_SEND_SIGNALED | IB_SEND_INLINE | IB_SEND_SOLICITED,
	};

	fill(bytes, sizeof(bytes), 5);
	request_init(&send, &pair->a);
	request_init(&recv, &pair->b);
	check(post_recv(&recv, 0x10000, 0x1000));
	expect_eq(ib_post_send(pair->a.qp, &wr, NULL), 0);
	memset(bytes, 0, sizeof(bytes));
	check(request_wait_status(&send, IB_WC_SUCCESS));
	check(request_wait_status(&recv, IB_WC_SUCCESS));
	expect_eq(recv.wc.byte_len, INLINE_BYTES);
	return filled(pair->b.buffer + 0x10000, INLINE_BYTES, 5) ? 0 : -EINVAL;
}

static int immediate(struct pair *pair)
{
	static const enum ib_wr_opcode opcodes[] = { IB_WR_SEND_WITH_IMM,
						     IB_WR_RDMA_WRITE_WITH_IMM };
	struct region region;
	int i, error;

	check(region_open(&region, &pair->b, pair->b.pd));
	error = region_lay_out(&region, 16, 0, 8192);
	if (!error)
		error = region_register(&region, IB_ACCESS_LOCAL_WRITE | IB_ACCESS_REMOTE_WRITE);
	for (i = 0; i < ARRAY_SIZE(opcodes) && !error; i++) {
		struct request send, recv;

		fill(pair->a.buffer, 3000, i);
		request_init(&send, &pair->a);
		request_init(&recv, &pair->b);
		error = post_recv(&recv, 0, 4096);
		if (!error)
			error = rdma_post(&send, opcodes[i], 0, 3000, region.mr->iova,
					  region.mr->rkey);
		if (!error)
			error = request_wait_status(&send, IB_WC_SUCCESS);
		if (!error)
			error = request_wait_status(&recv, IB_WC_SUCCESS);
		if (error)
			break;
		if (recv.wc.byte_len != 3000 || recv.wc.ex.imm_data != cpu_to_be32(0x0a0b0c0d) ||
		    recv.wc.wc_flags != IB_WC_WITH_IMM)
			error = fail("a bad completion of opcode %d", opcodes[i]);
		else if (opcodes[i] == IB_WR_SEND_WITH_IMM)
			error = recv.wc.opcode == IB_WC_RECV &&
						filled(pair->b.buffer, 3000, i) ?
					0 :
					-EINVAL;
		else
			error = recv.wc.opcode == IB_WC_RECV_RDMA_WITH_IMM &&
						region_filled(&region, 0, 3000, i) ?
					0 :
					-EINVAL;
	}
	region_close(&region);
	return error;
}

/* Memory of odd sizes and places is registered, written, read and given up, again and again. */
static int rounds(struct pair *pair, struct region *region)
{
	static const struct {
		u32 offset, length;
	} shapes[] = { { 0, 1 },     { 0, 4096 },     { 4095, 2 },
		       { 100, 20000 }, { 0, 16 * 4096 }, { 1, 16 * 4096 - 2 } };
	int i;

	for (i = 0; i < ARRAY_SIZE(shapes); i++) {
		u32 length = shapes[i].length;

		check(region_lay_out(region, 16, shapes[i].offset, length));
		check(region_register(region, ALL_ACCESS));
		region_fill(region, 100 + i);
		memset(pair->a.buffer, 0, 0x10000);
		check(rdma(&pair->a, IB_WR_RDMA_READ, 0, length, region->mr->iova,
			   region->mr->rkey, IB_WC_SUCCESS));
		if (!filled(pair->a.buffer, length, 100 + i))
			return -EINVAL;
		fill(pair->a.buffer, length, i);
		check(rdma(&pair->a, IB_WR_RDMA_WRITE, 0, length, region->mr->iova,
			   region->mr->rkey, IB_WC_SUCCESS));
		if (!region_filled(region, 0, length, i))
			return -EINVAL;
		check(invalidate(&pair->b, region->mr->rkey, IB_WC_SUCCESS));
	}
	return 0;
}

static int registered(struct pair *pair)
{
	struct region region;
	int error;

	check(region_open(&region, &pair->b, pair->b.pd));
	error = rounds(pair, &region);
	region_close(&region);
	return error;
}

/* The region's own key serves its owner, too; its address is the owner's choice. */
static int own_key(struct pair *pair)
{
	struct request send, recv;
	struct region region;
	struct ib_sge sge;
	struct ib_recv_wr wr = { .wr_cqe = &recv.cqe, .sg_list = &sge, .num_sge = 1 };
	int error;

	check(region_open(&region, &pair->b, pair->b.pd));
	error = region_lay_out(&region, 16, 77, 9000);
	region.mr->iova = 0x1234500000000000 | (region.mr->iova & 0xfff);
	if (!error)
		error = region_register(&region, IB_ACCESS_LOCAL_WRITE | IB_ACCESS_REMOTE_READ);
	sge = (struct ib_sge){ .addr = region.mr->iova, .length = 9000, .lkey = region.mr->lkey };
	request_init(&send, &pair->a);
	request_init(&recv, &pair->b);
	fill(pair->a.buffer, 9000, 3);
	if (!error)
		error = ib_post_recv(pair->b.qp, &wr, NULL);
	if (!error)
		error = post_send(&send, 0, 9000);
	if (!error)
		error = request_wait_status(&send, IB_WC_SUCCESS);
	if (!error)
		error = request_wait_status(&recv, IB_WC_SUCCESS);
	if (!error && !region_filled(&region, 0, 9000, 3))
		error = -EINVAL;
	if (!error)
		error = rdma(&pair->a, IB_WR_RDMA_READ, 0x8000, 8000, region.mr->iova + 1000,
			     region.mr->rkey, IB_WC_SUCCESS);
	if (!error && memcmp(pair->a.buffer + 1000, pair->a.buffer + 0x8000, 8000))
		error = fail("READ is not what was sent");
	region_close(&region);
	return error;
}

static int atomics(struct pair *pair)
{
	struct request request;
	struct ib_sge sge = sge_of(&pair->a, 0, 8);
	struct ib_atomic_wr wr = {
		.wr = {
			.wr_cqe = &request.cqe,
			.sg_list = &sge,
			.num_sge = 1,
			.send_flags = IB_SEND_SIGNALED,
		},
	};
	u64 *found = (u64 *)pair->a.buffer, *word = (u64 *)(pair->b.buffer + 16 * PAGE_SIZE + 64);
	struct region region;
	int error, i;

	check(region_open(&region, &pair->b, pair->b.pd));
	error = region_lay_out(&region, 16, 0, 4096);
	if (!error)
		error = region_register(&region, ALL_ACCESS);
	wr.remote_addr = region.mr->iova + 64;
	wr.rkey = region.mr->rkey;
	*word = 40;
	for (i = 0; i < 6 && !error; i++) {
		bool add = i % 2 == 0;

		request_init(&request, &pair->a);
		wr.wr.opcode = add ? IB_WR_ATOMIC_FETCH_AND_ADD : IB_WR_ATOMIC_CMP_AND_SWP;
		/* 40 +2 42, 42 -> 40, and so on; the last swap compares with what is not there. */
		wr.compare_add = add ? 2 : (i == 5 ? 7 : 42);
		wr.swap = 40;
		error = ib_post_send(pair->a.qp, &wr.wr, NULL);
		if (!error)
			error = request_wait_status(&request, IB_WC_SUCCESS);
		if (!error && *found != (add ? 40 : 42))
			error = fail("atomic %d found %llu", i, *found);
		if (!error && request.wc.opcode != (add ? IB_WC_FETCH_ADD : IB_WC_COMP_SWAP))
			error = fail("atomic %d completes as %d", i, request.wc.opcode);
		if (!error && request.wc.byte_len != 8)
			error = fail("atomic %d has %u bytes", i, request.wc.byte_len);
	}
	if (!error && *word != 42)
		error = fail("the word is %llu", *word);
	region_close(&region);
	return error;
}

/* Has both ends start anew. */
static int again(struct pair *pair)
{
	check(end_modify(&pair->a, IB_QPS_RESET, NULL));
	check(end_modify(&pair->b, IB_QPS_RESET, NULL));
	return pair_connect(pair);
}

/* One access that the peer is to refuse, after which both ends start anew. */
static int refused_access(struct pair *pair, const char *what, enum ib_wr_opcode opcode, u64 address,
			  u32 rkey, u32 length)
{
	if (rdma(&pair->a, opcode, 0, length, address, rkey, IB_WC_REM_ACCESS_ERR))
		return fail("%s", what);
	return again(pair);
}

static int protected(struct pair *pair, struct region *region, struct region *other)
{
	struct ib_mr *mr = region->mr;
	u32 old;

	check(region_lay_out(region, 16, 0, 8192));
	check(region_register(region, IB_ACCESS_LOCAL_WRITE | IB_ACCESS_REMOTE_READ));
	check(refused_access(pair, "WRITE without the right", IB_WR_RDMA_WRITE, mr->iova, mr->rkey,
			     8));
	check(refused_access(pair, "beyond the end", IB_WR_RDMA_READ, mr->iova + 8190, mr->rkey, 3));
	check(refused_access(pair, "before the start", IB_WR_RDMA_READ, mr->iova - 1, mr->rkey, 2));
	check(refused_access(pair, "all around", IB_WR_RDMA_READ, mr->iova + U64_MAX - 3, mr->rkey,
			     8));
	check(refused_access(pair, "another key", IB_WR_RDMA_READ, mr->iova,
			     ib_inc_rkey(mr->rkey), 8));
	check(refused_access(pair, "the local key", IB_WR_RDMA_READ, pair->b.dma,
			     pair->b.pd->local_dma_lkey, 8));
	check(refused_access(pair, "no key", IB_WR_RDMA_READ, pair->b.dma, 0, 8));
	check(rdma(&pair->a, IB_WR_RDMA_READ, 0, 8192, mr->iova, mr->rkey, IB_WC_SUCCESS));

	/* Given up, and given up a second time. */
	check(invalidate(&pair->b, mr->rkey, IB_WC_SUCCESS));
	check(invalidate(&pair->b, mr->rkey, IB_WC_SUCCESS));
	check(refused_access(pair, "a key that was given up", IB_WR_RDMA_READ, mr->iova, mr->rkey,
			     8));
	/* The key of last time, when there is a new one. */
	old = mr->rkey;
	check(region_register(region, ALL_ACCESS));
	check(refused_access(pair, "the key before", IB_WR_RDMA_READ, mr->iova, old, 8));
	check(rdma(&pair->a, IB_WR_RDMA_WRITE, 0, 8192, mr->iova, mr->rkey, IB_WC_SUCCESS));

	/* Of another protection domain: neither registered here nor reached from there. */
	check(region_lay_out(other, 32, 0, 4096));
	{
		struct request request;

		request_init(&request, &pair->b);
		expect_eq(region_post(other, &request, ALL_ACCESS), 0);
		check(request_wait_status(&request, IB_WC_MW_BIND_ERR));
		check(again(pair));
		check(invalidate(&pair->b, other->mr->rkey, IB_WC_LOC_QP_OP_ERR));
		check(again(pair));
	}
	return 0;
}

static int registered_protected(struct pair *pair)
{
	struct ib_pd *pd = ib_alloc_pd(pair->b.dev, 0);
	struct region region, other = {};
	int error;

	expect(!IS_ERR(pd));
	error = region_open(&region, &pair->b, pair->b.pd);
	if (!error)
		error = region_open(&other, &pair->b, pd);
	if (!error)
		error = protected(pair, &region, &other);
	region_close(&region);
	region_close(&other);
	ib_dealloc_pd(pd);
	return error;
}

/* What cannot be registered fails, and the queue pair with it. */
static int not_registered(struct pair *pair, struct region *region)
{
	struct request request;

	/* Nothing was laid out. */
	request_init(&request, &pair->b);
	expect_eq(region_post(region, &request, ALL_ACCESS), 0);
	check(request_wait_status(&request, IB_WC_MW_BIND_ERR));
	check(again(pair));
	/* It is registered already. */
	check(region_lay_out(region, 16, 0, 4096));
	check(region_register(region, ALL_ACCESS));
	request_init(&request, &pair->b);
	expect_eq(region_post(region, &request, ALL_ACCESS), 0);
	check(request_wait_status(&request, IB_WC_MW_BIND_ERR));
	check(again(pair));
	return 0;
}

static int registered_refused(struct pair *pair)
{
	struct region region;
	int error;

	check(region_open(&region, &pair->b, pair->b.pd));
	error = not_registered(pair, &region);
	region_close(&region);
	return error;
}

/* The peer gives the key up. */
static int send_invalidate(struct pair *pair)
{
	struct request send, recv;
	struct ib_sge sge = sge_of(&pair->a, 0, 16);
	struct ib_send_wr wr = {
		.wr_cqe = &send.cqe,
		.sg_list = &sge,
		.num_sge = 1,
		.opcode = IB_WR_SEND_WITH_INV,
		.send_flags = IB_SEND_SIGNALED,
	};
	struct region region;
	int error;

	check(region_open(&region, &pair->b, pair->b.pd));
	error = region_lay_out(&region, 16, 0, 4096);
	if (!error)
		error = region_register(&region, ALL_ACCESS);
	if (!error)
		error = rdma(&pair->a, IB_WR_RDMA_READ, 0, 8, region.mr->iova, region.mr->rkey,
			     IB_WC_SUCCESS);
	request_init(&send, &pair->a);
	request_init(&recv, &pair->b);
	if (!error)
		error = post_recv(&recv, 0, 64);
	wr.ex.invalidate_rkey = region.mr->rkey;
	if (!error)
		error = ib_post_send(pair->a.qp, &wr, NULL);
	if (!error)
		error = request_wait_status(&send, IB_WC_SUCCESS);
	if (!error)
		error = request_wait_status(&recv, IB_WC_SUCCESS);
	if (!error && (recv.wc.wc_flags != IB_WC_WITH_INVALIDATE ||
		       recv.wc.ex.invalidate_rkey != region.mr->rkey))
		error = fail("no key in the completion: flags %#x", recv.wc.wc_flags);
	if (!error)
		error = refused_access(pair, "what the peer gave up", IB_WR_RDMA_READ,
				       region.mr->iova, region.mr->rkey, 8);
	region_close(&region);
	return error;
}

/* All memory, to a peer that was given the key to it. */
static int global_key(struct pair *pair)
{
	struct ib_pd *pd = pair->b.pd;
	struct ib_pd *unsafe = ib_alloc_pd(pair->b.dev, IB_PD_UNSAFE_GLOBAL_RKEY);
	u32 rkey;
	int error;

	expect(!IS_ERR(unsafe));
	rkey = unsafe->unsafe_global_rkey;
	/* Its own domain's queue pairs alone. */
	error = refused_access(pair, "the global key of another domain", IB_WR_RDMA_READ,
			       pair->b.dma, rkey, 8);
	if (!error) {
		struct wish wish = { .type = IB_QPT_RC };
		struct ib_device *dev = pair->b.dev;
		enum ib_poll_context context = pair->b.context;

		end_close(&pair->b);
		error = end_open_in(&pair->b, dev, context, &wish, unsafe);
		pd = NULL;
		if (!error)
			error = end_modify(&pair->a, IB_QPS_RESET, NULL);
		if (!error)
			error = pair_connect(pair);
	}
	if (!error) {
		fill(pair->b.buffer, 5000, 8);
		error = rdma(&pair->a, IB_WR_RDMA_READ, 0, 5000, pair->b.dma, rkey, IB_WC_SUCCESS);
	}
	if (!error && !filled(pair->a.buffer, 5000, 8))
		error = -EINVAL;
	/* Where there is no memory it is refused, and nothing breaks. */
	if (!error)
		error = refused_access(pair, "no memory", IB_WR_RDMA_READ, 0x1000, rkey, 8);
	if (!error)
		error = refused_access(pair, "no address", IB_WR_RDMA_READ, 0x8000000000000000, rkey,
				       8);
	if (pd)
		ib_dealloc_pd(unsafe);
	return error;
}

static int bad_lkey(struct pair *pair)
{
	struct request request;
	struct ib_sge sge = sge_of(&pair->a, 0, 8);
	struct ib_send_wr wr = {
		.wr_cqe = &request.cqe,
		.sg_list = &sge,
		.num_sge = 1,
		.opcode = IB_WR_SEND,
		.send_flags = IB_SEND_SIGNALED,
	};
	static const u32 flips[] = { 0x100, 0x1, 0xffffff00 };
	int i;

	for (i = 0; i < ARRAY_SIZE(flips); i++) {
		request_init(&request, &pair->a);
		sge.lkey = pair->a.pd->local_dma_lkey ^ flips[i];
		expect_eq(ib_post_send(pair->a.qp, &wr, NULL), 0);
		check(request_wait_status(&request, IB_WC_LOC_PROT_ERR));
		check(again(pair));
	}
	/* The right key, but no memory. */
	request_init(&request, &pair->a);
	sge = (struct ib_sge){ .addr = 0x2000, .length = 8, .lkey = pair->a.pd->local_dma_lkey };
	expect_eq(ib_post_send(pair->a.qp, &wr, NULL), 0);
	check(request_wait_status(&request, IB_WC_LOC_PROT_ERR));
	return 0;
}

/* A list is posted up to what is bad in it. */
static int chain(struct pair *pair)
{
	struct request sends[4], recvs[4];
	struct ib_sge sges[4];
	struct ib_send_wr wrs[4];
	const struct ib_send_wr *bad = NULL;
	int i;

	for (i = 0; i < 4; i++) {
		request_init(&sends[i], &pair->a);
		request_init(&recvs[i], &pair->b);
		check(post_recv(&recvs[i], 0x8000 + i * 0x1000, 0x1000));
		fill(pair->a.buffer + i * 0x1000, 100, i);
		sges[i] = sge_of(&pair->a, i * 0x1000, 100);
		wrs[i] = (struct ib_send_wr){
			.next = i < 3 ? &wrs[i + 1] : NULL,
			.wr_cqe = &sends[i].cqe,
			.sg_list = &sges[i],
			.num_sge = 1,
			.opcode = IB_WR_SEND,
			.send_flags = IB_SEND_SIGNALED,
		};
	}
	wrs[2].opcode = IB_WR_RDMA_READ_WITH_INV;
	expect_eq(ib_post_send(pair->a.qp, wrs, &bad), -EINVAL);
	expect(bad == &wrs[2]);
	for (i = 0; i < 2; i++) {
		check(request_wait_status(&sends[i], IB_WC_SUCCESS));
		check(request_wait_status(&recvs[i], IB_WC_SUCCESS));
	}
	wrs[2].opcode = IB_WR_SEND;
	expect_eq(ib_post_send(pair->a.qp, &wrs[2], &bad), 0);
	for (i = 0; i < 4; i++) {
		if (i >= 2) {
			check(request_wait_status(&sends[i], IB_WC_SUCCESS));
			check(request_wait_status(&recvs[i], IB_WC_SUCCESS));
		}
		check(request_once(&sends[i]));
		check(request_once(&recvs[i]));
		if (!filled(pair->b.buffer + 0x8000 + i * 0x1000, 100, i))
			return -EINVAL;
	}
	return 0;
}

/* What is refused when it is posted does not touch the queue pair. */
static int refused(struct pair *pair)
{
	struct request request;
	struct ib_sge sges[MAX_SGES * 8];
	struct ib_rdma_wr wr = {
		.wr = {
			.wr_cqe = &request.cqe,
			.sg_list = sges,
			.num_sge = 1,
			.opcode = IB_WR_SEND,
			.send_flags = IB_SEND_SIGNALED,
		},
	};
	struct ib_recv_wr recv = { .wr_cqe = &request.cqe, .sg_list = sges, .num_sge = 33 };
	static const enum ib_wr_opcode opcodes[] = {
		IB_WR_LSO,
		IB_WR_RDMA_READ_WITH_INV,
		IB_WR_BIND_MW,
		IB_WR_MASKED_ATOMIC_CMP_AND_SWP,
		IB_WR_REG_MR_INTEGRITY,
		0x77,
	};
	int i;

	request_init(&request, &pair->a);
	for (i = 0; i < ARRAY_SIZE(sges); i++)
		sges[i] = sge_of(&pair->a, 0, 8);
	for (i = 0; i < ARRAY_SIZE(opcodes); i++) {
		wr.wr.opcode = opcodes[i];
		expect_eq(ib_post_send(pair->a.qp, &wr.wr, NULL), -EINVAL);
	}
	wr.wr.opcode = IB_WR_SEND;
	wr.wr.num_sge = 33;
	expect_eq(ib_post_send(pair->a.qp, &wr.wr, NULL), -EINVAL);
	wr.wr.num_sge = -1;
	expect_eq(ib_post_send(pair->a.qp, &wr.wr, NULL), -EINVAL);
	expect_eq(ib_post_recv(pair->a.qp, &recv, NULL), -EINVAL);
	recv.num_sge = -1;
	expect_eq(ib_post_recv(pair->a.qp, &recv, NULL), -EINVAL);
	wr.wr.num_sge = 1;
	wr.wr.send_flags |= IB_SEND_IP_CSUM;
	expect_eq(ib_post_send(pair->a.qp, &wr.wr, NULL), -EINVAL);
	wr.wr.send_flags = IB_SEND_SIGNALED | IB_SEND_INLINE;
	sges[0].length = 4096;
	expect_eq(ib_post_send(pair->a.qp, &wr.wr, NULL), -EINVAL);
	wr.wr.send_flags = IB_SEND_SIGNALED;
	sges[0].length = U32_MAX;
	expect_eq(ib_post_send(pair->a.qp, &wr.wr, NULL), -EINVAL);
	check(request_wait_none(&request));
	return send(pair);
}

/* No more than fits, in either queue. */
static int full(struct pair *pair)
{
	struct request *requests;
	const struct ib_send_wr *bad;
	int i, posted, error = 0;

	requests = kcalloc(4 * QUEUE_DEPTH, sizeof(*requests), GFP_KERNEL);
	if (!requests)
		return fail("no memory");
	for (posted = 0; posted < 4 * QUEUE_DEPTH; posted++) {
		struct request *request = &requests[posted];
		struct ib_send_wr wr = {
			.wr_cqe = &request->cqe,
			.opcode = IB_WR_SEND,
			.send_flags = IB_SEND_SIGNALED,
		};

		request_init(request, &pair->a);
		error = ib_post_send(pair->a.qp, &wr, &bad);
		if (error)
			break;
	}
	if (error != -ENOMEM || posted < QUEUE_DEPTH)
		error = fail("after %d: %d", posted, error);
	else
		error = end_modify(&pair->a, IB_QPS_ERR, NULL);
	for (i = 0; i < posted && !error; i++)
		error = request_wait_status(&requests[i], IB_WC_WR_FLUSH_ERR);
	/* There is room again. */
	if (!error)
		ib_drain_qp(pair->a.qp);
	kfree(requests);
	return error;
}

/* Posting where nothing may be posted. */
/* Rules: STA-9 */
static int states(struct pair *pair)
{
	struct request request;
	struct ib_send_wr wr = { .wr_cqe = &request.cqe, .opcode = IB_WR_SEND };
	struct ib_recv_wr recv = { .wr_cqe = &request.cqe };

	request_init(&request, &pair->a);
	expect_eq(ib_post_send(pair->a.qp, &wr, NULL), -EINVAL);
	expect_eq(ib_post_recv(pair->a.qp, &recv, NULL), -EINVAL);
	check(end_modify(&pair->a, IB_QPS_INIT, NULL));
	expect_eq(ib_post_send(pair->a.qp, &wr, NULL), -EINVAL);
	expect_eq(ib_post_recv(pair->a.qp, &recv, NULL), 0);
	check(end_modify(&pair->b, IB_QPS_INIT, NULL));
	check(end_modify(&pair->a, IB_QPS_RTR, &pair->b));
	expect_eq(ib_post_send(pair->a.qp, &wr, NULL), -EINVAL);
	check(end_modify(&pair->a, IB_QPS_ERR, NULL));
	check(request_wait_status(&request, IB_WC_WR_FLUSH_ERR));
	return 0;
}

static int drain(struct pair *pair)
{
	struct request sends[3], recvs[5];
	int i;

	for (i = 0; i < ARRAY_SIZE(recvs); i++) {
		request_init(&recvs[i], &pair->a);
		check(post_recv(&recvs[i], i * 0x1000, 0x1000));
	}
	/* The peer has no receive: these stay. */
	for (i = 0; i < ARRAY_SIZE(sends); i++) {
		request_init(&sends[i], &pair->a);
		check(post_send(&sends[i], 0, 100));
	}
	ib_drain_qp(pair->a.qp);
	for (i = 0; i < ARRAY_SIZE(recvs); i++) {
		check(request_wait_status(&recvs[i], IB_WC_WR_FLUSH_ERR));
		check(request_once(&recvs[i]));
	}
	for (i = 0; i < ARRAY_SIZE(sends); i++) {
		check(request_wait_status(&sends[i], IB_WC_WR_FLUSH_ERR));
		check(request_once(&sends[i]));
	}
	return 0;
}

/* With a shared receive queue it waits for an event, and what is posted there stays. */
static int drain_shared(struct pair *pair)
{
	struct request recv, sends[2];
	int i;

	request_init(&recv, &pair->b);
	check(post_recv(&recv, 0, 0x1000));
	for (i = 0; i < 2; i++) {
		request_init(&sends[i], &pair->a);
		check(post_send(&sends[i], 0, 100));
	}
	check(request_wait_status(&recv, IB_WC_SUCCESS));
	/* Before either end stops: the acknowledgement comes after the receive. */
	check(request_wait_status(&sends[0], IB_WC_SUCCESS));
	ib_drain_qp(pair->b.qp);
	expect(event_seen(&pair->b, IB_EVENT_QP_LAST_WQE_REACHED));
	ib_drain_qp(pair->a.qp);
	check(request_wait(&sends[1]));
	expect(sends[1].wc.status != IB_WC_SUCCESS);
	return 0;
}

/* Under a lock of the user's, with interrupts disabled. With PREEMPT_RT such a lock does not disable them. */
static int interrupts_off(struct pair *pair)
{
	static DEFINE_SPINLOCK(lock);
	struct request send, recv;
	unsigned long flags;
	int i;

	for (i = 0; i < 30; i++) {
		int posted_recv, posted_send;

		fill(pair->a.buffer, 3000, i);
		request_init(&send, &pair->a);
		request_init(&recv, &pair->b);
		spin_lock_irqsave(&lock, flags);
		posted_recv = post_recv(&recv, 0x10000, 0x10000);
		posted_send = post_send(&send, 0, 3000);
		spin_unlock_irqrestore(&lock, flags);
		expect_eq(posted_recv, 0);
		expect_eq(posted_send, 0);
		check(request_wait_status(&send, IB_WC_SUCCESS));
		check(request_wait_status(&recv, IB_WC_SUCCESS));
		if (!filled(pair->b.buffer + 0x10000, 3000, i))
			return -EINVAL;
	}
	return 0;
}

/* A completion posts the next work request, where it completes. */
#define BOUNCES 500

static void bounce_back(struct request *request)
{
	if (request->wc.status == IB_WC_SUCCESS && atomic_read(&request->completions) < BOUNCES - 1)
		post_recv(request, 0x8000, 64);
}

static void bounce(struct request *request)
{
	if (request->wc.status == IB_WC_SUCCESS && atomic_read(&request->completions) < BOUNCES - 1)
		post_send(request, 0, 64);
}

static int from_within(struct pair *pair)
{
	struct request send, recv;
	int i;

	request_init(&send, &pair->a);
	request_init(&recv, &pair->b);
	send.then = bounce;
	recv.then = bounce_back;
	check(post_recv(&recv, 0x8000, 64));
	check(post_send(&send, 0, 64));
	for (i = 0; i < BOUNCES; i++) {
		check(request_wait_status(&send, IB_WC_SUCCESS));
		check(request_wait_status(&recv, IB_WC_SUCCESS));
	}
	expect_eq(atomic_read(&send.completions), BOUNCES);
	expect_eq(atomic_read(&recv.completions), BOUNCES);
	return 0;
}

/* As storage does it: register and send in one list, the peer writes, and gives the key up. */
static int storage(struct pair *pair, struct region *region)
{
	int i;

	for (i = 0; i < 50; i++) {
		struct request send, reply, command, answer, written;
		struct ib_sge sge = sge_of(&pair->b, 0, 64), from = sge_of(&pair->a, 0x1000, 16);
		struct ib_send_wr send_wr = {
			.wr_cqe = &send.cqe,
			.sg_list = &sge,
			.num_sge = 1,
			.opcode = IB_WR_SEND,
			.send_flags = IB_SEND_SIGNALED,
		};
		struct ib_reg_wr reg_wr = {
			.wr = { .next = &send_wr, .opcode = IB_WR_REG_MR },
			.mr = region->mr,
			.access = ALL_ACCESS,
		};
		struct ib_send_wr answer_wr = {
			.wr_cqe = &answer.cqe,
			.sg_list = &from,
			.num_sge = 1,
			.opcode = IB_WR_SEND_WITH_INV,
			.send_flags = IB_SEND_SIGNALED,
		};

		request_init(&send, &pair->b);
		request_init(&reply, &pair->b);
		request_init(&command, &pair->a);
		request_init(&answer, &pair->a);
		request_init(&written, &pair->a);
		check(post_recv(&reply, 0x1000, 64));
		check(post_recv(&command, 0x2000, 64));
		check(region_lay_out(region, 16, i, 20000));
		ib_update_fast_reg_key(region->mr, ib_inc_rkey(region->mr->rkey));
		reg_wr.key = region->mr->rkey;
		expect_eq(ib_post_send(pair->b.qp, &reg_wr.wr, NULL), 0);
		check(request_wait_status(&command, IB_WC_SUCCESS));

		fill(pair->a.buffer + 0x10000, 20000, i);
		answer_wr.ex.invalidate_rkey = region->mr->rkey;
		expect_eq(rdma_post(&written, IB_WR_RDMA_WRITE, 0x10000, 20000, region->mr->iova,
				    region->mr->rkey),
			  0);
		expect_eq(ib_post_send(pair->a.qp, &answer_wr, NULL), 0);
		check(request_wait_status(&reply, IB_WC_SUCCESS));
		expect_eq(reply.wc.ex.invalidate_rkey, region->mr->rkey);
		if (!region_filled(region, 0, 20000, i))
			return -EINVAL;
		check(request_wait_status(&send, IB_WC_SUCCESS));
		check(request_wait_status(&written, IB_WC_SUCCESS));
		check(request_wait_status(&answer, IB_WC_SUCCESS));
	}
	return 0;
}

static int like_storage(struct pair *pair)
{
	struct region region;
	int error;

	check(region_open(&region, &pair->b, pair->b.pd));
	error = storage(pair, &region);
	region_close(&region);
	return error;
}

/* Nothing of a queue pair that is gone completes. */
static int gone(struct pair *pair)
{
	struct request recvs[4];
	int i;

	for (i = 0; i < ARRAY_SIZE(recvs); i++) {
		request_init(&recvs[i], &pair->a);
		check(post_recv(&recvs[i], 0, 64));
	}
	check(end_modify(&pair->a, IB_QPS_ERR, NULL));
	/* Their completions are in the queue by now, or will be soon, and nobody polls. */
	msleep(100);
	ib_destroy_qp(pair->a.qp);
	pair->a.qp = NULL;
	ib_process_cq_direct(pair->a.cq, -1);
	for (i = 0; i < ARRAY_SIZE(recvs); i++)
		if (pair->a.context == IB_POLL_DIRECT)
			expect_eq(atomic_read(&recvs[i].completions), 0);
	return 0;
}

/* Without acknowledgements: what needs answers is refused. */
static int unreliable(struct pair *pair)
{
	struct request request;

	check(send(pair));
	request_init(&request, &pair->a);
	expect_eq(rdma_post(&request, IB_WR_RDMA_READ, 0, 8, 0, 0), -EINVAL);
	expect_eq(rdma_post(&request, IB_WR_SEND_WITH_INV, 0, 8, 0, 0), -EINVAL);
	return 0;
}

/* What is posted stays posted, in its order, and there is room for as many as asked for. */
static int resize_shared(struct pair *pair)
{
	static const u32 sizes[] = { 4 * QUEUE_DEPTH, QUEUE_DEPTH / 2, QUEUE_DEPTH };
	static struct request recvs[4 * QUEUE_DEPTH + 1];
	struct ib_recv_wr full = {};
	struct ib_srq_attr attr;
	struct request sent;
	u32 i, posted = 0, taken = 0, step;

	for (step = 0; step < ARRAY_SIZE(sizes); step++) {
		for (i = 0; i < 3; i++, posted++) {
			request_init(&recvs[posted], &pair->b);
			check(post_recv(&recvs[posted], posted * 0x100, 0x100));
		}
		attr.max_wr = sizes[step];
		expect_eq(ib_modify_srq(pair->b.srq, &attr, IB_SRQ_MAX_WR), 0);
		expect_eq(ib_query_srq(pair->b.srq, &attr), 0);
		expect(attr.max_wr >= sizes[step]);
		/* The oldest is the first that is taken. */
		request_init(&sent, &pair->a);
		fill(pair->a.buffer, 0x100, taken);
		check(post_send(&sent, 0, 0x100));
		check(request_wait(&sent));
		check(request_wait(&recvs[taken]));
		expect(filled(pair->b.buffer + taken * 0x100, 0x100, taken));
		taken++;
	}
	/* Less than what is posted: it stays as it is. */
	attr.max_wr = 2;
	expect_eq(ib_modify_srq(pair->b.srq, &attr, IB_SRQ_MAX_WR), -EINVAL);
	expect_eq(ib_query_srq(pair->b.srq, &attr), 0);
	for (; posted - taken < attr.max_wr; posted++) {
		request_init(&recvs[posted], &pair->b);
		check(post_recv(&recvs[posted], 0, 0x100));
	}
	expect_eq(ib_post_srq_recv(pair->b.srq, &full, NULL), -ENOMEM);
	return 0;
}

#define RC { .type = IB_QPT_RC }
#define UC { .type = IB_QPT_UC }
#define RC_SHARED { .type = IB_QPT_RC, .shared_receives = true }

const struct test connected_tests[] = {
	{ "rc_send", send, RC },
	{ "rc_gather", gather, RC },
	{ "rc_inline", inline_data, RC },
	{ "rc_immediate", immediate, RC },
	{ "rc_registered", registered, RC },
	{ "rc_own_key", own_key, RC },
	{ "rc_atomics", atomics, RC },
	{ "rc_protected", registered_protected, RC },
	{ "rc_not_registered", registered_refused, RC },
	{ "rc_send_invalidate", send_invalidate, RC },
	{ "rc_global_key", global_key, RC },
	{ "rc_bad_lkey", bad_lkey, RC },
	{ "rc_chain", chain, RC },
	{ "rc_refused", refused, RC },
	{ "rc_full", full, RC },
	{ "rc_states", states, { .type = IB_QPT_RC, .unconnected = true } },
	{ "rc_drain", drain, RC },
	{ "rc_drain_shared", drain_shared, RC_SHARED },
	{ "rc_resize_shared", resize_shared, RC_SHARED },
	{ "rc_shared_receives", send, RC_SHARED },
	{ "rc_interrupts_off", interrupts_off, RC },
	{ "rc_from_within", from_within, RC },
	{ "rc_like_storage", like_storage, RC },
	{ "rc_gone", gone, RC },
	{ "uc_send", unreliable, UC },
	{},
};
