// SPDX-License-Identifier: GPL-2.0
/*
 * A process that writes what it likes into the rings that it shares with the
 * driver, and calls it as the library never would.  It may hurt itself alone:
 * nothing is read or written beyond its memory regions, each of its requests
 * completes at most once, and others go on.
 *
 * rdma_rxe takes work requests from shared memory as they are and may bring the
 * machine down here: these tests run against it only with HOSTILE=1.
 */
#include <infiniband/verbs.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

#include "harness.h"
#include "raw.h"
#include "rc.h"
#include "stream.h"
#include "ud.h"

#define SEND_WR 20
#define RECV_WR 100
#define CQE 300

#define LENGTH 100
#define FUZZ_SECONDS 3

static struct rc_rings rings;
static struct rc_pair pair;		/* a is the evil one */
static struct rc_pair innocent;
static struct rc_plan plan;
static struct buffer source, target;

static int fd(void)
{
	return ends[0].context->cmd_fd;
}

static int doorbell(void)
{
	return raw_doorbell(fd(), pair.a.qp->handle);
}

static void set_up(void)
{
	const char *driver = getenv("DRIVER");
	struct ring_list before;

	if (driver && !strcmp(driver, "rxe") && !getenv("HOSTILE"))
		skip("rdma_rxe trusts the rings: HOSTILE=1 tries it all the same");
	name_ends_from_environment();
	open_ends();
	plan = default_plan;
	plan.cap.max_send_wr = SEND_WR;
	plan.cap.max_recv_wr = RECV_WR;
	plan.cqe = CQE;
	rings_list(ends[0].context, &before);
	pair_open(&pair, &plan);
	rc_rings_since(&pair.a, &before, &rings);
	plan = default_plan;
	pair_open(&innocent, &plan);
	buffer_create(&source, &ends[0], 4096, IBV_ACCESS_LOCAL_WRITE);
	buffer_create(&target, &ends[1], 4096, IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE);
	stream_fill(source.bytes, source.size, 1, 0);
}

/* Others go on, whatever has become of the evil one. */
static void expect_innocent_alive(void)
{
	struct ibv_sge sge = buffer_sge(&source, 0, source.size);

	post_send(&innocent.a, 1, IBV_WR_RDMA_WRITE, IBV_SEND_SIGNALED, &sge,
		  (uintptr_t)target.bytes, target.mr->rkey);
	expect_wc(innocent.a.scq, 1, IBV_WC_SUCCESS, SOON_MS);
	post_recv(&innocent.a, 2, NULL);
	post_send(&innocent.b, 3, IBV_WR_SEND, IBV_SEND_SIGNALED, NULL, 0, 0);
	expect_wc(innocent.b.scq, 3, IBV_WC_SUCCESS, SOON_MS);
	expect_wc(innocent.a.rcq, 2, IBV_WC_SUCCESS, SOON_MS);
}

/* ---- forged requests --------------------------------------------------- */

#define WR_ID 0xabcdef

static struct rxe_send_wqe *good_request(void)
{
	struct rxe_send_wqe *wqe = ring_slot(&rings.send, rings.send.buf->producer_index);

	memset(wqe, 0, 1UL << rings.send.log2);
	wqe->wr.wr_id = WR_ID;
	wqe->wr.opcode = IB_UVERBS_WR_RDMA_WRITE;
	wqe->wr.send_flags = IBV_SEND_SIGNALED;
	wqe->wr.wr.rdma.remote_addr = (uintptr_t)target.bytes;
	wqe->wr.wr.rdma.rkey = target.mr->rkey;
	wqe->iova = (uintptr_t)target.bytes;
	wqe->dma.length = wqe->dma.resid = LENGTH;
	wqe->dma.num_sge = 1;
	wqe->dma.sge[0] = (struct rxe_sge){
		.addr = (uintptr_t)source.bytes, .length = LENGTH, .lkey = source.mr->lkey,
	};
	return wqe;
}

