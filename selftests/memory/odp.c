// SPDX-License-Identifier: GPL-2.0
/*
 * Memory that is paged in on demand: what a peer gets of it, and puts there, while
 * its pages are absent, shared, moved, swapped out and taken away.
 */
#include <pthread.h>
#include <rdma/ib_user_verbs.h>
#include <stdatomic.h>
#include <signal.h>
#include <stdio.h>
#include <sys/socket.h>
#include <sys/wait.h>

#include "../lib/fuse.h"
#include "../lib/harness.h"
#include "../lib/stream.h"
#include "../lib/ud.h"
#include "../lib/verbs.h"

#define SIZE (64 * PAGE)
#define SIZE_MOST (64 * PAGE_MOST)

static struct rc_pair pair;
static struct rc_plan plan;
static struct buffer mine;	/* of end a, who asks */
static struct buffer theirs;	/* of end b */

static void open_pair(void)
{
	name_ends_from_environment();
	open_ends();
	plan = default_plan;
	plan.access |= IBV_ACCESS_REMOTE_ATOMIC;
	pair_open(&pair, &plan);
}

static void set_up(void)
{
	open_pair();
	demand(&mine, &ends[0], SIZE, IBV_ACCESS_LOCAL_WRITE);
	demand(&theirs, &ends[1], SIZE, REMOTE);
}

/* A new connection; the old one has failed. */
static void again(void)
{
	pair_destroy(&pair);
	pair_open(&pair, &plan);
}

static void post(uint64_t id, enum ibv_wr_opcode opcode, const struct buffer *from, size_t at,
		 uint32_t length, const struct buffer *to, size_t to_at)
{
	struct ibv_sge sge = buffer_sge(from, at, length);

	post_send(&pair.a, id, opcode, IBV_SEND_SIGNALED, &sge, (uintptr_t)to->bytes + to_at,
		  to->mr->rkey);
}

static void done(uint64_t id, enum ibv_wc_status status)
{
	expect_wc(pair.a.scq, id, status, 2 * SOON_MS);
}

static void expect_stream(const struct buffer *buffer, size_t at, size_t length, uint64_t key,
			  const char *what)
{
	size_t same = stream_compare(buffer->bytes + at, length, key, 0);

	require(same == length, "%s: byte %zu of %zu at %zu is wrong", what, same, length, at);
}

/* Everything but `length` bytes at `at` is as fresh memory is. */
static void expect_nothing_else(const struct buffer *buffer, size_t at, size_t length)
{
	size_t i;

	for (i = 0; i < buffer->size; i++)
		require((i >= at && i < at + length) || !buffer->bytes[i],
			"byte %zu was written to", i);
}

/* ---- what is claimed --------------------------------------------------- */

TEST(capabilities)
{
	struct ibv_device_attr_ex attr;
	uint32_t ud = IBV_ODP_SUPPORT_SEND | IBV_ODP_SUPPORT_RECV | IBV_ODP_SUPPORT_SRQ_RECV;
	uint32_t uc = ud | IBV_ODP_SUPPORT_WRITE;
	/* And FLUSH and atomic WRITE, which this libibverbs has no names for. */
	uint32_t rc = uc | IBV_ODP_SUPPORT_READ | IBV_ODP_SUPPORT_ATOMIC | 1 << 6 | 1 << 7;

	name_ends_from_environment();
	open_ends();
	require_ok(ibv_query_device_ex(ends[0].context, NULL, &attr));
	require(attr.odp_caps.general_caps == (IBV_ODP_SUPPORT | IBV_ODP_SUPPORT_IMPLICIT),
		"general: %#lx", (long)attr.odp_caps.general_caps);
	require(attr.odp_caps.per_transport_caps.rc_odp_caps == rc, "RC: %#x",
		attr.odp_caps.per_transport_caps.rc_odp_caps);
	require(attr.odp_caps.per_transport_caps.uc_odp_caps == uc, "UC: %#x",
		attr.odp_caps.per_transport_caps.uc_odp_caps);
	require(attr.odp_caps.per_transport_caps.ud_odp_caps == ud, "UD: %#x",
		attr.odp_caps.per_transport_caps.ud_odp_caps);
}

/* ---- operations on absent pages ---------------------------------------- */

static const struct {
	size_t at;
	uint32_t length;
} ranges[] = {
	{ 0, 1 }, { 4095, 2 }, { 1, 4095 }, { 0, 4096 }, { 4090, 4097 }, { 123, 3 * 4096 },
	{ 4095, 70001 }, { 5, 60 * 4096 },
};

/* With both sides absent, then with the same pages present. */
static void in_all_ranges(void (*run)(size_t at, uint32_t length, uint64_t key))
{
	unsigned int i, turn;

	set_up();
	for (i = 0; i < ARRAY_SIZE(ranges); i++) {
		for (turn = 0; turn < 2; turn++) {
			note("%u bytes at %zu, %s", ranges[i].length, ranges[i].at,
			     turn ? "present" : "absent");
			if (!turn) {
				drop_pages(mine.bytes, SIZE);
				drop_pages(theirs.bytes, SIZE);
			} else {
				memset(mine.bytes, 0, SIZE);
				memset(theirs.bytes, 0, SIZE);
			}
			run(ranges[i].at, ranges[i].length, 2 * i + turn);
		}
	}
}

static void write_range(size_t at, uint32_t length, uint64_t key)
{
	size_t to = (at + 77) % PAGE;

	stream_fill(mine.bytes + at, length, key, 0);
	post(1, IBV_WR_RDMA_WRITE, &mine, at, length, &theirs, to);
	done(1, IBV_WC_SUCCESS);
	expect_stream(&theirs, to, length, key, "WRITE");
	expect_nothing_else(&theirs, to, length);
}

TEST(writes)
{
	in_all_ranges(write_range);
}

static void read_range(size_t at, uint32_t length, uint64_t key)
{
	size_t to = (at + 77) % PAGE;

	stream_fill(theirs.bytes + at, length, key, 0);
	post(1, IBV_WR_RDMA_READ, &mine, to, length, &theirs, at);
	done(1, IBV_WC_SUCCESS);
	expect_stream(&mine, to, length, key, "READ");
	expect_nothing_else(&mine, to, length);
}

TEST(reads)
{
	in_all_ranges(read_range);
}

static void send_range(size_t at, uint32_t length, uint64_t key)
{
	size_t to = (at + 77) % PAGE;
	struct ibv_sge sge = buffer_sge(&theirs, to, length);

	stream_fill(mine.bytes + at, length, key, 0);
	post_recv(&pair.b, 5, &sge);
	post(1, IBV_WR_SEND, &mine, at, length, &theirs, 0);
	done(1, IBV_WC_SUCCESS);
	expect_wc(pair.b.rcq, 5, IBV_WC_SUCCESS, SOON_MS);
	expect_stream(&theirs, to, length, key, "SEND");
	expect_nothing_else(&theirs, to, length);
}

TEST(sends)
{
	in_all_ranges(send_range);
}

/* What was never written is sent without being made. */
TEST(zeroes_are_not_made)
{
	size_t i;

	set_up();
	memset(theirs.bytes, 0xaa, SIZE);
	post(1, IBV_WR_RDMA_WRITE, &mine, 3, 20000, &theirs, 0);
	done(1, IBV_WC_SUCCESS);
	for (i = 0; i < SIZE; i++)
		require(theirs.bytes[i] == (i < 20000 ? 0 : 0xaa), "byte %zu", i);
}

