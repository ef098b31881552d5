// SPDX-License-Identifier: GPL-2.0
/*
 * Memory windows: what they let a peer do, what they refuse, and how they are
 * taken away.
 */
#include "harness.h"
#include "rc.h"

#define SIZE 65536
#define MR_RIGHTS (IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_MW_BIND)
#define ALL (IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_ATOMIC)
/* Where the windows of these tests are in the region. */
#define AT 4096
#define LENGTH 8192

static struct rc_plan plan;
static struct rc_pair pair;
static struct buffer mine;	/* of end a, the peer */
static struct buffer theirs;	/* of end b, which has the windows */
static struct ibv_mw *mw;

static void set_up(enum ibv_mw_type type)
{
	name_ends_from_environment();
	open_ends();
	plan = default_plan;
	plan.access |= IBV_ACCESS_REMOTE_ATOMIC;
	plan.send_ops = IBV_QP_EX_WITH_BIND_MW | IBV_QP_EX_WITH_LOCAL_INV |
			IBV_QP_EX_WITH_SEND_WITH_INV;
	buffer_create(&mine, &ends[0], SIZE, IBV_ACCESS_LOCAL_WRITE);
	buffer_create(&theirs, &ends[1], SIZE, MR_RIGHTS);
	memset(mine.bytes, 0x11, SIZE);
	memset(theirs.bytes, 0x22, SIZE);
	pair_open(&pair, &plan);
	mw = ibv_alloc_mw(ends[1].pd, type);
	require(mw, "ibv_alloc_mw: %s", strerror(errno));
}

/* A new connection; the old one has failed. */
static void again(void)
{
	pair_destroy(&pair);
	pair_open(&pair, &plan);
}

static struct ibv_qp_ex *begin(struct rc *rc, uint64_t wr_id)
{
	struct ibv_qp_ex *qp = ibv_qp_to_qp_ex(rc->qp);

	require(qp, "not an extended queue pair");
	ibv_wr_start(qp);
	qp->wr_id = wr_id;
	qp->wr_flags = IBV_SEND_SIGNALED;
	return qp;
}

static struct ibv_mw_bind_info info(const struct buffer *buffer, size_t offset, size_t length,
				    unsigned int access)
{
	return (struct ibv_mw_bind_info){
		.mr = buffer->mr, .addr = (uintptr_t)buffer->bytes + offset, .length = length,
		.mw_access_flags = access,
	};
}

/* Type 1. */
static void bind_1(struct ibv_mw_bind_info bind_info, enum ibv_wc_status status)
{
	struct ibv_mw_bind bind = {
		.wr_id = 100, .send_flags = IBV_SEND_SIGNALED, .bind_info = bind_info,
	};
	struct ibv_wc wc;

	require_ok(ibv_bind_mw(pair.b.qp, mw, &bind));
	wc = expect_wc(pair.b.scq, 100, status, SOON_MS);
	require(status != IBV_WC_SUCCESS || wc.opcode == IBV_WC_BIND_MW, "opcode %d", wc.opcode);
}

/* Type 2, by a key with the next variant. */
static void post_bind_2(struct ibv_mw_bind_info bind_info)
{
	struct ibv_qp_ex *qp = begin(&pair.b, 101);
	uint32_t key = ibv_inc_rkey(mw->rkey);

	ibv_wr_bind_mw(qp, mw, key, &bind_info);
	require_ok(ibv_wr_complete(qp));
	mw->rkey = key;
}

static void bind_2(struct ibv_mw_bind_info bind_info, enum ibv_wc_status status)
{
	post_bind_2(bind_info);
	expect_wc(pair.b.scq, 101, status, SOON_MS);
}

static void local_invalidate(uint32_t rkey, enum ibv_wc_status status)
{
	struct ibv_qp_ex *qp = begin(&pair.b, 102);
	struct ibv_wc wc;

	ibv_wr_local_inv(qp, rkey);
	require_ok(ibv_wr_complete(qp));
	wc = expect_wc(pair.b.scq, 102, status, SOON_MS);
	require(status != IBV_WC_SUCCESS || wc.opcode == IBV_WC_LOCAL_INV, "opcode %d",
		wc.opcode);
}