static void untouched(struct rxe_send_wqe *wqe) { (void)wqe; }
static void many_sges(struct rxe_send_wqe *wqe) { wqe->dma.num_sge = 33; }
static void all_sges(struct rxe_send_wqe *wqe) { wqe->dma.num_sge = UINT32_MAX; }
static void no_sges(struct rxe_send_wqe *wqe) { wqe->dma.num_sge = 0; }
static void longer(struct rxe_send_wqe *wqe) { wqe->dma.length = LENGTH + 1; }
static void shorter(struct rxe_send_wqe *wqe) { wqe->dma.length = LENGTH - 1; }
static void longest(struct rxe_send_wqe *wqe) { wqe->dma.length = UINT32_MAX; }
static void opcode(struct rxe_send_wqe *wqe) { wqe->wr.opcode = 0x80; }
static void large_opcode(struct rxe_send_wqe *wqe) { wqe->wr.opcode = UINT32_MAX; }
static void reg_opcode(struct rxe_send_wqe *wqe) { wqe->wr.opcode = 32; } /* the kernel's REG_MR */
static void all_flags(struct rxe_send_wqe *wqe) { wqe->wr.send_flags = UINT32_MAX; }
static void cur_sge(struct rxe_send_wqe *wqe) { wqe->dma.cur_sge = UINT32_MAX; }
static void sge_offset(struct rxe_send_wqe *wqe) { wqe->dma.sge_offset = 0xfffff000; }
static void resid(struct rxe_send_wqe *wqe) { wqe->dma.resid = 0xfffff000; }
static void state(struct rxe_send_wqe *wqe) { wqe->state = 2; }
static void wild_state(struct rxe_send_wqe *wqe) { wqe->state = UINT32_MAX; }
static void iova(struct rxe_send_wqe *wqe) { wqe->iova = 0x1234; }

static void psns(struct rxe_send_wqe *wqe)
{
	wqe->mask = wqe->first_psn = wqe->last_psn = wqe->ack_length = wqe->ssn = UINT32_MAX;
	wqe->has_rd_atomic = UINT32_MAX;
}

static void wrapping_lengths(struct rxe_send_wqe *wqe)
{
	wqe->dma.num_sge = 2;
	wqe->dma.sge[1] = wqe->dma.sge[0];
	wqe->dma.sge[0].length = UINT32_MAX;
	wqe->dma.sge[1].length = LENGTH + 1; /* the sum is LENGTH again, in 32 bits */
}

static void long_inline(struct rxe_send_wqe *wqe)
{
	wqe->wr.send_flags |= IBV_SEND_INLINE;
	wqe->dma.length = wqe->dma.resid = 1U << rings.send.log2;
}

static void longest_inline(struct rxe_send_wqe *wqe)
{
	wqe->wr.send_flags |= IBV_SEND_INLINE;
	wqe->dma.length = wqe->dma.resid = UINT32_MAX;
}

static void inline_with_sges(struct rxe_send_wqe *wqe)
{
	wqe->wr.send_flags |= IBV_SEND_INLINE;
	wqe->dma.length = wqe->dma.resid = 16;
	wqe->dma.num_sge = UINT32_MAX;
}

/*
 * The keys by which the kernel's own requests name its memory: all of it, and what it has
 * registered.
 */
#define KERNEL_LKEY 1
#define KERNEL_REGION_KEY 0x10000000

static void kernel_lkey(struct rxe_send_wqe *wqe)
{
	wqe->dma.sge[0].lkey = KERNEL_LKEY;
	wqe->dma.sge[0].addr = 0xffff888000001000;
}

static void kernel_lkey_here(struct rxe_send_wqe *wqe) { wqe->dma.sge[0].lkey = KERNEL_LKEY; }
static void kernel_rkey(struct rxe_send_wqe *wqe) { wqe->wr.wr.rdma.rkey = KERNEL_LKEY; }
static void kernel_region(struct rxe_send_wqe *wqe)
{
	wqe->dma.sge[0].lkey = KERNEL_REGION_KEY;
}

static void kernel_registration(struct rxe_send_wqe *wqe)
{
	wqe->wr.opcode = 0x20;
	wqe->wr.wr.mw.rkey = KERNEL_REGION_KEY;
	wqe->wr.wr.mw.access = 7;
}

enum outcome { DONE, FAILED, EITHER };