/* A receive is as large as it is; only what arrives is brought in. */
TEST(receives_stay_small)
{
	struct ibv_sge sge;

	set_up();
	sge = buffer_sge(&theirs, 0, SIZE);
	post_recv(&pair.b, 5, &sge);
	post(1, IBV_WR_SEND, &mine, 0, 100, &theirs, 0);
	done(1, IBV_WC_SUCCESS);
	expect_wc(pair.b.rcq, 5, IBV_WC_SUCCESS, SOON_MS);
	require(resident(theirs.bytes, SIZE) == 1, "%zu pages", resident(theirs.bytes, SIZE));
}

TEST(many_elements)
{
	struct ibv_sge sges[4], target[4];
	struct ibv_send_wr wr = {
		.sg_list = sges, .num_sge = 4, .opcode = IBV_WR_SEND, .send_flags = IBV_SEND_SIGNALED,
	}, *bad;
	struct ibv_recv_wr recv = { .sg_list = target, .num_sge = 4 }, *bad_recv;
	uint8_t all[4 * 1000];
	int turn, i;

	name_ends_from_environment();
	open_ends();
	plan = default_plan;
	plan.cap.max_send_sge = plan.cap.max_recv_sge = 4;
	pair_open(&pair, &plan);
	demand(&mine, &ends[0], SIZE, IBV_ACCESS_LOCAL_WRITE);
	demand(&theirs, &ends[1], SIZE, REMOTE);
	for (turn = 0; turn < 20; turn++) {
		drop_pages(theirs.bytes, SIZE);
		stream_fill(all, sizeof(all), turn, 0);
		for (i = 0; i < 4; i++) {
			sges[i] = buffer_sge(&mine, i * 3 * PAGE + 4000, 1000);
			target[i] = buffer_sge(&theirs, (3 - i) * 5 * PAGE + 4000, 1000);
			memcpy((void *)sges[i].addr, all + i * 1000, 1000);
		}
		require_ok(ibv_post_recv(pair.b.qp, &recv, &bad_recv));
		require_ok(ibv_post_send(pair.a.qp, &wr, &bad));
		done(0, IBV_WC_SUCCESS);
		expect_wc(pair.b.rcq, 0, IBV_WC_SUCCESS, SOON_MS);
		for (i = 0; i < 4; i++)
			require(!memcmp((void *)target[i].addr, all + i * 1000, 1000), "element %d", i);
	}
}

static void post_atomic(uint64_t id, enum ibv_wr_opcode opcode, size_t at, uint64_t compare_add,
			uint64_t swap)
{
	struct ibv_sge sge = buffer_sge(&mine, 8, 8);
	struct ibv_send_wr wr = {
		.wr_id = id, .sg_list = &sge, .num_sge = 1, .opcode = opcode,
		.send_flags = IBV_SEND_SIGNALED,
		.wr.atomic = {
			.remote_addr = (uintptr_t)theirs.bytes + at, .rkey = theirs.mr->rkey,
			.compare_add = compare_add, .swap = swap,
		},
	}, *bad;

	require_ok(ibv_post_send(pair.a.qp, &wr, &bad));
}

TEST(atomics)
{
	uint64_t *word, *found, i;

	set_up();
	word = (uint64_t *)(theirs.bytes + 5 * PAGE + 8);
	found = (uint64_t *)(mine.bytes + 8);
	for (i = 0; i < 50; i++) {
		drop_pages(theirs.bytes, SIZE);
		drop_pages(mine.bytes, SIZE);
		post_atomic(1, IBV_WR_ATOMIC_FETCH_AND_ADD, 5 * PAGE + 8, 7, 0);
		done(1, IBV_WC_SUCCESS);
		require(*word == 7 && !*found, "added to %lu: %lu", *found, *word);
		drop_pages(mine.bytes, SIZE);
		post_atomic(2, IBV_WR_ATOMIC_CMP_AND_SWP, 5 * PAGE + 8, 7, i);
		done(2, IBV_WC_SUCCESS);
		require(*word == i && *found == 7, "swapped %lu: %lu", *found, *word);
	}
}

/* A WRITE whose immediate data take a receive; a second receive must stay where it is. */
TEST(immediate_data)
{
	struct ibv_sge sge;
	struct ibv_wc wc;
	int turn;

	set_up();
	for (turn = 0; turn < 20; turn++) {
		drop_pages(theirs.bytes, SIZE);
		post_recv(&pair.b, turn, NULL);
		sge = buffer_sge(&mine, 100, 9000);
		stream_fill(mine.bytes + 100, 9000, turn, 0);
		post_send(&pair.a, 1, IBV_WR_RDMA_WRITE_WITH_IMM, IBV_SEND_SIGNALED, &sge,
			  (uintptr_t)theirs.bytes + 4000, theirs.mr->rkey);
		done(1, IBV_WC_SUCCESS);
		wc = expect_wc(pair.b.rcq, turn, IBV_WC_SUCCESS, SOON_MS);
		require(wc.opcode == IBV_WC_RECV_RDMA_WITH_IMM && wc.byte_len == 9000, "opcode %d",
			wc.opcode);
		expect_stream(&theirs, 4000, 9000, turn, "WRITE");
	}
	expect_no_wc(pair.b.rcq, 50);
}

/* Many requests at once, each to a page that is absent: they are carried out in their order. */
TEST(order)
{
	const unsigned int count = 60;
	unsigned int turn, i;

	name_ends_from_environment();
	open_ends();
	plan = default_plan;
	plan.cap.max_send_wr = 2 * count;
	plan.cqe = 4 * count;
	pair_open(&pair, &plan);
	demand(&mine, &ends[0], SIZE, IBV_ACCESS_LOCAL_WRITE);
	demand(&theirs, &ends[1], SIZE, REMOTE);
	for (i = 0; i < count; i++)
		memset(mine.bytes + i * PAGE, i + 1, PAGE);
	for (turn = 0; turn < 5; turn++) {
		drop_pages(theirs.bytes, SIZE);
		/* The last one counts. */
		for (i = 0; i < count; i++)
			post(i, IBV_WR_RDMA_WRITE, &mine, i * PAGE, PAGE, &theirs, i % 7 * PAGE + 2000);
		for (i = 0; i < count; i++)
			done(i, IBV_WC_SUCCESS);
		for (i = 0; i < 6; i++)
			require(theirs.bytes[i * PAGE + 2000] == (i < 4 ? 57 + i : 50 + i),
				"page %u has %u", i, theirs.bytes[i * PAGE + 2000]);
	}
}

static struct fuse fuse;

/* A buffer in a file whose server never answers. */
static void demand_stalled(struct buffer *buffer, struct end *end)
{
	void *bytes;

	fuse_start(&fuse, SIZE);
	fuse.shared->delay_ms = FUSE_NEVER;
	bytes = mmap(NULL, SIZE, PROT_READ | PROT_WRITE, MAP_SHARED, fuse_open(&fuse), 0);
	require(bytes != MAP_FAILED, "mmap: %s", strerror(errno));
	register_at(buffer, end, bytes, SIZE, IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_ON_DEMAND);
}

/*
 * The peer refuses a request while the next one waits for memory that does not come: all fails at once, and
 * what is posted then, too.
 */