/* The peer asks for the bytes at an address. */
static void ask(enum ibv_wr_opcode opcode, uint64_t addr, uint32_t rkey, uint32_t length,
		enum ibv_wc_status status)
{
	struct ibv_sge sge = buffer_sge(&mine, 0, length);

	post_send(&pair.a, 1, opcode, IBV_SEND_SIGNALED, &sge, addr, rkey);
	expect_wc(pair.a.scq, 1, status, SOON_MS);
}

static void write_to(uint64_t addr, uint32_t length, enum ibv_wc_status status)
{
	ask(IBV_WR_RDMA_WRITE, addr, mw->rkey, length, status);
}

static void read_from(uint64_t addr, uint32_t length, enum ibv_wc_status status)
{
	ask(IBV_WR_RDMA_READ, addr, mw->rkey, length, status);
}

static uint64_t window(size_t offset)
{
	return (uintptr_t)theirs.bytes + AT + offset;
}

static void expect_bytes(size_t from, size_t to, uint8_t value)
{
	size_t i;

	for (i = from; i < to; i++)
		require(theirs.bytes[i] == value, "byte %zu is 0x%02x", i, theirs.bytes[i]);
}

/* Rules: MWN-2, MWN-3 */
TEST(type_1)
{
	uint32_t old;

	set_up(IBV_MW_TYPE_1);
	write_to(window(0), 8, IBV_WC_REM_ACCESS_ERR);
	again();
	bind_1(info(&theirs, AT, LENGTH, ALL), IBV_WC_SUCCESS);
	write_to(window(0), LENGTH, IBV_WC_SUCCESS);
	expect_bytes(0, AT, 0x22);
	expect_bytes(AT, AT + LENGTH, 0x11);
	expect_bytes(AT + LENGTH, SIZE, 0x22);
	read_from(window(LENGTH - 8), 8, IBV_WC_SUCCESS);
	/* Another connection of the same domain has it, too. */
	again();
	write_to(window(100), 8, IBV_WC_SUCCESS);
	/* Bound anew, the old key is none any more. */
	old = mw->rkey;
	bind_1(info(&theirs, 0, AT, ALL), IBV_WC_SUCCESS);
	require(mw->rkey != old, "the key is the same");
	write_to((uintptr_t)theirs.bytes, AT, IBV_WC_SUCCESS);
	ask(IBV_WR_RDMA_WRITE, (uintptr_t)theirs.bytes, old, 8, IBV_WC_REM_ACCESS_ERR);
	again();
	/* Taken away. */
	bind_1((struct ibv_mw_bind_info){ .mr = theirs.mr }, IBV_WC_SUCCESS);
	write_to((uintptr_t)theirs.bytes, 8, IBV_WC_REM_ACCESS_ERR);
}

/* Rules: MWN-1 */
TEST(bounds)
{
	set_up(IBV_MW_TYPE_1);
	bind_1(info(&theirs, AT, LENGTH, ALL), IBV_WC_SUCCESS);
	write_to(window(-1), 8, IBV_WC_REM_ACCESS_ERR);
	again();
	write_to(window(LENGTH - 7), 8, IBV_WC_REM_ACCESS_ERR);
	again();
	read_from(window(LENGTH), 1, IBV_WC_REM_ACCESS_ERR);
	again();
	read_from(window(1), LENGTH, IBV_WC_REM_ACCESS_ERR);
	expect_bytes(0, SIZE, 0x22);
}

/* Rules: MWN-1 */
TEST(rights)
{
	set_up(IBV_MW_TYPE_1);
	bind_1(info(&theirs, AT, LENGTH, IBV_ACCESS_REMOTE_READ), IBV_WC_SUCCESS);
	read_from(window(0), LENGTH, IBV_WC_SUCCESS);
	write_to(window(0), 8, IBV_WC_REM_ACCESS_ERR);
	again();
	bind_1(info(&theirs, AT, LENGTH, IBV_ACCESS_REMOTE_WRITE), IBV_WC_SUCCESS);
	read_from(window(0), 8, IBV_WC_REM_ACCESS_ERR);
	/* The region's own key gives none of them. */
	again();
	ask(IBV_WR_RDMA_READ, window(0), theirs.mr->rkey, 8, IBV_WC_REM_ACCESS_ERR);
	expect_bytes(0, SIZE, 0x22);
}