static const struct forgery {
	const char *what;
	void (*spoil)(struct rxe_send_wqe *wqe);
	enum outcome outcome;
} forgeries[] = {
	{ "a good request", untouched, DONE },
	{ "33 SGEs", many_sges, FAILED },
	{ "2^32 - 1 SGEs", all_sges, FAILED },
	{ "no SGEs for its length", no_sges, FAILED },
	{ "longer than its SGEs", longer, FAILED },
	{ "shorter than its SGEs", shorter, FAILED },
	{ "a length of 2^32 - 1", longest, FAILED },
	{ "SGEs whose sum wraps", wrapping_lengths, FAILED },
	{ "an unknown opcode", opcode, FAILED },
	{ "opcode 2^32 - 1", large_opcode, FAILED },
	{ "an opcode of the kernel", reg_opcode, FAILED },
	{ "all flags", all_flags, EITHER },
	{ "more inline data than a slot has", long_inline, FAILED },
	{ "inline data of 2^32 - 1 bytes", longest_inline, FAILED },
	{ "inline data and SGEs", inline_with_sges, EITHER },
	{ "a wild cur_sge", cur_sge, EITHER },
	{ "a wild sge_offset", sge_offset, EITHER },
	{ "a wild resid", resid, EITHER },
	{ "a state of the driver's", state, EITHER },
	{ "a wild state", wild_state, EITHER },
	{ "wild PSNs", psns, EITHER },
	{ "another iova", iova, EITHER },
	{ "the kernel's key, for its memory", kernel_lkey, FAILED },
	{ "the kernel's key, for memory of ours", kernel_lkey_here, FAILED },
	{ "the kernel's key, for the peer's memory", kernel_rkey, FAILED },
	{ "a key of a region of the kernel's", kernel_region, FAILED },
	{ "a registration", kernel_registration, FAILED },
};

/* Makes the evil queue pair anew, as good as it was. */
static void renew(void)
{
	struct rc_address a, b;

	rc_modify(&pair.a, IBV_QPS_RESET, NULL, &plan);
	rc_modify(&pair.b, IBV_QPS_RESET, NULL, &plan);
	a = rc_address(&pair.a);
	b = rc_address(&pair.b);
	rc_connect(&pair.a, &b, &plan);
	rc_connect(&pair.b, &a, &plan);
}

static void expect_written(size_t length)
{
	size_t at = stream_compare(target.bytes, length, 1, 0), i;

	require(at == length, "wrong data at byte %zu", at);
	for (i = length; i < target.size; i++)
		require(!target.bytes[i], "byte %zu was written", i);
}

static void expect_nothing_written(const struct forgery *forgery)
{
	size_t i;

	for (i = 0; i < target.size; i++)
		require(!target.bytes[i], "%s: byte %zu was written", forgery->what, i);
}

static void forge_one(const struct forgery *forgery)
{
	enum ibv_wc_status status;
	struct ibv_wc wc;
	int err;

	note("%s", forgery->what);
	memset(target.bytes, 0, target.size);
	forgery->spoil(good_request());
	ring_push(&rings.send);
	err = doorbell();
	status = IBV_WC_GENERAL_ERR;
	if (!err) {
		require(poll_within(pair.a.scq, &wc, SOON_MS), "%s: no completion", forgery->what);
		require(wc.wr_id == WR_ID, "%s: completion of 0x%llx", forgery->what,
			(unsigned long long)wc.wr_id);
		status = wc.status;
	}
	note("  %s", err ? strerror(err) : ibv_wc_status_str(status));
	require(forgery->outcome == EITHER ||
		(forgery->outcome == DONE) == (status == IBV_WC_SUCCESS), "%s", forgery->what);
	expect_no_wc(pair.a.scq, 20);
	if (status != IBV_WC_SUCCESS)
		expect_nothing_written(forgery);
	else if (forgery->outcome == DONE)
		expect_written(LENGTH);
}

TEST(forged_requests)
{
	size_t i;

	set_up();
	for (i = 0; i < ARRAY_SIZE(forgeries); i++) {
		forge_one(&forgeries[i]);
		expect_innocent_alive();
		renew();
	}
}

/* ---- wild indices ------------------------------------------------------ */

/* Not more completions than the ring has slots. */
static void drain(void)
{
	struct ibv_wc wc;
	unsigned int count = 0;

	while (poll_within(pair.a.scq, &wc, 50))
		require(++count <= rings.send.mask + 1, "%u completions", count);
}