TEST(refused_while_another_waits)
{
	struct ibv_sge good, stalled;
	struct ibv_send_wr *bad, wrs[2];
	struct buffer never;

	set_up();
	demand_stalled(&never, &ends[0]);
	good = buffer_sge(&mine, 0, 100);
	stalled = buffer_sge(&never, 0, 100);
	memset(mine.bytes, 1, SIZE);
	post_recv(&pair.a, 7, &good);
	wrs[1] = (struct ibv_send_wr){
		.wr_id = 2, .opcode = IBV_WR_RDMA_WRITE, .send_flags = IBV_SEND_SIGNALED,
		.sg_list = &stalled, .num_sge = 1,
		.wr.rdma = { (uintptr_t)theirs.bytes, theirs.mr->rkey },
	};
	wrs[0] = wrs[1];
	wrs[0].wr_id = 1;
	wrs[0].sg_list = &good;
	wrs[0].wr.rdma.rkey ^= 0x55;
	wrs[0].next = &wrs[1];
	require_ok(ibv_post_send(pair.a.qp, &wrs[0], &bad));
	done(1, IBV_WC_REM_ACCESS_ERR);
	done(2, IBV_WC_WR_FLUSH_ERR);
	expect_wc(pair.a.rcq, 7, IBV_WC_WR_FLUSH_ERR, SOON_MS);
	rc_wait_state(&pair.a, IBV_QPS_ERR, SOON_MS);
	post(3, IBV_WR_RDMA_WRITE, &mine, 0, 100, &theirs, 0);
	done(3, IBV_WC_WR_FLUSH_ERR);
	fuse_stop(&fuse);
}

/* ---- other transports and queues --------------------------------------- */

TEST(unreliable)
{
	struct ibv_sge sge;
	int turn;

	name_ends_from_environment();
	open_ends();
	plan = default_plan;
	plan.unreliable = true;
	pair_open(&pair, &plan);
	demand(&mine, &ends[0], SIZE, IBV_ACCESS_LOCAL_WRITE);
	demand(&theirs, &ends[1], SIZE, IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE);
	for (turn = 0; turn < 10; turn++) {
		drop_pages(theirs.bytes, SIZE);
		stream_fill(mine.bytes + 9, 50000, turn, 0);
		post(1, IBV_WR_RDMA_WRITE, &mine, 9, 50000, &theirs, 33);
		done(1, IBV_WC_SUCCESS);
		sge = buffer_sge(&theirs, 32 * PAGE + 5, 50000);
		post_recv(&pair.b, 7, &sge);
		post(2, IBV_WR_SEND, &mine, 9, 50000, &theirs, 0);
		done(2, IBV_WC_SUCCESS);
		expect_wc(pair.b.rcq, 7, IBV_WC_SUCCESS, SOON_MS);
		expect_stream(&theirs, 33, 50000, turn, "WRITE");
		expect_stream(&theirs, 32 * PAGE + 5, 50000, turn, "SEND");
	}
}

TEST(datagrams)
{
	struct ibv_qp_cap cap = { .max_send_wr = 16, .max_recv_wr = 16,
				  .max_send_sge = 1, .max_recv_sge = 1 };
	struct ibv_recv_wr recv = { .num_sge = 1 }, *bad;
	struct ibv_sge from, target;
	struct ibv_ah *ah;
	struct rc a, b;
	int turn, i;

	name_ends_from_environment();
	open_ends();
	ud_create(&a, &ends[0], &cap, 64);
	ud_create(&b, &ends[1], &cap, 64);
	ud_start(&a, 0x1111);
	ud_start(&b, 0x1111);
	demand(&mine, &ends[0], SIZE, 0);
	demand(&theirs, &ends[1], SIZE, IBV_ACCESS_LOCAL_WRITE);
	ah = ah_create(&ends[0], &ends[1]);
	recv.sg_list = &target;
	for (turn = 0; turn < 10; turn++) {
		drop_pages(theirs.bytes, SIZE);
		drop_pages(mine.bytes, SIZE);
		/* The header ends up in one page and the payload in others. */
		for (i = 0; i < 8; i++) {
			target = buffer_sge(&theirs, (4 * i + 1) * PAGE - 20, 40 + 1000);
			recv.wr_id = i;
			require_ok(ibv_post_recv(b.qp, &recv, &bad));
		}
		for (i = 0; i < 8; i++) {
			from = buffer_sge(&mine, (3 * i + 1) * PAGE - 500, 1000);
			stream_fill((void *)from.addr, 1000, turn * 8 + i, 0);
			require_ok(ud_post(&a, ah, b.qp->qp_num, 0x1111, 100 + i, IBV_SEND_SIGNALED,
					   &from));
		}
		for (i = 0; i < 8; i++)
			expect_wc(a.scq, 100 + i, IBV_WC_SUCCESS, SOON_MS);
		for (i = 0; i < 8; i++) {
			expect_wc(b.rcq, i, IBV_WC_SUCCESS, SOON_MS);
			expect_stream(&theirs, (4 * i + 1) * PAGE + 20, 1000, turn * 8 + i, "datagram");
		}
	}
}

TEST(shared_receives)
{
	struct ibv_srq_init_attr init = { .attr = { .max_wr = 16, .max_sge = 1 } };
	struct ibv_recv_wr wr = { .num_sge = 1 }, *bad;
	struct ibv_sge sge;
	int turn;

	name_ends_from_environment();
	open_ends();
	plan = default_plan;
	plan.srq = ibv_create_srq(ends[1].pd, &init);
	require(plan.srq, "ibv_create_srq: %s", strerror(errno));
	pair_open(&pair, &plan);
	demand(&mine, &ends[0], SIZE, IBV_ACCESS_LOCAL_WRITE);
	demand(&theirs, &ends[1], SIZE, REMOTE);
	wr.sg_list = &sge;
	for (turn = 0; turn < 20; turn++) {
		drop_pages(theirs.bytes, SIZE);
		sge = buffer_sge(&theirs, 4000, 30000);
		wr.wr_id = turn;
		require_ok(ibv_post_srq_recv(plan.srq, &wr, &bad));
		stream_fill(mine.bytes + 1, 30000, turn, 0);
		post(1, IBV_WR_SEND, &mine, 1, 30000, &theirs, 0);
		done(1, IBV_WC_SUCCESS);
		expect_wc(pair.b.rcq, turn, IBV_WC_SUCCESS, SOON_MS);
		expect_stream(&theirs, 4000, 30000, turn, "SEND");
	}
}

TEST(windows)
{
	struct ibv_mw_bind_info info = {
		.length = 20 * PAGE, .mw_access_flags = IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ,
	};
	struct ibv_qp_ex *qp;
	struct ibv_sge sge;
	struct ibv_mw *mw;
	uint32_t rkey;

	name_ends_from_environment();
	open_ends();
	plan = default_plan;
	plan.send_ops = IBV_QP_EX_WITH_BIND_MW;
	pair_open(&pair, &plan);
	demand(&mine, &ends[0], SIZE, IBV_ACCESS_LOCAL_WRITE);
	demand(&theirs, &ends[1], SIZE, IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_MW_BIND);
	mw = ibv_alloc_mw(ends[1].pd, IBV_MW_TYPE_2);
	require(mw, "ibv_alloc_mw: %s", strerror(errno));
	info.mr = theirs.mr;
	info.addr = (uintptr_t)theirs.bytes + PAGE;
	rkey = ibv_inc_rkey(mw->rkey);
	qp = ibv_qp_to_qp_ex(pair.b.qp);
	ibv_wr_start(qp);
	qp->wr_id = 3;
	qp->wr_flags = IBV_SEND_SIGNALED;
	ibv_wr_bind_mw(qp, mw, rkey, &info);
	require_ok(ibv_wr_complete(qp));
	expect_wc(pair.b.scq, 3, IBV_WC_SUCCESS, SOON_MS);

	stream_fill(mine.bytes + 3, 40000, 1, 0);
	sge = buffer_sge(&mine, 3, 40000);
	post_send(&pair.a, 1, IBV_WR_RDMA_WRITE, IBV_SEND_SIGNALED, &sge,
		  (uintptr_t)theirs.bytes + PAGE + 55, rkey);
	done(1, IBV_WC_SUCCESS);
	expect_stream(&theirs, PAGE + 55, 40000, 1, "WRITE");
	drop_pages(mine.bytes, SIZE);
	post_send(&pair.a, 2, IBV_WR_RDMA_READ, IBV_SEND_SIGNALED, &sge,
		  (uintptr_t)theirs.bytes + PAGE + 55, rkey);
	done(2, IBV_WC_SUCCESS);
	expect_stream(&mine, 3, 40000, 1, "READ");
}