/* Rules: MWN-5, MWN-12, MWN-13 */
TEST(type_2)
{
	struct rc_pair other;
	struct ibv_sge sge;

	set_up(IBV_MW_TYPE_2);
	bind_2(info(&theirs, AT, LENGTH, ALL), IBV_WC_SUCCESS);
	write_to(window(0), LENGTH, IBV_WC_SUCCESS);
	expect_bytes(AT, AT + LENGTH, 0x11);
	/* It is of this connection alone. */
	pair_open(&other, &plan);
	sge = buffer_sge(&mine, 0, 8);
	post_send(&other.a, 1, IBV_WR_RDMA_WRITE, IBV_SEND_SIGNALED, &sge, window(0), mw->rkey);
	expect_wc(other.a.scq, 1, IBV_WC_REM_ACCESS_ERR, SOON_MS);
	pair_destroy(&other);
	local_invalidate(mw->rkey, IBV_WC_SUCCESS);
	write_to(window(0), 8, IBV_WC_REM_ACCESS_ERR);
	again();
	bind_2(info(&theirs, AT, LENGTH, ALL), IBV_WC_SUCCESS);
	write_to(window(0), 8, IBV_WC_SUCCESS);
	/* Bound, it cannot be bound. */
	post_bind_2(info(&theirs, AT, LENGTH, ALL));
	expect_wc(pair.b.scq, 101, IBV_WC_MW_BIND_ERR, SOON_MS);
}

TEST(type_2_zero_based)
{
	set_up(IBV_MW_TYPE_2);
	bind_2(info(&theirs, AT, LENGTH, ALL | IBV_ACCESS_ZERO_BASED), IBV_WC_SUCCESS);
	write_to(0, LENGTH, IBV_WC_SUCCESS);
	expect_bytes(0, AT, 0x22);
	expect_bytes(AT, AT + LENGTH, 0x11);
	expect_bytes(AT + LENGTH, SIZE, 0x22);
	read_from(LENGTH - 1, 1, IBV_WC_SUCCESS);
	read_from(LENGTH, 1, IBV_WC_REM_ACCESS_ERR);
}

/* A bind and what tells the peer of it are posted at once. */
TEST(bind_and_tell)
{
	struct ibv_sge sge;
	int i;

	set_up(IBV_MW_TYPE_2);
	for (i = 0; i < 50; i++) {
		sge = buffer_sge(&mine, 0, 64);
		post_recv(&pair.a, 7, &sge);
		post_bind_2(info(&theirs, AT, LENGTH, ALL));
		sge = buffer_sge(&theirs, 0, 64);
		post_send(&pair.b, 8, IBV_WR_SEND, IBV_SEND_SIGNALED, &sge, 0, 0);
		expect_wc(pair.a.rcq, 7, IBV_WC_SUCCESS, SOON_MS);
		write_to(window(0), LENGTH, IBV_WC_SUCCESS);
		expect_wc(pair.b.scq, 101, IBV_WC_SUCCESS, SOON_MS);
		expect_wc(pair.b.scq, 8, IBV_WC_SUCCESS, SOON_MS);
		local_invalidate(mw->rkey, IBV_WC_SUCCESS);
	}
}

static void post_send_invalidate(uint32_t rkey)
{
	struct ibv_sge sge = buffer_sge(&theirs, 0, 4096);
	struct ibv_qp_ex *qp;

	post_recv(&pair.b, 5, &sge);
	qp = begin(&pair.a, 2);
	ibv_wr_send_inv(qp, rkey);
	ibv_wr_set_sge(qp, mine.mr->lkey, (uintptr_t)mine.bytes, 100);
	require_ok(ibv_wr_complete(qp));
}

TEST(send_with_invalidate)
{
	struct ibv_wc wc;
	int i;

	set_up(IBV_MW_TYPE_2);
	for (i = 0; i < 20; i++) {
		bind_2(info(&theirs, AT, LENGTH, ALL), IBV_WC_SUCCESS);
		write_to(window(0), 8, IBV_WC_SUCCESS);
		post_send_invalidate(mw->rkey);
		expect_wc(pair.a.scq, 2, IBV_WC_SUCCESS, SOON_MS);
		wc = expect_wc(pair.b.rcq, 5, IBV_WC_SUCCESS, SOON_MS);
		require(wc.wc_flags & IBV_WC_WITH_INV && wc.invalidated_rkey == mw->rkey &&
			wc.byte_len == 100, "flags 0x%x, key 0x%x, %u bytes", wc.wc_flags,
			wc.invalidated_rkey, wc.byte_len);
	}
	write_to(window(0), 8, IBV_WC_REM_ACCESS_ERR);
	again();
	/* There is nothing left to invalidate. */
	post_send_invalidate(mw->rkey);
	wc = expect_wc(pair.b.rcq, 5, IBV_WC_REM_INV_REQ_ERR, SOON_MS);
}