TEST(wild_producers)
{
	static const uint32_t values[] = { UINT32_MAX, 0x80000000, 1000, 64, 31, 32, 0x7fffffff };
	size_t i;

	set_up();
	for (i = 0; i < ARRAY_SIZE(values); i++) {
		good_request();
		rings.send.buf->producer_index = values[i];
		doorbell();
		drain();
		expect_innocent_alive();
		renew();
	}
}

TEST(wild_consumers)
{
	static const uint32_t values[] = { UINT32_MAX, 0x80000000, 1000, 5, 0x7fffffff };
	size_t i, j;

	set_up();
	for (i = 0; i < ARRAY_SIZE(values); i++) {
		for (j = 0; j < 5; j++) {
			good_request();
			ring_push(&rings.send);
			rings.send.buf->consumer_index = values[i];
			doorbell();
		}
		drain();
		expect_innocent_alive();
		renew();
	}
}

/* The driver needs none of what it tells about the ring. */
TEST(wild_geometry)
{
	size_t i;

	set_up();
	rings.send.buf->index_mask = rings.recv.buf->index_mask = UINT32_MAX;
	rings.send.buf->log2_elem_size = rings.recv.buf->log2_elem_size = 31;
	for (i = 0; i < ARRAY_SIZE(rings.cqs); i++)
		rings.cqs[i].buf->index_mask = rings.cqs[i].buf->log2_elem_size = 0;
	for (i = 0; i < 3 * rings.send.mask; i++) {
		good_request();
		ring_push(&rings.send);
		require_ok(doorbell());
		usleep(1000);
	}
	expect_innocent_alive();
}

TEST(wild_completion_queue)
{
	static const uint32_t values[] = { UINT32_MAX, 0x80000000, 100000, 511, 512, 0x7fffffff };
	struct rxe_queue_buf *buf;
	size_t i, j;

	set_up();
	for (i = 0; i < ARRAY_SIZE(values); i++) {
		for (j = 0; j < 10; j++) {
			buf = rings.cqs[j % ARRAY_SIZE(rings.cqs)].buf;
			buf->producer_index = values[i];
			buf->consumer_index = values[(i + j) % ARRAY_SIZE(values)];
			good_request();
			ring_push(&rings.send);
			doorbell();
			usleep(1000);
		}
		expect_innocent_alive();
	}
}

/* ---- forged receives --------------------------------------------------- */

static void forge_recv(uint32_t num_sge, uint32_t length, uint32_t first, uint32_t producer)
{
	struct ibv_sge sge = buffer_sge(&target, 0, LENGTH);
	struct rxe_recv_wqe *wqe;
	struct ibv_wc wc;

	note("%u SGEs, length %u, the first of %u, producer %u", num_sge, length, first, producer);
	wqe = ring_slot(&rings.recv, rings.recv.buf->producer_index);
	memset(wqe, 0, 1UL << rings.recv.log2);
	wqe->wr_id = WR_ID;
	wqe->dma.length = wqe->dma.resid = length;
	wqe->dma.num_sge = num_sge;
	wqe->dma.sge[0] = (struct rxe_sge){
		.addr = (uintptr_t)source.bytes, .length = first, .lkey = source.mr->lkey,
	};
	ring_push(&rings.recv);
	if (producer)
		rings.recv.buf->producer_index = producer;
	post_send(&pair.b, 5, IBV_WR_SEND, IBV_SEND_SIGNALED, &sge, 0, 0);
	require(poll_within(pair.b.scq, &wc, SOON_MS), "the sender hangs");
	drain();
	expect_innocent_alive();
	renew();
}

TEST(forged_recvs)
{
	set_up();
	forge_recv(1, LENGTH, LENGTH, 0);
	forge_recv(UINT32_MAX, LENGTH, LENGTH, 0);
	forge_recv(33, LENGTH, LENGTH, 0);
	forge_recv(0, LENGTH, LENGTH, 0);
	forge_recv(1, UINT32_MAX, UINT32_MAX, 0);
	forge_recv(1, LENGTH, 0, 0);
	forge_recv(1, UINT32_MAX, LENGTH, 0);
	forge_recv(1, LENGTH, LENGTH, UINT32_MAX);
	forge_recv(1, LENGTH, LENGTH, 0x80000000);
}

/* ---- changing requests while they are read ----------------------------- */

static atomic_bool stop;