/* ---- memory that is not there, or not so ------------------------------- */

/* The tenth page goes. */
static void expect_refused(enum ibv_wr_opcode opcode, enum ibv_wc_status status)
{
	post(1, opcode, &mine, 0, 20 * PAGE, &theirs, 0);
	done(1, status);
	again();
}

TEST(unmapped)
{
	struct ibv_sge sge;

	set_up();
	memset(mine.bytes, 1, SIZE);
	memset(theirs.bytes, 2, SIZE);
	/* Used once, so that the device knows the pages. */
	post(1, IBV_WR_RDMA_WRITE, &mine, 0, 20 * PAGE, &theirs, 0);
	done(1, IBV_WC_SUCCESS);
	require_sys(munmap(theirs.bytes + 10 * PAGE, PAGE));
	expect_refused(IBV_WR_RDMA_WRITE, IBV_WC_REM_OP_ERR);
	expect_refused(IBV_WR_RDMA_READ, IBV_WC_REM_OP_ERR);
	sge = buffer_sge(&theirs, 0, 20 * PAGE);
	post_recv(&pair.b, 5, &sge);
	post(1, IBV_WR_SEND, &mine, 0, 20 * PAGE, &theirs, 0);
	done(1, IBV_WC_REM_OP_ERR);
	expect_wc(pair.b.rcq, 5, IBV_WC_LOC_PROT_ERR, SOON_MS);
	again();
	/* Beside the hole all is well. */
	post(1, IBV_WR_RDMA_WRITE, &mine, 0, 10 * PAGE, &theirs, 0);
	done(1, IBV_WC_SUCCESS);
	post(2, IBV_WR_RDMA_READ, &mine, 0, 10 * PAGE, &theirs, 11 * PAGE);
	done(2, IBV_WC_SUCCESS);

	require_sys(munmap(mine.bytes + 10 * PAGE, PAGE));
	expect_refused(IBV_WR_RDMA_WRITE, IBV_WC_LOC_PROT_ERR);
	post(1, IBV_WR_RDMA_READ, &mine, 2 * PAGE, 9 * PAGE, &theirs, 0);
	done(1, IBV_WC_LOC_PROT_ERR);
}

TEST(read_only)
{
	set_up();
	memset(mine.bytes, 1, SIZE);
	memset(theirs.bytes, 2, SIZE);
	post(1, IBV_WR_RDMA_WRITE, &mine, 0, 20 * PAGE, &theirs, 0);
	done(1, IBV_WC_SUCCESS);
	require_sys(mprotect(theirs.bytes + 10 * PAGE, PAGE, PROT_READ));
	expect_refused(IBV_WR_RDMA_WRITE, IBV_WC_REM_OP_ERR);
	post(1, IBV_WR_RDMA_READ, &mine, 0, 20 * PAGE, &theirs, 0);
	done(1, IBV_WC_SUCCESS);
	require_sys(mprotect(theirs.bytes + 10 * PAGE, PAGE, PROT_NONE));
	expect_refused(IBV_WR_RDMA_READ, IBV_WC_REM_OP_ERR);
	require_sys(mprotect(theirs.bytes + 10 * PAGE, PAGE, PROT_READ | PROT_WRITE));
	post(1, IBV_WR_RDMA_WRITE, &mine, 0, 20 * PAGE, &theirs, 0);
	done(1, IBV_WC_SUCCESS);
}

/* Other memory at the same address, and the same memory at another. */
TEST(moved)
{
	uint8_t *other, *away;
	int turn;

	set_up();
	for (turn = 0; turn < 10; turn++) {
		stream_fill(mine.bytes, SIZE, turn, 0);
		post(1, IBV_WR_RDMA_WRITE, &mine, 0, SIZE, &theirs, 0);
		done(1, IBV_WC_SUCCESS);
		expect_stream(&theirs, 0, SIZE, turn, "WRITE");
		away = map_pages(SIZE);
		other = map_pages(SIZE);
		memset(other, 0x77, SIZE);
		require(mremap(theirs.bytes, SIZE, SIZE, MREMAP_MAYMOVE | MREMAP_FIXED, away) == away,
			"mremap: %s", strerror(errno));
		require(mremap(other, SIZE, SIZE, MREMAP_MAYMOVE | MREMAP_FIXED, theirs.bytes) ==
			theirs.bytes, "mremap: %s", strerror(errno));
		post(2, IBV_WR_RDMA_WRITE, &mine, 0, 5000, &theirs, 100);
		done(2, IBV_WC_SUCCESS);
		expect_stream(&theirs, 100, 5000, turn, "WRITE after the move");
		require(theirs.bytes[99] == 0x77 && theirs.bytes[5100] == 0x77, "not what moved here");
		require(stream_compare(away, SIZE, turn, 0) == SIZE, "what moved away was written to");
		munmap(away, SIZE);
	}
}

TEST(unmapped_and_mapped_again)
{
	int turn;

	set_up();
	for (turn = 0; turn < 20; turn++) {
		stream_fill(mine.bytes, SIZE, turn, 0);
		post(1, IBV_WR_RDMA_WRITE, &mine, 0, 20 * PAGE, &theirs, 0);
		done(1, IBV_WC_SUCCESS);
		expect_stream(&theirs, 0, 20 * PAGE, turn, "WRITE");
		require_sys(munmap(theirs.bytes, SIZE));
		require(mmap(theirs.bytes, SIZE, PROT_READ | PROT_WRITE,
			     MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0) == theirs.bytes, "mmap");
		expect_nothing_else(&theirs, 0, 0);
	}
}

/* ---- while pages come and go ------------------------------------------- */

static atomic_bool stop;

/* Even pages are left alone; of the odd ones nobody knows what they hold. */
static void *take_odd_pages(void *bytes)
{
	unsigned int i, turn = 0;

	while (!atomic_load(&stop)) {
		for (i = 1; i < SIZE / PAGE; i += 2) {
			drop_pages((uint8_t *)bytes + i * PAGE, PAGE);
			if (turn++ % 64 == 0)
				usleep(200);
		}
	}
	return NULL;
}

/* The same for all pages, whose content stays. */
static void *protect_pages(void *bytes)
{
	while (!atomic_load(&stop)) {
		require_sys(mprotect(bytes, SIZE, PROT_READ));
		require_sys(mprotect(bytes, SIZE, PROT_READ | PROT_WRITE));
		usleep(1000);
	}
	return NULL;
}

static void *page_out(void *bytes)
{
	while (!atomic_load(&stop)) {
		require_sys(madvise(bytes, SIZE, MADV_PAGEOUT));
		usleep(2000);
	}
	return NULL;
}

static pthread_t disturb(void *(*how)(void *), void *bytes)
{
	pthread_t thread;

	atomic_store(&stop, false);
	require_ok(pthread_create(&thread, NULL, how, bytes));
	return thread;
}

static void end_disturbance(pthread_t thread)
{
	atomic_store(&stop, true);
	require_ok(pthread_join(thread, NULL));
}

/* Data to the peer and back, by all ways, for some seconds, or more where that is slow. `step`: pages
 * that hold. */