/* Rules: INV-12, MWN-12 */
TEST(invalidations_that_fail)
{
	set_up(IBV_MW_TYPE_2);
	local_invalidate(mw->rkey, IBV_WC_LOC_QP_OP_ERR);	/* never bound */
	again();
	local_invalidate(theirs.mr->rkey, IBV_WC_LOC_QP_OP_ERR);
	again();
	local_invalidate(0xffffffff, IBV_WC_LOC_QP_OP_ERR);
	again();
	bind_2(info(&theirs, AT, LENGTH, ALL), IBV_WC_SUCCESS);
	local_invalidate(mw->rkey + 1, IBV_WC_LOC_QP_OP_ERR);
	/* The window is of the connection that bound it. */
	again();
	local_invalidate(mw->rkey, IBV_WC_LOC_QP_OP_ERR);
}

/* Rules: MWN-6, MWN-7, MWN-8, MWN-9, MWN-10, MWN-14 */
TEST(binds_that_fail)
{
	struct buffer plain, constant, foreign;
	struct ibv_mw_bind_info cases[7];
	struct ibv_pd *pd, *own;
	size_t i;

	set_up(IBV_MW_TYPE_2);
	buffer_create(&plain, &ends[1], SIZE, IBV_ACCESS_LOCAL_WRITE);
	buffer_create(&constant, &ends[1], SIZE, IBV_ACCESS_MW_BIND);
	own = ends[1].pd;
	pd = ibv_alloc_pd(ends[1].context);
	require(pd, "ibv_alloc_pd: %s", strerror(errno));
	ends[1].pd = pd;
	buffer_create(&foreign, &ends[1], SIZE, MR_RIGHTS);
	ends[1].pd = own;
	cases[0] = info(&plain, 0, 8, ALL);
	cases[1] = info(&constant, 0, 8, IBV_ACCESS_REMOTE_WRITE);
	cases[2] = info(&foreign, 0, 8, ALL);
	cases[3] = info(&theirs, SIZE - 8, 9, ALL);
	cases[4] = info(&theirs, -1, 8, ALL);
	cases[5] = info(&theirs, 0, 0, ALL);
	cases[6] = info(&theirs, 8, -8UL, ALL);
	for (i = 0; i < ARRAY_SIZE(cases); i++) {
		uint32_t key = mw->rkey;

		note("case %zu", i);
		bind_2(cases[i], IBV_WC_MW_BIND_ERR);
		mw->rkey = key;
		again();
	}
	bind_2(info(&constant, 0, 8, IBV_ACCESS_REMOTE_READ), IBV_WC_SUCCESS);
}

/* A region or a window that goes takes its keys along. */
TEST(what_goes)
{
	uint32_t key;

	set_up(IBV_MW_TYPE_1);
	bind_1(info(&theirs, AT, LENGTH, ALL), IBV_WC_SUCCESS);
	write_to(window(0), 8, IBV_WC_SUCCESS);
	key = mw->rkey;
	require_ok(ibv_dealloc_mw(mw));
	ask(IBV_WR_RDMA_WRITE, window(0), key, 8, IBV_WC_REM_ACCESS_ERR);
	again();
	mw = ibv_alloc_mw(ends[1].pd, IBV_MW_TYPE_1);
	require(mw, "ibv_alloc_mw: %s", strerror(errno));
	bind_1(info(&theirs, AT, LENGTH, ALL), IBV_WC_SUCCESS);
	if (ibv_dereg_mr(theirs.mr))
		skip("a region that has windows cannot go");
	write_to(window(0), 8, IBV_WC_REM_ACCESS_ERR);
	expect_bytes(0, AT, 0x22);
	require_ok(ibv_dealloc_mw(mw));
}

TEST_HARNESS_MAIN