static void *scribble(void *unused)
{
	struct rng rng = { .state = 42 };
	struct rxe_send_wqe *wqe;

	(void)unused;
	while (!stop) {
		wqe = ring_slot(&rings.send, rng_next(&rng));
		switch (rng_below(&rng, 6)) {
		case 0: wqe->dma.num_sge = rng_next(&rng) >> rng_below(&rng, 64); break;
		case 1: wqe->dma.length = rng_next(&rng) >> rng_below(&rng, 64); break;
		case 2: wqe->wr.opcode = rng_below(&rng, 20); break;
		case 3: wqe->dma.sge[0].addr += rng_below(&rng, 8192) - 4096; break;
		case 4: wqe->wr.send_flags = rng_below(&rng, 64); break;
		case 5: wqe->dma.sge[0].length = rng_next(&rng) >> rng_below(&rng, 64); break;
		}
	}
	return NULL;
}

/* Rules: RTY-14, WRQ-1 */
TEST(changing_requests)
{
	int64_t end;
	pthread_t thread;
	struct ibv_wc wc;

	set_up();
	require_ok(pthread_create(&thread, NULL, scribble, NULL));
	for (end = now_ns() + FUZZ_SECONDS * NS_PER_S; now_ns() < end;) {
		good_request();
		ring_push(&rings.send);
		doorbell();
		while (poll_within(pair.a.scq, &wc, 0))
			;
		if (rc_state(&pair.a) == IBV_QPS_ERR || rc_state(&pair.b) == IBV_QPS_ERR)
			renew();
	}
	stop = true;
	pthread_join(thread, NULL);
	expect_innocent_alive();
}

/* Nothing in the rings makes sense. */
TEST(noise)
{
	struct ring *all[] = { &rings.send, &rings.recv, &rings.cqs[0], &rings.cqs[1] };
	struct rng rng = { .state = 4711 };
	struct ring *ring;
	int64_t end;

	set_up();
	for (end = now_ns() + FUZZ_SECONDS * NS_PER_S; now_ns() < end;) {
		ring = all[rng_below(&rng, ARRAY_SIZE(all))];
		stream_fill(ring->buf, rng_one_in(&rng, 4) ? 512 : ring->size, rng_next(&rng), 0);
		doorbell();
		try_post_send(&pair.b, 1, IBV_WR_SEND, IBV_SEND_SIGNALED, NULL, 0, 0);
		if (rng_one_in(&rng, 10))
			renew();
	}
	expect_innocent_alive();
}

/* ---- datagrams --------------------------------------------------------- */

#define QKEY 0x11111111

static struct rc datagrams;
static struct rc_rings datagram_rings;

static void start_datagrams(void)
{
	rc_modify(&datagrams, IBV_QPS_RESET, NULL, NULL);
	ud_start(&datagrams, QKEY);
}

static void set_up_datagrams(void)
{
	struct ibv_qp_cap cap = {
		.max_send_wr = 100, .max_recv_wr = 1, .max_send_sge = 2, .max_recv_sge = 2,
	};
	struct ring_list before;

	set_up();
	rings_list(ends[0].context, &before);
	ud_create(&datagrams, &ends[0], &cap, CQE);
	rc_rings_since(&datagrams, &before, &datagram_rings);
	start_datagrams();
}

/* To a queue pair that does not exist, of the other end. */
static struct rxe_send_wqe *good_datagram(void)
{
	struct rxe_send_wqe *wqe = ring_slot(&datagram_rings.send, datagram_rings.send.buf->producer_index);

	memset(wqe, 0, 1UL << datagram_rings.send.log2);
	wqe->wr.wr_id = WR_ID;
	wqe->wr.opcode = IB_UVERBS_WR_SEND;
	wqe->wr.send_flags = IBV_SEND_SIGNALED;
	wqe->wr.wr.ud.remote_qpn = 0xfffff0;
	wqe->wr.wr.ud.remote_qkey = QKEY;
	wqe->wr.wr.ud.av.port_num = PORT;
	wqe->wr.wr.ud.av.grh.sgid_index = ends[0].gid_index;
	wqe->wr.wr.ud.av.grh.hop_limit = 64;
	memcpy(&wqe->wr.wr.ud.av.grh.dgid, &ends[1].gid, sizeof(ends[1].gid));
	wqe->dma.length = wqe->dma.resid = LENGTH;
	wqe->dma.num_sge = 1;
	wqe->dma.sge[0] = (struct rxe_sge){
		.addr = (uintptr_t)source.bytes, .length = LENGTH, .lkey = source.mr->lkey,
	};
	return wqe;
}