static void exchange(unsigned int step, int seconds)
{
	int64_t end = now_ns() + seconds * NS_PER_S;
	struct ibv_sge sge;
	size_t i, length;
	uint64_t turn;

	for (turn = 0; turn < 3 || now_ns() < end; turn++) {
		sge = buffer_sge(&theirs, 0, SIZE);
		if (turn % 2)
			post_recv(&pair.b, 9, &sge);
		for (i = 0; i < SIZE; i += PAGE)
			stream_fill(mine.bytes + i, PAGE, turn, i);
		post(1, turn % 2 ? IBV_WR_SEND : IBV_WR_RDMA_WRITE, &mine, 0, SIZE, &theirs, 0);
		done(1, IBV_WC_SUCCESS);
		if (turn % 2)
			expect_wc(pair.b.rcq, 9, IBV_WC_SUCCESS, SOON_MS);
		for (i = 0; i < SIZE; i += step * PAGE) {
			length = stream_compare(theirs.bytes + i, PAGE, turn, i);
			require(length == PAGE, "turn %lu: byte %zu is not what was sent", turn, i + length);
		}
		memset(mine.bytes, 0, SIZE);
		post(2, IBV_WR_RDMA_READ, &mine, 0, SIZE, &theirs, 0);
		done(2, IBV_WC_SUCCESS);
		for (i = 0; i < SIZE; i += step * PAGE) {
			length = stream_compare(mine.bytes + i, PAGE, turn, i);
			require(length == PAGE, "turn %lu: byte %zu is not what is there", turn, i + length);
		}
	}
	note("%lu turns", turn);
}

TEST(taken_away_under_traffic)
{
	pthread_t thread;

	set_up();
	thread = disturb(take_odd_pages, theirs.bytes);
	exchange(2, 5);
	end_disturbance(thread);
	thread = disturb(take_odd_pages, mine.bytes);
	exchange(2, 5);
	end_disturbance(thread);
}

/* Mapped read-only for moments, in which what comes is refused; so only READs are tried. */
TEST(protected_under_traffic)
{
	int64_t end;
	pthread_t thread;

	set_up();
	stream_fill(theirs.bytes, SIZE, 1, 0);
	thread = disturb(protect_pages, theirs.bytes);
	for (end = now_ns() + 4 * NS_PER_S; now_ns() < end;) {
		memset(mine.bytes, 0, SIZE);
		post(1, IBV_WR_RDMA_READ, &mine, 0, SIZE, &theirs, 0);
		done(1, IBV_WC_SUCCESS);
		expect_stream(&mine, 0, SIZE, 1, "READ");
	}
	end_disturbance(thread);
}

/* A child's memory stays as it was when it was born, and the parent's gets what is sent. */
TEST(forked_under_traffic)
{
	static uint8_t copy[SIZE_MOST];
	unsigned int children = 0, turn;
	int status;
	pid_t child;

	set_up();
	for (turn = 0; turn < 40; turn++) {
		stream_fill(mine.bytes, SIZE, turn, 0);
		post(1, IBV_WR_RDMA_WRITE, &mine, 0, SIZE, &theirs, 0);
		usleep(turn * 100);
		child = fork();
		require_sys(child);
		if (!child) {
			/* Whoever else has this page writes to it meanwhile. */
			memcpy(copy, theirs.bytes, SIZE);
			usleep(50000);
			status = memcmp(copy, theirs.bytes, SIZE) != 0;
			memset(theirs.bytes, 0xff, SIZE);
			memset(mine.bytes, 0xff, SIZE);
			_exit(status);
		}
		children++;
		done(1, IBV_WC_SUCCESS);
		expect_stream(&theirs, 0, SIZE, turn, "WRITE");
		if (children == 4 || turn == 39) {
			for (; children; children--) {
				require_sys(wait(&status));
				require(WIFEXITED(status) && !WEXITSTATUS(status),
					"a child's memory has changed");
			}
			expect_stream(&theirs, 0, SIZE, turn, "after the children");
		}
	}
}

static size_t swapped(void *bytes)
{
	char line[256];
	size_t found = 0, kib;
	FILE *maps = fopen("/proc/self/smaps", "r");
	unsigned long start, end;
	bool here = false;

	require(maps, "smaps: %s", strerror(errno));
	while (fgets(line, sizeof(line), maps)) {
		if (sscanf(line, "%lx-%lx ", &start, &end) == 2)
			here = start <= (uintptr_t)bytes && (uintptr_t)bytes < end;
		else if (here && sscanf(line, "Swap: %zu kB", &kib) == 1)
			found += kib;
	}
	fclose(maps);
	return found * 1024 / PAGE;
}

static void swap_out(const struct buffer *buffer)
{
	int64_t deadline = now_ns() + SOON_MS * NS_PER_MS;

	do {
		require_sys(madvise(buffer->bytes, buffer->size, MADV_PAGEOUT));
		if (swapped(buffer->bytes) >= buffer->size / PAGE / 2)
			return;
		usleep(10000);
	} while (now_ns() < deadline);
	fail("it is not swapped out: %zu pages are", swapped(buffer->bytes));
}

/*
 * What the peer has written must not be lost, even if the process's own page table
 * calls the page clean, as it does when it was only read since it came back.
 */
TEST(swapped_out)
{
	size_t i;
	int turn;

	set_up();
	for (turn = 0; turn < 10; turn++) {
		stream_fill(mine.bytes, SIZE, turn, 0);
		swap_out(&mine);
		post(1, IBV_WR_RDMA_WRITE, &mine, 0, SIZE, &theirs, 0);
		done(1, IBV_WC_SUCCESS);
		swap_out(&theirs);
		for (i = 0; i < SIZE; i += PAGE)
			require(theirs.bytes[i] == mine.bytes[i], "byte %zu", i);
		post(2, IBV_WR_RDMA_WRITE, &mine, 5, SIZE / 2, &theirs, 5 + SIZE / 4);
		done(2, IBV_WC_SUCCESS);
		swap_out(&theirs);
		drop_pages(mine.bytes, SIZE);
		post(3, IBV_WR_RDMA_READ, &mine, 0, SIZE, &theirs, 0);
		done(3, IBV_WC_SUCCESS);
		expect_stream(&mine, 0, SIZE / 4 + 5, turn, "first part");
		require(stream_compare(mine.bytes + SIZE / 4 + 5, SIZE / 2, turn, 5) == SIZE / 2,
			"turn %d: what was written to a page that came from swap is lost", turn);
	}
}

TEST(swapped_out_under_traffic)
{
	pthread_t thread;

	set_up();
	thread = disturb(page_out, theirs.bytes);
	exchange(1, 5);
	end_disturbance(thread);
	thread = disturb(page_out, mine.bytes);
	exchange(1, 5);
	end_disturbance(thread);
}

TEST(dereg_under_traffic)
{
	struct ibv_wc wc;
	int round, i;

	open_pair();
	for (round = 0; round < 20; round++) {
		demand(&mine, &ends[0], SIZE, IBV_ACCESS_LOCAL_WRITE);
		demand(&theirs, &ends[1], SIZE, REMOTE);
		for (i = 0; i < 8; i++)
			post(i, i % 2 ? IBV_WR_RDMA_READ : IBV_WR_RDMA_WRITE, &mine, 0, SIZE, &theirs, 0);
		usleep(round * 200);
		require_ok(ibv_dereg_mr(round % 2 ? mine.mr : theirs.mr));
		memset(round % 2 ? mine.bytes : theirs.bytes, 0x22, SIZE);
		for (i = 0; i < 8; i++)
			require(poll_within(pair.a.scq, &wc, 2 * SOON_MS), "%d did not complete", i);
		for (i = 0; i < (int)SIZE; i++)
			require((round % 2 ? mine.bytes : theirs.bytes)[i] == 0x22,
				"byte %d was written after the end of the region", i);
		require_ok(ibv_dereg_mr(round % 2 ? theirs.mr : mine.mr));
		munmap(mine.bytes, SIZE);
		munmap(theirs.bytes, SIZE);
		again();
	}
}