static void large_qpn(struct rxe_send_wqe *wqe) { wqe->wr.wr.ud.remote_qpn = 0x1000010; }
static void wild_ah(struct rxe_send_wqe *wqe) { wqe->wr.wr.ud.ah_num = UINT32_MAX; }
static void no_such_ah(struct rxe_send_wqe *wqe) { wqe->wr.wr.ud.ah_num = 77; }
static void wild_port(struct rxe_send_wqe *wqe) { wqe->wr.wr.ud.av.port_num = 255; }
static void no_sgid(struct rxe_send_wqe *wqe) { wqe->wr.wr.ud.av.grh.sgid_index = 255; }
static void no_dgid(struct rxe_send_wqe *wqe) { memset(&wqe->wr.wr.ud.av.grh.dgid, 0, 16); }
static void all_dgid(struct rxe_send_wqe *wqe) { memset(&wqe->wr.wr.ud.av.grh.dgid, 0xff, 16); }
static void wild_av(struct rxe_send_wqe *wqe)
{
	memset(&wqe->wr.wr.ud.av, 0xa5, sizeof(wqe->wr.wr.ud.av));
}
static void wild_pkey(struct rxe_send_wqe *wqe) { wqe->wr.wr.ud.pkey_index = UINT16_MAX; }
static void write_opcode(struct rxe_send_wqe *wqe) { wqe->wr.opcode = IB_UVERBS_WR_RDMA_WRITE; }
static void bind_opcode(struct rxe_send_wqe *wqe) { wqe->wr.opcode = IB_UVERBS_WR_BIND_MW; }
static void other_key(struct rxe_send_wqe *wqe) { wqe->dma.sge[0].lkey ^= 0x100; }

/* One byte more than a datagram may have, of memory that is there. */
static void too_long(struct rxe_send_wqe *wqe)
{
	wqe->dma.num_sge = 2;
	wqe->dma.sge[0].length = source.size;
	wqe->dma.sge[1] = wqe->dma.sge[0];
	wqe->dma.sge[1].length = 1;
	wqe->dma.length = wqe->dma.resid = source.size + 1;
}

static const struct forgery datagram_forgeries[] = {
	{ "a good datagram", untouched, DONE },
	{ "33 SGEs", many_sges, FAILED },
	{ "2^32 - 1 SGEs", all_sges, FAILED },
	{ "longer than its SGEs", longer, FAILED },
	{ "a length of 2^32 - 1", longest, FAILED },
	{ "SGEs whose sum wraps", wrapping_lengths, FAILED },
	{ "longer than the MTU", too_long, FAILED },
	{ "a key of nobody", other_key, FAILED },
	{ "an unknown opcode", opcode, FAILED },
	{ "a WRITE", write_opcode, FAILED },
	{ "a bind", bind_opcode, FAILED },
	{ "inline data of 2^32 - 1 bytes", longest_inline, FAILED },
	{ "a queue pair's number of 25 bits", large_qpn, FAILED },
	{ "a wild address handle", wild_ah, FAILED },
	{ "an address handle that is not there", no_such_ah, FAILED },
	{ "a wild port", wild_port, EITHER },
	{ "a GID that is not there", no_sgid, FAILED },
	{ "to no GID", no_dgid, EITHER },
	{ "to everybody", all_dgid, EITHER },
	{ "a wild address", wild_av, EITHER },
	{ "a wild P_Key index", wild_pkey, EITHER },
	{ "wild PSNs", psns, EITHER },
	{ "a wild state", wild_state, EITHER },
	{ "a wild cur_sge", cur_sge, EITHER },
};

TEST(forged_datagrams)
{
	const struct forgery *forgery;
	enum ibv_wc_status status;
	struct ibv_wc wc;
	size_t i;

	set_up_datagrams();
	for (i = 0; i < ARRAY_SIZE(datagram_forgeries); i++) {
		forgery = &datagram_forgeries[i];
		note("%s", forgery->what);
		forgery->spoil(good_datagram());
		ring_push(&datagram_rings.send);
		require_ok(raw_doorbell(fd(), datagrams.qp->handle));
		require(poll_within(datagrams.scq, &wc, SOON_MS), "no completion");
		status = wc.status;
		note("  %s", ibv_wc_status_str(status));
		require(wc.wr_id == WR_ID, "completion of 0x%llx", (unsigned long long)wc.wr_id);
		require(forgery->outcome == EITHER ||
			(forgery->outcome == DONE) == (status == IBV_WC_SUCCESS), "it must not");
		expect_no_wc(datagrams.scq, 20);
		expect_innocent_alive();
		start_datagrams();
	}
}