/* The process at the other end dies while it is sent to. */
TEST(exit_under_traffic)
{
	struct { struct rc_address address; uint64_t at; uint32_t rkey; } told;
	struct rc_address address;
	int to_child[2], to_parent[2], round, i, status;
	struct ibv_wc wc;
	struct rc rc;
	pid_t child;

	name_ends_from_environment();
	plan = default_plan;
	plan.timeout = 10;
	for (round = 0; round < 6; round++) {
		require_sys(pipe(to_child));
		require_sys(pipe(to_parent));
		child = fork();
		require_sys(child);
		if (!child) {
			end_open(&ends[1], FAMILY_ANY);
			rc_create(&rc, &ends[1], &plan);
			demand(&theirs, &ends[1], SIZE, REMOTE);
			told.address = rc_address(&rc);
			told.at = (uintptr_t)theirs.bytes;
			told.rkey = theirs.mr->rkey;
			require_sys(write(to_parent[1], &told, sizeof(told)));
			require_sys(read(to_child[0], &address, sizeof(address)));
			rc_connect(&rc, &address, &plan);
			require_sys(write(to_parent[1], &told, 1));
			for (;;)
				drop_pages(theirs.bytes, SIZE);
		}
		end_open(&ends[0], FAMILY_ANY);
		rc_create(&rc, &ends[0], &plan);
		demand(&mine, &ends[0], SIZE, IBV_ACCESS_LOCAL_WRITE);
		require(read(to_parent[0], &told, sizeof(told)) == sizeof(told), "the child is gone");
		address = rc_address(&rc);
		require_sys(write(to_child[1], &address, sizeof(address)));
		rc_connect(&rc, &told.address, &plan);
		require(read(to_parent[0], &status, 1) == 1, "the child is gone");
		for (i = 0; i < 8; i++) {
			struct ibv_sge sge = buffer_sge(&mine, 0, SIZE);

			post_send(&rc, i, i % 2 ? IBV_WR_RDMA_READ : IBV_WR_RDMA_WRITE,
				  IBV_SEND_SIGNALED, &sge, told.at, told.rkey);
		}
		usleep(round * 3000);
		require_sys(kill(child, SIGKILL));
		require(waitpid(child, &status, 0) == child, "waitpid");
		for (i = 0; i < 8; i++)
			require(poll_within(rc.scq, &wc, 4 * SOON_MS), "%d did not complete", i);
		buffer_destroy(&mine);
		rc_destroy(&rc);
		end_close(&ends[0]);
		close(to_child[0]);
		close(to_child[1]);
		close(to_parent[0]);
		close(to_parent[1]);
	}
}

/* ---- the whole address space ------------------------------------------- */

static struct ibv_mr *register_implicit(struct end *end, int access)
{
	struct ibv_mr *mr = ibv_reg_mr(end->pd, NULL, SIZE_MAX, access | IBV_ACCESS_ON_DEMAND);

	require(mr, "ibv_reg_mr: %s", strerror(errno));
	return mr;
}

#define AREAS 100