/* Nothing in the ring of datagrams makes sense. */
TEST(datagram_noise)
{
	struct rng rng = { .state = 815 };
	struct ibv_wc wc;
	int64_t end;

	set_up_datagrams();
	for (end = now_ns() + FUZZ_SECONDS * NS_PER_S; now_ns() < end;) {
		if (rng_one_in(&rng, 2)) {
			stream_fill(datagram_rings.send.buf, rng_one_in(&rng, 4) ? 512 : 8192,
				    rng_next(&rng), 0);
		} else {
			stream_fill((uint8_t *)good_datagram() + 8 * rng_below(&rng, 40), 16,
				    rng_next(&rng), 0);
			ring_push(&datagram_rings.send);
		}
		raw_doorbell(fd(), datagrams.qp->handle);
		while (poll_within(datagrams.scq, &wc, 0))
			;
		if (rng_one_in(&rng, 4))
			start_datagrams();
	}
	expect_innocent_alive();
}

/* ---- calls that the library never makes -------------------------------- */

static void refused_mmap(uint64_t offset, size_t size, int protection, const char *what)
{
	void *map = mmap(NULL, size, protection, MAP_SHARED, fd(), offset);

	require(map == MAP_FAILED, "%s was mapped", what);
	note("%s: %s", what, strerror(errno));
}

TEST(mappings)
{
	const int both = PROT_READ | PROT_WRITE;

	set_up();
	refused_mmap(rings.send.offset, rings.send.size, both, "a ring once more");
	refused_mmap(rings.send.offset, 1 << 30, both, "more than the ring");
	refused_mmap(0x7ffffff000, 4096, both, "an offset that was not given");
	refused_mmap(0, 4096, both, "offset 0");
	expect_innocent_alive();
}

/* Work requests in the system call: for kernel queue pairs, not for this one. */
TEST(requests_by_system_call)
{
	struct {
		struct ib_uverbs_cmd_hdr header;
		struct ib_uverbs_post_send body;
		struct ib_uverbs_send_wr wr;
	} send = {
		.body = { .wr_count = 1, .wqe_size = sizeof(struct ib_uverbs_send_wr) },
		.wr = { .wr_id = 1, .opcode = IB_UVERBS_WR_SEND, .send_flags = IBV_SEND_SIGNALED },
	};
	struct {
		struct ib_uverbs_cmd_hdr header;
		struct ib_uverbs_post_recv body;
		struct ib_uverbs_recv_wr wr;
	} recv = {
		.body = { .wr_count = 1, .wqe_size = sizeof(struct ib_uverbs_recv_wr) },
		.wr = { .wr_id = 1 },
	};
	struct {
		struct ib_uverbs_cmd_hdr header;
		struct ib_uverbs_poll_cq body;
	} poll = { .body = { .ne = 16 } };
	struct ib_uverbs_post_send_resp response;
	char wcs[4096];
	int i, err;

	set_up();
	send.body.qp_handle = recv.body.qp_handle = pair.a.qp->handle;
	poll.body.cq_handle = pair.a.scq->handle;
	for (i = 0; i < 100; i++) {
		err = uverbs_command(fd(), IB_USER_VERBS_CMD_POST_SEND, &send, sizeof(send), &response,
			      sizeof(response));
		require(err == EOPNOTSUPP, "a send: %s", strerror(err));
		err = uverbs_command(fd(), IB_USER_VERBS_CMD_POST_RECV, &recv, sizeof(recv), &response,
			      sizeof(response));
		require(err == EOPNOTSUPP, "a receive: %s", strerror(err));
		err = uverbs_command(fd(), IB_USER_VERBS_CMD_POLL_CQ, &poll, sizeof(poll), wcs, sizeof(wcs));
		require(err == EOPNOTSUPP, "a poll: %s", strerror(err));
	}
	expect_innocent_alive();
}

TEST_HARNESS_MAIN