TEST(implicit)
{
	struct ibv_mr *from, *to;
	uint8_t *areas[AREAS], *source;
	struct ibv_sge sge;
	unsigned int i, turn;

	open_pair();
	from = register_implicit(&ends[0], IBV_ACCESS_LOCAL_WRITE);
	to = register_implicit(&ends[1], REMOTE);
	source = map_pages(SIZE);
	for (i = 0; i < AREAS; i++) {
		/* Far from each other, and none where one of the others begins. */
		areas[i] = mmap((void *)(0x100000000000UL + i * 0x10003000UL * (i % 7 + 1)), 8 * PAGE,
				PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
		require(areas[i] != MAP_FAILED, "mmap: %s", strerror(errno));
	}
	for (turn = 0; turn < 2; turn++) {
		for (i = 0; i < AREAS; i++) {
			stream_fill(source, 20000, i + turn, 0);
			sge = (struct ibv_sge){ (uintptr_t)source, 20000, from->lkey };
			post_send(&pair.a, i, IBV_WR_RDMA_WRITE, IBV_SEND_SIGNALED, &sge,
				  (uintptr_t)areas[i] + 1234, to->rkey);
			done(i, IBV_WC_SUCCESS);
			require(stream_compare(areas[i] + 1234, 20000, i + turn, 0) == 20000,
				"area %u", i);
		}
	}
	/* What a READ brings goes to an area, too. */
	sge = (struct ibv_sge){ (uintptr_t)areas[3] + 7, 20000, from->lkey };
	post_send(&pair.a, 1, IBV_WR_RDMA_READ, IBV_SEND_SIGNALED, &sge,
		  (uintptr_t)areas[50] + 1234, to->rkey);
	done(1, IBV_WC_SUCCESS);
	require(stream_compare(areas[3] + 7, 20000, 51, 0) == 20000, "READ");
	/* All go at once, and others come. */
	for (i = 0; i < AREAS; i++)
		require_sys(munmap(areas[i], 8 * PAGE));
	for (i = 0; i < AREAS; i++) {
		areas[i] = map_pages(2 << 20);
		sge = (struct ibv_sge){ (uintptr_t)source, 20000, from->lkey };
		post_send(&pair.a, i, IBV_WR_RDMA_WRITE, IBV_SEND_SIGNALED, &sge,
			  (uintptr_t)areas[i], to->rkey);
		done(i, IBV_WC_SUCCESS);
	}
	/* There is nothing at those addresses: the kernel's, none at all, and the first. */
	sge = (struct ibv_sge){ (uintptr_t)source, 100, from->lkey };
	post_send(&pair.a, 1, IBV_WR_RDMA_WRITE, IBV_SEND_SIGNALED, &sge, 0xffff888000000000UL,
		  to->rkey);
	done(1, IBV_WC_REM_OP_ERR);
	again();
	post_send(&pair.a, 1, IBV_WR_RDMA_READ, IBV_SEND_SIGNALED, &sge, 0x700000001000UL, to->rkey);
	done(1, IBV_WC_REM_OP_ERR);
	again();
	post_send(&pair.a, 1, IBV_WR_RDMA_READ, IBV_SEND_SIGNALED, &sge, 0, to->rkey);
	done(1, IBV_WC_REM_OP_ERR);
	again();
	post_send(&pair.a, 1, IBV_WR_RDMA_WRITE, IBV_SEND_SIGNALED, &sge, UINT64_MAX - 50, to->rkey);
	done(1, IBV_WC_REM_ACCESS_ERR);
	require_ok(ibv_dereg_mr(from));
	require_ok(ibv_dereg_mr(to));
	require(!ibv_reg_mr(ends[0].pd, NULL, SIZE_MAX, IBV_ACCESS_ON_DEMAND | IBV_ACCESS_HUGETLB) &&
		errno == EINVAL, "all of it in huge pages");
}

/* ---- kinds of regions -------------------------------------------------- */

TEST(huge_pages)
{
	size_t size = huge_page_size();
	uint8_t *bytes = mmap(NULL, 2 * size, PROT_READ | PROT_WRITE,
			      MAP_PRIVATE | MAP_ANONYMOUS | MAP_HUGETLB, -1, 0);

	require(bytes != MAP_FAILED, "mmap of huge pages: %s", strerror(errno));
	open_pair();
	demand(&mine, &ends[0], SIZE, IBV_ACCESS_LOCAL_WRITE);
	register_at(&theirs, &ends[1], bytes, 2 * size,
		    REMOTE | IBV_ACCESS_ON_DEMAND | IBV_ACCESS_HUGETLB);
	stream_fill(mine.bytes, SIZE, 4, 0);
	/* Across the border of two. */
	post(1, IBV_WR_RDMA_WRITE, &mine, 0, SIZE, &theirs, size - 30 * PAGE - 1);
	done(1, IBV_WC_SUCCESS);
	expect_stream(&theirs, size - 30 * PAGE - 1, SIZE, 4, "WRITE");
	drop_pages(mine.bytes, SIZE);
	post(2, IBV_WR_RDMA_READ, &mine, 0, SIZE, &theirs, size - 30 * PAGE - 1);
	done(2, IBV_WC_SUCCESS);
	expect_stream(&mine, 0, SIZE, 4, "READ");
}

/* Addresses are offsets. */
TEST(zero_based)
{
	static const int kinds[] = { 0, IBV_ACCESS_ON_DEMAND, IBV_ACCESS_RELAXED_ORDERING };
	struct ibv_sge sge;
	unsigned int i;

	open_pair();
	demand(&mine, &ends[0], SIZE, IBV_ACCESS_LOCAL_WRITE);
	for (i = 0; i < ARRAY_SIZE(kinds); i++) {
		register_at(&theirs, &ends[1], map_pages(SIZE), SIZE,
			    REMOTE | IBV_ACCESS_ZERO_BASED | kinds[i]);
		stream_fill(mine.bytes, 9000, i, 0);
		sge = buffer_sge(&mine, 0, 9000);
		post_send(&pair.a, 1, IBV_WR_RDMA_WRITE, IBV_SEND_SIGNALED, &sge, 3 * PAGE + 5,
			  theirs.mr->rkey);
		done(1, IBV_WC_SUCCESS);
		expect_stream(&theirs, 3 * PAGE + 5, 9000, i, "WRITE");
		expect_nothing_else(&theirs, 3 * PAGE + 5, 9000);
		post_send(&pair.a, 1, IBV_WR_RDMA_WRITE, IBV_SEND_SIGNALED, &sge, SIZE - 8999,
			  theirs.mr->rkey);
		done(1, IBV_WC_REM_ACCESS_ERR);
		again();
		post(1, IBV_WR_RDMA_WRITE, &mine, 0, 9000, &theirs, 0);
		done(1, IBV_WC_REM_ACCESS_ERR);
		again();
		buffer_destroy(&theirs);
	}
}

/* The command that librxe has not. */
TEST(registered_anew)
{
	struct ib_uverbs_rereg_mr_resp answer = {};
	struct {
		struct ib_uverbs_cmd_hdr header;
		struct ib_uverbs_rereg_mr body;
	} command = {
		.header = {
			.command = IB_USER_VERBS_CMD_REREG_MR,
			.in_words = sizeof(command) / 4, .out_words = sizeof(answer) / 4,
		},
	};
	uint8_t *other = map_pages(SIZE);
	struct ibv_sge sge;

	set_up();
	stream_fill(mine.bytes, SIZE, 1, 0);
	post(1, IBV_WR_RDMA_WRITE, &mine, 0, SIZE, &theirs, 0);
	done(1, IBV_WC_SUCCESS);
	command.body = (struct ib_uverbs_rereg_mr){
		.response = (uintptr_t)&answer, .mr_handle = theirs.mr->handle,
		.flags = IBV_REREG_MR_CHANGE_TRANSLATION, .start = (uintptr_t)other,
		.length = SIZE, .hca_va = (uintptr_t)other,
	};
	require(write(ends[1].context->cmd_fd, &command, sizeof(command)) == sizeof(command),
		"rereg: %s", strerror(errno));
	sge = buffer_sge(&mine, 0, 9000);
	post_send(&pair.a, 1, IBV_WR_RDMA_WRITE, IBV_SEND_SIGNALED, &sge, (uintptr_t)other + 77,
		  answer.rkey);
	done(1, IBV_WC_SUCCESS);
	require(stream_compare(other + 77, 9000, 1, 0) == 9000, "WRITE to the new memory");
	post_send(&pair.a, 1, IBV_WR_RDMA_WRITE, IBV_SEND_SIGNALED, &sge, (uintptr_t)theirs.bytes,
		  theirs.mr->rkey);
	done(1, IBV_WC_REM_ACCESS_ERR);
}

/* ---- advice ------------------------------------------------------------ */

#define FLUSH IB_UVERBS_ADVISE_MR_FLAG_FLUSH
#define READ_SOON IB_UVERBS_ADVISE_MR_ADVICE_PREFETCH
#define WRITE_SOON IB_UVERBS_ADVISE_MR_ADVICE_PREFETCH_WRITE
#define NO_FAULT IB_UVERBS_ADVISE_MR_ADVICE_PREFETCH_NO_FAULT

/* How often pages were faulted in for packets, of end b's device. */
static unsigned long page_faults(void)
{
	char command[200];
	unsigned long count;
	FILE *output;

	snprintf(command, sizeof(command),
		 "ip netns exec %s rdma statistic show link %s/1 | grep -o 'page_faults [0-9]*'",
		 ends[1].ns, ends[1].dev);
	output = popen(command, "r");
	require(output && fscanf(output, "page_faults %lu", &count) == 1, "%s", command);
	pclose(output);
	return count;
}

TEST(prefetch)
{
	struct ibv_sge sges[2];
	unsigned long before;
	int64_t deadline;

	set_up();
	sges[0] = buffer_sge(&theirs, 100, 10 * PAGE);
	sges[1] = buffer_sge(&theirs, 30 * PAGE, 10 * PAGE);
	require_ok(advise(ends[1].pd, NO_FAULT, FLUSH, sges, 2));
	require(!resident(theirs.bytes, SIZE), "pages came that were not to");
	require_ok(advise(ends[1].pd, WRITE_SOON, FLUSH, sges, 2));
	require(resident(theirs.bytes, SIZE) == 21, "%zu pages came", resident(theirs.bytes, SIZE));
	before = page_faults();
	stream_fill(mine.bytes, SIZE, 1, 0);
	post(1, IBV_WR_RDMA_WRITE, &mine, 0, 10 * PAGE, &theirs, 100);
	done(1, IBV_WC_SUCCESS);
	require(page_faults() == before, "it was faulted in again");
	post(1, IBV_WR_RDMA_WRITE, &mine, 0, PAGE, &theirs, 50 * PAGE);
	done(1, IBV_WC_SUCCESS);
	require(page_faults() > before, "what was not prefetched is there");

	drop_pages(theirs.bytes, SIZE);
	require_ok(advise(ends[1].pd, READ_SOON, FLUSH, sges, 2));
	before = page_faults();
	post(1, IBV_WR_RDMA_READ, &mine, 0, 10 * PAGE, &theirs, 100);
	done(1, IBV_WC_SUCCESS);
	require(page_faults() == before, "it was faulted in again");

	/* What is there is made known. */
	drop_pages(theirs.bytes, SIZE);
	memset(theirs.bytes, 5, SIZE);
	require_ok(advise(ends[1].pd, NO_FAULT, FLUSH, sges, 2));
	before = page_faults();
	post(1, IBV_WR_RDMA_WRITE, &mine, 0, 10 * PAGE, &theirs, 100);
	done(1, IBV_WC_SUCCESS);
	require(page_faults() == before, "it was faulted in again");

	drop_pages(theirs.bytes, SIZE);
	require_ok(advise(ends[1].pd, WRITE_SOON, 0, sges, 2));
	for (deadline = now_ns() + SOON_MS * NS_PER_MS; resident(theirs.bytes, SIZE) != 21;)
		require(now_ns() < deadline, "it does not come");
}

TEST(wrong_advice)
{
	struct buffer pinned, readable;
	struct ibv_sge sge;
	struct ibv_pd *pd;

	set_up();
	sge = buffer_sge(&theirs, 0, SIZE);
	require_ok(advise(ends[1].pd, READ_SOON, FLUSH, &sge, 1));
	require(advise(ends[1].pd, 77, FLUSH, &sge, 1) == EOPNOTSUPP, "unknown advice");
	require(advise(ends[1].pd, READ_SOON, 2, &sge, 1) == EINVAL, "unknown flags");
	sge.addr++;
	require(advise(ends[1].pd, READ_SOON, 0, &sge, 1) == EFAULT, "outside of the region");
	sge = buffer_sge(&theirs, 0, PAGE);
	sge.lkey ^= 1;
	require(advise(ends[1].pd, READ_SOON, 0, &sge, 1) == EFAULT, "a key that is none");
	sge.lkey = 0;
	require(advise(ends[1].pd, READ_SOON, FLUSH, &sge, 1) == EFAULT, "no key");
	buffer_create(&pinned, &ends[1], PAGE, 0);
	sge = buffer_sge(&pinned, 0, PAGE);
	require(advise(ends[1].pd, READ_SOON, FLUSH, &sge, 1) == EFAULT, "memory that is pinned");
	demand(&readable, &ends[1], SIZE, IBV_ACCESS_REMOTE_READ);
	sge = buffer_sge(&readable, 0, PAGE);
	require(advise(ends[1].pd, WRITE_SOON, 0, &sge, 1) == EFAULT, "memory to read from");
	require_ok(advise(ends[1].pd, READ_SOON, FLUSH, &sge, 1));
	pd = ibv_alloc_pd(ends[1].context);
	require(pd, "ibv_alloc_pd: %s", strerror(errno));
	require(advise(pd, READ_SOON, FLUSH, &sge, 1) == EFAULT, "another domain's");
	require_sys(mprotect(theirs.bytes, SIZE, PROT_READ));
	sge = buffer_sge(&theirs, 0, PAGE);
	require(advise(ends[1].pd, WRITE_SOON, FLUSH, &sge, 1) == EFAULT, "mapped read-only");
	require_sys(munmap(theirs.bytes, SIZE));
	require(advise(ends[1].pd, READ_SOON, FLUSH, &sge, 1) == EFAULT, "not mapped");
	require_ok(advise(ends[1].pd, NO_FAULT, FLUSH, &sge, 1));
}

/* ---- chunks that cannot be removed --------------------------------------- */

/* More than the kernel runs work items of one queue at a time. */
#define CHUNKS 2400ul
#define CHUNK (512 * PAGE)
#define TAKERS 4

static uint8_t *chunks;

/*
 * With several of these an invalidation is active all of the time. The kernel looks at each entry of the page
 * tables, which takes long; MADV_DONTNEED would free the tables.
 */
static void *take_away(void *unused)
{
	for (;;)
		if (madvise(chunks, CHUNKS * CHUNK, MADV_FREE))
			return unused;
}

/* A process that has many chunks removed, and lets none of them go. */
static void keep_chunks(int report)
{
	struct ibv_sge sge = { .length = 1 };
	pthread_t thread;
	struct ibv_mr *mr;
	unsigned long i;

	end_open(&ends[0], FAMILY_ANY);
	chunks = mmap(NULL, CHUNKS * CHUNK, PROT_READ | PROT_WRITE,
		      MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	require(chunks != MAP_FAILED, "mmap: %s", strerror(errno));
	madvise(chunks, CHUNKS * CHUNK, MADV_NOHUGEPAGE);
	mr = ibv_reg_mr(ends[0].pd, chunks, CHUNKS * CHUNK,
			IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_ON_DEMAND);
	require(mr, "ibv_reg_mr: %s", strerror(errno));
	sge.lkey = mr->lkey;
	for (i = 0; i < CHUNKS; i++) {
		sge.addr = (uintptr_t)chunks + i * CHUNK;
		require_ok(advise(ends[0].pd, IB_UVERBS_ADVISE_MR_ADVICE_PREFETCH_WRITE,
				  IB_UVERBS_ADVISE_MR_FLAG_FLUSH, &sge, 1));
	}
	/* So that others run. One that has to wait for a CPU holds up the removal as well. */
	require(nice(19) >= 0, "nice: %s", strerror(errno));
	for (i = 0; i < TAKERS; i++)
		require(!pthread_create(&thread, NULL, take_away, NULL), "pthread_create");
	usleep(300000 * time_scale());
	require_ok(ibv_dereg_mr(mr));
	require_sys(write(report, "", 1));
	pause();
}

/* Takes more contexts with workers, and chunks, than a user may have at a time. */
static void use_and_give_back(unsigned int times)
{
	uint8_t *bytes = map_pages(PAGE);
	struct ibv_mr *mr;
	struct ibv_sge sge;
	unsigned int i;
	struct rc rc;

	for (i = 0; i < times; i++) {
		int64_t deadline = now_ns() + 4 * SOON_MS * NS_PER_MS;

		end_open(&ends[1], FAMILY_ANY);
		do {
			mr = ibv_reg_mr(ends[1].pd, bytes, PAGE,
					IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_ON_DEMAND);
			require(mr || (errno == ENOMEM && now_ns() < deadline),
				"what context %u needs is not given back: %s", i, strerror(errno));
		} while (!mr);
		sge = (struct ibv_sge){ (uintptr_t)bytes, PAGE, mr->lkey };
		require_ok(advise(ends[1].pd, IB_UVERBS_ADVISE_MR_ADVICE_PREFETCH_WRITE,
				  IB_UVERBS_ADVISE_MR_FLAG_FLUSH, &sge, 1));
		rc_create(&rc, &ends[1], &plan);
		rc_destroy(&rc);
		require_ok(ibv_dereg_mr(mr));
		end_close(&ends[1]);
		require(now_ns() < deadline, "context %u took too long", i);
	}
}

/* The kernel runs modprobe by a queue that all may use. */
static void use_queue_of_all(void)
{
	int64_t before = now_ns(), took;

	require(socket(AF_ECONET, SOCK_STREAM, 0) < 0, "there is Econet");
	took = (now_ns() - before) / NS_PER_MS;
	require(took < 2 * SOON_MS, "the kernel took %ld ms to look for a module", (long)took);
}

/*
 * The removal of a chunk waits until no invalidation is active in its process, which decides how long
 * that is. Nobody else waits.
 */
TEST(removal_takes_forever)
{
	int report[2], status;
	char byte;
	pid_t child;

	name_ends_from_environment();
	plan = default_plan;
	use_queue_of_all();
	require_sys(pipe(report));
	child = fork();
	require_sys(child);
	if (!child)
		keep_chunks(report[1]);
	close(report[1]);
	require(read(report[0], &byte, 1) == 1, "the child is gone");
	/* A grace period, and the time to make a worker for each chunk that is removed. */
	sleep(6 * time_scale());
	use_queue_of_all();
	use_and_give_back(160);
	use_queue_of_all();
	require_sys(kill(child, SIGKILL));
	require(waitpid(child, &status, 0) == child, "waitpid");
	use_and_give_back(10);
}

TEST_HARNESS_MAIN
