// SPDX-License-Identifier: GPL-2.0
/*
 * Verbs raced against each other, and against packets, on the same object: each for a while,
 * again and again, with random delays.  Whatever comes of it is what was granted at that
 * time or an error that says what is wrong, and when a verb that takes something away has
 * returned, nothing is written or read there any more.
 *
 * What the library does not let threads do at the same time, one of them does by a command
 * of its own.  SEED=... repeats the delays.
 */
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

#include "harness.h"
#include "raw.h"
#include "rc.h"
#include "stream.h"
#include "ud.h"

#define QKEY 0x11111111
#define GRH 40

static struct rc_plan plan;
static struct rc_pair pair;
static struct rng rng;
static atomic_bool stop;
static unsigned int rounds;
static int64_t end;

static void set_up_for(enum family family)
{
	name_ends_from_environment();
	end_open(&ends[0], family);
	end_open(&ends[1], family);
	plan = default_plan;
	plan.access |= IBV_ACCESS_REMOTE_ATOMIC;
	rng.state = random_seed();
}

static void set_up(void)
{
	set_up_for(FAMILY_ANY);
}

/* Whether there is time for another round. */
static bool again(void)
{
	if (!end)
		end = now_ns() + chance_ns();
	stop = false;
	if (now_ns() < end || rounds < 3) {
		rounds++;
		return true;
	}
	note("%u rounds", rounds);
	return false;
}

/* Up to so many microseconds, of work or of sleep; more on a slow kernel. */
static void nap(struct rng *rng, unsigned int most)
{
	unsigned int us = rng_below(rng, most * time_scale());
	int64_t until = now_ns() + 1000LL * us;

	if (rng_one_in(rng, 2))
		usleep(us);
	while (now_ns() < until)
		;
}

/* A thread with random numbers of its own. */
struct racer {
	pthread_t thread;
	struct rng rng;
	void (*run)(struct racer *racer);
	volatile unsigned int done;
	int result;
};

static void *run_racer(void *racer)
{
	((struct racer *)racer)->run(racer);
	return NULL;
}

static void race(struct racer *racer, void (*run)(struct racer *racer))
{
	*racer = (struct racer){ .run = run, .rng.state = rng_next(&rng) };
	require_ok(pthread_create(&racer->thread, NULL, run_racer, racer));
}

static void join(struct racer *racer)
{
	require_ok(pthread_join(racer->thread, NULL));
}

static unsigned int poll_all(struct ibv_cq *cq)
{
	unsigned int count = 0;
	struct ibv_wc wc;

	while (poll_within(cq, &wc, 0))
		count++;
	return count;
}

static bool is_filled(const uint8_t *bytes, size_t size, uint8_t value)
{
	return bytes[0] == value && !memcmp(bytes, bytes + 1, size - 1);
}

/* A peer that has lost its right, maybe in the middle of a message. */
static void expect_refused(const struct ibv_wc *wc)
{
	require(wc->status == IBV_WC_REM_ACCESS_ERR || wc->status == IBV_WC_REM_OP_ERR ||
		wc->status == IBV_WC_WR_FLUSH_ERR,
		"a completion with \"%s\"", ibv_wc_status_str(wc->status));
}

/* ---- destroy_qp against what uses it ----------------------------------- */

static struct buffer near, far;

/* What is being destroyed is busy, and so is what others use at this moment. */
static void expect_gone_or(int err, int other)
{
	require(!err || err == EINVAL || err == ENOENT || err == EBUSY || err == other, "%s",
		strerror(err));
}

static void post_on(struct racer *racer)
{
	static const enum ibv_wr_opcode opcodes[] = {
		IBV_WR_SEND, IBV_WR_RDMA_WRITE, IBV_WR_RDMA_READ,
	};
	struct ibv_sge sge = buffer_sge(&near, 0, near.size);

	for (; !stop; racer->done++) {
		expect_gone_or(try_post_send(&pair.a, 1, opcodes[rng_below(&racer->rng, 3)],
					     IBV_SEND_SIGNALED, &sge, (uintptr_t)far.bytes,
					     far.mr->rkey), ENOMEM);
		poll_all(pair.a.scq);
	}
}

static void modify_on(struct racer *racer)
{
	static const enum ibv_qp_state states[] = {
		IBV_QPS_SQD, IBV_QPS_RTS, IBV_QPS_ERR, IBV_QPS_RESET,
	};
	struct ibv_qp_init_attr init;
	struct ibv_qp_attr attr;

	for (; !stop; racer->done++) {
		attr.qp_state = states[rng_below(&racer->rng, rng_one_in(&racer->rng, 5) ? 4 : 2)];
		expect_gone_or(ibv_modify_qp(pair.a.qp, &attr, IBV_QP_STATE), EINVAL);
		expect_gone_or(ibv_query_qp(pair.a.qp, &attr, IBV_QP_STATE, &init), EINVAL);
		nap(&racer->rng, 300);
	}
}

static void destroy_it(struct racer *racer)
{
	nap(&racer->rng, 3000);
	do
		racer->result = raw_destroy_qp(pair.a.qp->context->cmd_fd, pair.a.qp->handle);
	while (racer->result == EBUSY);
	expect_gone_or(racer->result, 0);
}

/* Two that destroy it, one that posts and one that modifies. */
TEST(destroy_qp)
{
	struct racer poster, modifier, destroyers[2];
	unsigned int posted = 0;
	int i;

	set_up();
	buffer_create(&near, &ends[0], 20000, IBV_ACCESS_LOCAL_WRITE);
	buffer_create(&far, &ends[1], 20000, plan.access);
	while (again()) {
		pair_open(&pair, &plan);
		for (i = 0; i < 16; i++) {
			struct ibv_sge sge = buffer_sge(&far, 0, far.size);

			post_recv(&pair.b, i, &sge);
		}
		race(&poster, post_on);
		race(&modifier, modify_on);
		for (i = 0; i < 2; i++)
			race(&destroyers[i], destroy_it);
		for (i = 0; i < 2; i++)
			join(&destroyers[i]);
		stop = true;
		join(&poster);
		join(&modifier);
		require(!destroyers[0].result != !destroyers[1].result, "it was destroyed %s",
			destroyers[0].result ? "by nobody" : "twice");
		posted += poster.done;
		poll_all(pair.a.scq);
		usleep(2000);
		require(!poll_all(pair.a.scq), "a completion of what is gone");
		require_ok(ibv_destroy_cq(pair.a.scq));
		require_ok(ibv_destroy_cq(pair.a.rcq));
		rc_destroy(&pair.b);
	}
	require(posted > rounds, "too little was posted");
}

/* ---- modify_qp against a failure --------------------------------------- */

static void write_badly(struct racer *racer)
{
	struct ibv_sge sge = buffer_sge(&near, 0, 8);

	nap(&racer->rng, 2000);
	post_send(&pair.a, 1, IBV_WR_RDMA_WRITE, IBV_SEND_SIGNALED, &sge, (uintptr_t)far.bytes,
		  far.mr->rkey + 1);
}

/* A failure in the middle of a modification is not lost: what is posted later is flushed. */
TEST(modify_failing)
{
	struct ibv_qp_attr attr = { .qp_state = IBV_QPS_RTS, .min_rnr_timer = 12 };
	unsigned int changes = 0, i;
	struct racer writer;
	struct ibv_wc wc;
	int err;

	set_up();
	buffer_create(&near, &ends[0], 4096, IBV_ACCESS_LOCAL_WRITE);
	buffer_create(&far, &ends[1], 4096, plan.access);
	while (again()) {
		struct ibv_sge sge = buffer_sge(&far, 0, far.size);

		pair_open(&pair, &plan);
		for (i = 0; i < 4; i++)
			post_recv(&pair.b, i, &sge);
		race(&writer, write_badly);
		do {
			err = ibv_modify_qp(pair.b.qp, &attr, IBV_QP_STATE | IBV_QP_MIN_RNR_TIMER);
			require(!err || err == EINVAL, "ibv_modify_qp: %s", strerror(err));
			changes += !err;
		} while (!err);
		join(&writer);
		require(poll_within(pair.a.scq, &wc, SOON_MS), "no completion");
		expect_refused(&wc);
		post_recv(&pair.b, i, &sge);
		for (i = 0; i < 5; i++)
			expect_wc(pair.b.rcq, i, IBV_WC_WR_FLUSH_ERR, SOON_MS);
		pair_destroy(&pair);
	}
	note("%u changes", changes);
	require(changes > rounds, "it failed too soon");
}

/* ---- rereg_mr against a peer's READ ------------------------------------ */

#define AREA 65536
#define POISON 0xdd

static struct {
	pthread_mutex_t lock;
	uint32_t rkey;
	unsigned int area;	/* that it shows; 2: none */
	unsigned int version;
} granted = { .lock = PTHREAD_MUTEX_INITIALIZER };
static atomic_uint version;
static uint8_t *areas[2];

static void reconnect(void)
{
	struct rc_address a, b;

	rc_modify(&pair.a, IBV_QPS_RESET, NULL, &plan);
	rc_modify(&pair.b, IBV_QPS_RESET, NULL, &plan);
	poll_all(pair.a.scq);
	a = rc_address(&pair.a);
	b = rc_address(&pair.b);
	rc_connect(&pair.a, &b, &plan);
	rc_connect(&pair.b, &a, &plan);
}

/* What was read is what was granted when its key was good: all of it, or nothing. */
static void read_on(struct racer *racer)
{
	struct ibv_sge sge = buffer_sge(&near, 0, AREA);
	unsigned int area, seen;
	struct ibv_wc wc;
	uint32_t rkey;
	bool is_stale;

	while (!stop) {
		pthread_mutex_lock(&granted.lock);
		rkey = granted.rkey;
		area = granted.area;
		seen = granted.version;
		pthread_mutex_unlock(&granted.lock);
		if (rng_one_in(&racer->rng, 4))
			nap(&racer->rng, 2000);
		memset(near.bytes, 0, AREA);
		is_stale = version != seen || area == 2;
		post_send(&pair.a, 1, IBV_WR_RDMA_READ, IBV_SEND_SIGNALED, &sge,
			  (uintptr_t)areas[area % 2], rkey);
		require(poll_within(pair.a.scq, &wc, SOON_MS), "no completion");
		if (wc.status != IBV_WC_SUCCESS) {
			expect_refused(&wc);
			racer->result++;
			reconnect();
			continue;
		}
		require(!is_stale, "it was read by a key that was no more");
		require(stream_compare(near.bytes, AREA, area, 0) == AREA,
			"a READ got what was not granted");
		racer->done++;
	}
}

static void rereg(struct ibv_mr *mr, int flags, void *bytes, int access)
{
	require_ok(raw_rereg_mr(mr, flags, NULL, bytes, bytes ? AREA : 0, access));
	version++;
}

static void grant(const struct ibv_mr *mr, unsigned int area)
{
	pthread_mutex_lock(&granted.lock);
	granted.rkey = mr->rkey;
	granted.area = area;
	granted.version = version;
	pthread_mutex_unlock(&granted.lock);
}

TEST(rereg_mr)
{
	struct racer reader;
	unsigned int area = 0;
	struct ibv_mr *mr;
	int i;

	set_up();
	for (i = 0; i < 2; i++) {
		areas[i] = mmap(NULL, AREA, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
		require(areas[i] != MAP_FAILED, "mmap: %s", strerror(errno));
		stream_fill(areas[i], AREA, i, 0);
	}
	buffer_create(&near, &ends[0], AREA, IBV_ACCESS_LOCAL_WRITE);
	mr = ibv_reg_mr(ends[1].pd, areas[0], AREA, IBV_ACCESS_REMOTE_READ);
	require(mr, "ibv_reg_mr: %s", strerror(errno));
	grant(mr, 0);
	pair_open(&pair, &plan);
	race(&reader, read_on);
	while (again()) {
		nap(&rng, 6000);
		if (rng_one_in(&rng, 3)) {
			rereg(mr, IBV_REREG_MR_CHANGE_ACCESS, NULL, 0);
			memset(areas[area], POISON, AREA);
			grant(mr, 2);
			nap(&rng, 3000);
			stream_fill(areas[area], AREA, area, 0);
			rereg(mr, IBV_REREG_MR_CHANGE_ACCESS, NULL, IBV_ACCESS_REMOTE_READ);
			grant(mr, area);
			continue;
		}
		rereg(mr, IBV_REREG_MR_CHANGE_TRANSLATION, areas[!area], 0);
		memset(areas[area], POISON, AREA);
		stream_fill(areas[area], AREA, area, 0);
		area = !area;
		grant(mr, area);
	}
	stop = true;
	join(&reader);
	note("%u READs, %d refused", reader.done, reader.result);
	require(reader.done && reader.result, "one of both never was");
}

/* ---- rights that end, against a peer's WRITEs -------------------------- */

/* The peer writes with a key until it is refused. */
static struct { uint64_t addr; uint32_t rkey; } target;

static void write_on(struct racer *racer)
{
	struct ibv_sge sge = buffer_sge(&near, 0, AREA / 2);
	struct ibv_wc wc;
	int err;

	for (;;) {
		err = try_post_send(&pair.a, 1, IBV_WR_RDMA_WRITE, IBV_SEND_SIGNALED, &sge,
				    target.addr, target.rkey);
		require(!err || err == ENOMEM, "ibv_post_send: %s", strerror(err));
		if (!poll_within(pair.a.scq, &wc, err ? SOON_MS : 0)) {
			require(!err, "no completion");
			continue;
		}
		if (wc.status != IBV_WC_SUCCESS)
			break;
		racer->done++;
	}
	expect_refused(&wc);
}

/* What is taken away belongs to its owner alone from now on. */
static void expect_left_alone(uint8_t *bytes, size_t size)
{
	memset(bytes, POISON, size);
	nap(&rng, 4000);
	require(is_filled(bytes, size, POISON), "it was written to when that was no more granted");
}

static void expect_background(const uint8_t *bytes, size_t size)
{
	require(is_filled(bytes, size, 0x22), "what was not granted was written to");
}

#define MIDDLE (AREA / 4)

/* The peer may write to the middle of the area by this key. */
static void grant_middle(uint32_t rkey)
{
	target.addr = (uintptr_t)far.bytes + MIDDLE;
	target.rkey = rkey;
}

static void expect_middle_alone(void)
{
	expect_left_alone(far.bytes + MIDDLE, AREA / 2);
}

static void expect_margins_alone(void)
{
	expect_background(far.bytes, MIDDLE);
	expect_background(far.bytes + AREA - MIDDLE, MIDDLE);
}

static void invalidate(const struct ibv_mw *mw)
{
	struct ibv_send_wr *bad, wr = {
		.wr_id = 2, .opcode = IBV_WR_LOCAL_INV, .send_flags = IBV_SEND_SIGNALED,
		.invalidate_rkey = mw->rkey,
	};

	require_ok(ibv_post_send(pair.b.qp, &wr, &bad));
	expect_wc(pair.b.scq, 2, IBV_WC_SUCCESS, SOON_MS);
}

static void bind(struct ibv_mw *mw)
{
	struct ibv_send_wr *bad, wr = {
		.wr_id = 1, .opcode = IBV_WR_BIND_MW, .send_flags = IBV_SEND_SIGNALED,
		.bind_mw = {
			.mw = mw, .rkey = ibv_inc_rkey(mw->rkey),
			.bind_info = {
				.mr = far.mr, .addr = (uintptr_t)far.bytes + MIDDLE,
				.length = AREA / 2, .mw_access_flags = IBV_ACCESS_REMOTE_WRITE,
			},
		},
	};

	require_ok(ibv_post_send(pair.b.qp, &wr, &bad));
	expect_wc(pair.b.scq, 1, IBV_WC_SUCCESS, SOON_MS);
	mw->rkey = wr.bind_mw.rkey;
}

/* A window that is invalidated, or deallocated, as the peer writes through it. */
TEST(windows)
{
	unsigned int written = 0;
	struct racer writer;
	struct ibv_mw *mw;

	set_up();
	buffer_create(&near, &ends[0], AREA, IBV_ACCESS_LOCAL_WRITE);
	buffer_create(&far, &ends[1], AREA, IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_MW_BIND);
	memset(far.bytes, 0x22, AREA);
	while (again()) {
		pair_open(&pair, &plan);
		mw = ibv_alloc_mw(ends[1].pd, IBV_MW_TYPE_2);
		require(mw, "ibv_alloc_mw: %s", strerror(errno));
		bind(mw);
		grant_middle(mw->rkey);
		race(&writer, write_on);
		nap(&rng, 8000);
		if (rng_one_in(&rng, 2)) {
			invalidate(mw);
			expect_middle_alone();
			join(&writer);
			require_ok(ibv_dealloc_mw(mw));
		} else {
			require_ok(ibv_dealloc_mw(mw));
			expect_middle_alone();
			join(&writer);
		}
		expect_margins_alone();
		written += writer.done;
		pair_destroy(&pair);
	}
	require(written, "nothing was written");
}

/* A region that is deregistered as the peer writes to it. */
TEST(dereg_mr)
{
	unsigned int written = 0;
	struct racer writer;

	set_up();
	buffer_create(&near, &ends[0], AREA, IBV_ACCESS_LOCAL_WRITE);
	far.bytes = mmap(NULL, AREA, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	require(far.bytes != MAP_FAILED, "mmap: %s", strerror(errno));
	memset(far.bytes, 0x22, AREA);
	while (again()) {
		int on_demand = rng_one_in(&rng, 3) ? IBV_ACCESS_ON_DEMAND : 0;

		pair_open(&pair, &plan);
		far.mr = ibv_reg_mr(ends[1].pd, far.bytes + MIDDLE, AREA / 2,
				    plan.access | on_demand);
		require(far.mr, "ibv_reg_mr: %s", strerror(errno));
		grant_middle(far.mr->rkey);
		race(&writer, write_on);
		nap(&rng, 8000);
		require_ok(ibv_dereg_mr(far.mr));
		expect_middle_alone();
		join(&writer);
		expect_margins_alone();
		written += writer.done;
		pair_destroy(&pair);
	}
	require(written, "nothing was written");
}

/* Writes of a region of its own until that is no more. */
static void write_of(struct racer *racer)
{
	struct ibv_sge sge = { (uintptr_t)near.bytes, AREA, near.mr->lkey };
	struct ibv_wc wc;

	do {
		post_send(&pair.a, 1, IBV_WR_RDMA_WRITE, IBV_SEND_SIGNALED, &sge,
			  (uintptr_t)far.bytes, far.mr->rkey);
		require(poll_within(pair.a.scq, &wc, SOON_MS), "no completion");
		racer->done++;
	} while (wc.status == IBV_WC_SUCCESS);
	require(wc.status == IBV_WC_LOC_PROT_ERR, "\"%s\"", ibv_wc_status_str(wc.status));
}

/* A region that is deregistered as its owner sends of it: what the peer gets is older. */
TEST(dereg_source)
{
	unsigned int written = 0;
	struct racer writer;

	set_up();
	near.bytes = mmap(NULL, AREA, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	require(near.bytes != MAP_FAILED, "mmap: %s", strerror(errno));
	buffer_create(&far, &ends[1], AREA, plan.access);
	while (again()) {
		pair_open(&pair, &plan);
		memset(near.bytes, 0x11, AREA);
		memset(far.bytes, 0x11, AREA);
		near.mr = ibv_reg_mr(ends[0].pd, near.bytes, AREA, 0);
		require(near.mr, "ibv_reg_mr: %s", strerror(errno));
		race(&writer, write_of);
		nap(&rng, 8000);
		require_ok(raw_dereg_mr(ends[0].context->cmd_fd, near.mr->handle));
		memset(near.bytes, POISON, AREA);
		join(&writer);
		require(is_filled(far.bytes, AREA, 0x11), "what was sent was read when it was no more");
		written += writer.done - 1;
		pair_destroy(&pair);
	}
	require(written, "nothing was written");
}

/* ---- resize_cq against completions that come --------------------------- */

static atomic_uint polled;
#define UNDER_WAY 12

static void complete_on(struct racer *racer)
{
	for (; !stop; racer->done++) {
		while (racer->done - polled >= UNDER_WAY && !stop)
			sched_yield();
		if (!stop)
			post_send(&pair.a, racer->done, IBV_WR_RDMA_WRITE, IBV_SEND_SIGNALED, NULL, 0, 0);
	}
}

static void poll_some(unsigned int count)
{
	struct ibv_wc wc;

	while (count-- && poll_within(pair.a.scq, &wc, 1)) {
		require(wc.status == IBV_WC_SUCCESS, "\"%s\"", ibv_wc_status_str(wc.status));
		require(wc.wr_id == polled, "completion %llu, and not %u", (unsigned long long)wc.wr_id,
			polled);
		polled++;
	}
}

/* Each comes once and in its order, whichever ring it was written to. */
TEST(resize_cq)
{
	struct racer poster;

	set_up();
	pair_open(&pair, &plan);
	race(&poster, complete_on);
	while (again()) {
		poll_some(rng_below(&rng, 20));
		/* There is room for all that may come. */
		require_ok(ibv_resize_cq(pair.a.scq, UNDER_WAY + rng_below(&rng, 300)));
	}
	stop = true;
	join(&poster);
	note("%u completions", polled);
	require(polled > 100, "too few");
}

static void resize_on(struct racer *racer)
{
	const struct ibv_cq *cq = pair.a.scq;
	struct mminfo map;

	for (; !stop; racer->done++)
		expect_gone_or(raw_resize_cq(cq->context->cmd_fd, cq->handle,
					     1 + rng_below(&racer->rng, 500), &map), EINVAL);
}

static void ring_on(struct racer *racer)
{
	for (; !stop; racer->done++)
		expect_gone_or(try_post_send(&pair.a, 1, IBV_WR_RDMA_WRITE, IBV_SEND_SIGNALED, NULL, 0,
					     0), ENOMEM);
}

/* Three that resize it, one that has completions come, and who polls a ring that is no more. */
TEST(resize_cq_by_many)
{
	struct racer resizers[3], poster;
	unsigned int resized = 0, i;

	set_up();
	while (again()) {
		pair_open(&pair, &plan);
		race(&poster, ring_on);
		for (i = 0; i < 3; i++)
			race(&resizers[i], resize_on);
		for (i = 0; i < 20; i++) {
			poll_all(pair.a.scq);
			ibv_req_notify_cq(pair.a.scq, 0);
			nap(&rng, 2000);
		}
		stop = true;
		join(&poster);
		for (i = 0; i < 3; i++) {
			join(&resizers[i]);
			resized += resizers[i].done;
		}
		pair_destroy(&pair);
	}
	require(resized > rounds, "too few");
}

/* ---- destroy_ah against datagrams -------------------------------------- */

static struct rc ud_a, ud_b;
static _Atomic(struct ibv_ah *) ah;
#define DATAGRAM 200

static void send_datagrams(struct racer *racer)
{
	struct ibv_sge sge = buffer_sge(&near, 0, DATAGRAM);
	struct ibv_qp_attr attr = { .qp_state = IBV_QPS_RESET };
	struct ibv_wc wc;

	for (; !stop; racer->done++) {
		require_ok(ud_post(&ud_a, ah, ud_b.qp->qp_num, QKEY, racer->done, IBV_SEND_SIGNALED,
				   &sge));
		require(poll_within(ud_a.scq, &wc, SOON_MS), "no completion");
		require(wc.wr_id == racer->done, "completion of %llu", (unsigned long long)wc.wr_id);
		if (wc.status == IBV_WC_SUCCESS)
			continue;
		require(wc.status == IBV_WC_LOC_QP_OP_ERR, "\"%s\"", ibv_wc_status_str(wc.status));
		racer->result++;
		require_ok(ibv_modify_qp(ud_a.qp, &attr, IBV_QP_STATE));
		ud_start(&ud_a, QKEY);
	}
}

static unsigned int check_datagrams(void)
{
	struct ibv_sge sge = buffer_sge(&far, 0, GRH + DATAGRAM);
	unsigned int count = 0;
	struct ibv_wc wc;

	for (; poll_within(ud_b.rcq, &wc, 0); count++) {
		require(wc.status == IBV_WC_SUCCESS && wc.byte_len == GRH + DATAGRAM,
			"\"%s\", %u bytes", ibv_wc_status_str(wc.status), wc.byte_len);
		require(stream_compare(far.bytes + GRH, DATAGRAM, 1, 0) == DATAGRAM,
			"a wrong datagram");
		post_recv(&ud_b, 1, &sge);
	}
	return count;
}

static void set_up_datagrams(enum family family)
{
	struct ibv_sge sge;
	int i;

	set_up_for(family);
	buffer_create(&near, &ends[0], 4096, IBV_ACCESS_LOCAL_WRITE);
	buffer_create(&far, &ends[1], 4096, IBV_ACCESS_LOCAL_WRITE);
	stream_fill(near.bytes, DATAGRAM, 1, 0);
	ud_create(&ud_a, &ends[0], &plan.cap, 64);
	ud_create(&ud_b, &ends[1], &plan.cap, 64);
	ud_start(&ud_a, QKEY);
	ud_start(&ud_b, QKEY);
	sge = buffer_sge(&far, 0, GRH + DATAGRAM);
	for (i = 0; i < 16; i++)
		post_recv(&ud_b, 1, &sge);
}

TEST(destroy_ah)
{
	unsigned int received = 0;
	struct racer sender;

	set_up_datagrams(FAMILY_ANY);
	ah = ah_create(&ends[0], &ends[1]);
	race(&sender, send_datagrams);
	while (again()) {
		nap(&rng, 3000);
		require_ok(raw_destroy_ah(ends[0].context->cmd_fd, ah->handle));
		nap(&rng, 1000);
		/* Maybe with the same number. */
		ah = ah_create(&ends[0], &ends[1]);
		received += check_datagrams();
	}
	stop = true;
	join(&sender);
	note("%u datagrams sent, %u received, %d refused", sender.done, received, sender.result);
	require(received && sender.result, "one of both never was");
}

/* ---- detach_mcast against what is sent to the group -------------------- */

static union ibv_gid group = { .raw = { [10] = 0xff, 0xff, 239, 0, 7, 7 } };
static struct ibv_ah *group_ah;

static void send_to_group(struct racer *racer)
{
	struct ibv_sge sge = buffer_sge(&near, 0, DATAGRAM);
	struct ibv_wc wc;

	for (; !stop; racer->done++) {
		require_ok(ud_post(&ud_a, group_ah, 0xffffff, QKEY, 1, IBV_SEND_SIGNALED, &sge));
		require(poll_within(ud_a.scq, &wc, SOON_MS), "no completion");
		require(wc.status == IBV_WC_SUCCESS, "\"%s\"", ibv_wc_status_str(wc.status));
	}
}

static void attach_and_detach(struct racer *racer)
{
	int err;

	for (; !stop; racer->done++) {
		err = ibv_attach_mcast(ud_b.qp, &group, 0);
		require(!err || err == EINVAL, "ibv_attach_mcast: %s", strerror(err));
		nap(&racer->rng, 500);
		err = ibv_detach_mcast(ud_b.qp, &group, 0);
		require(!err || err == EINVAL, "ibv_detach_mcast: %s", strerror(err));
	}
}

/* Until it has sent some more: what was under way is delivered then, as it came before. */
static void let_send(const struct racer *sender, unsigned int more)
{
	int64_t deadline = now_ns() + SOON_MS * NS_PER_MS;
	unsigned int from = sender->done;

	while (sender->done - from < more) {
		require(now_ns() < deadline, "the sender does not go on");
		usleep(100);
	}
}

TEST(detach_mcast)
{
	struct racer sender, others[2];
	unsigned int received = 0, i;
	struct end to = {};
	int err;

	set_up_datagrams(FAMILY_IPV4);
	to.gid = group;
	group_ah = ah_create(&ends[0], &to);
	race(&sender, send_to_group);
	while (again()) {
		require_ok(ibv_attach_mcast(ud_b.qp, &group, 0));
		nap(&rng, 5000);
		require(raw_destroy_qp(ends[1].context->cmd_fd, ud_b.qp->handle) == EBUSY,
			"a member of a group was destroyed");
		received += check_datagrams();
		require_ok(ibv_detach_mcast(ud_b.qp, &group, 0));
		let_send(&sender, 5);
		received += check_datagrams();
		nap(&rng, 3000);
		require(!check_datagrams(), "who has left the group gets what is sent to it");
	}
	for (i = 0; i < 2; i++)
		race(&others[i], attach_and_detach);
	usleep(500000);
	stop = true;
	join(&sender);
	for (i = 0; i < 2; i++)
		join(&others[i]);
	/* As often as it is attached. */
	do
		err = ibv_detach_mcast(ud_b.qp, &group, 0);
	while (!err);
	require(err == EINVAL, "ibv_detach_mcast: %s", strerror(err));
	require_ok(ibv_destroy_qp(ud_b.qp));
	note("%u datagrams sent, %u received", sender.done, received);
	require(received, "none");
}

/* ---- a shared receive queue -------------------------------------------- */

#define MESSAGE 3000
static struct ibv_srq *srq;

static void send_messages(struct racer *racer)
{
	struct ibv_sge sge = buffer_sge(&near, 0, MESSAGE);

	for (; !stop; racer->done++) {
		stream_fill(near.bytes, MESSAGE, racer->done, 0);
		post_send(&pair.a, racer->done, IBV_WR_SEND, IBV_SEND_SIGNALED, &sge, 0, 0);
		while (!stop) {
			struct ibv_wc wc;

			if (!poll_within(pair.a.scq, &wc, 10))
				continue;
			require(wc.status == IBV_WC_SUCCESS && wc.wr_id == racer->done, "\"%s\"",
				ibv_wc_status_str(wc.status));
			break;
		}
	}
}

static void post_to_srq(void)
{
	struct ibv_sge sge = buffer_sge(&far, 0, MESSAGE);
	struct ibv_recv_wr *bad, wr = { .sg_list = &sge, .num_sge = 1 };

	require_ok(ibv_post_srq_recv(srq, &wr, &bad));
}

static void create_srq(void)
{
	struct ibv_srq_init_attr init = { .attr = { .max_wr = 64, .max_sge = 1 } };

	srq = ibv_create_srq(ends[1].pd, &init);
	require(srq, "ibv_create_srq: %s", strerror(errno));
	plan.srq = srq;
}

/* Messages come meanwhile: each once, and in order. */
TEST(resize_srq)
{
	unsigned int received = 0, resized = 0, at;
	struct ibv_srq_attr attr = {};
	struct racer sender;
	struct ibv_wc wc;
	int err;

	set_up();
	buffer_create(&near, &ends[0], 4096, IBV_ACCESS_LOCAL_WRITE);
	buffer_create(&far, &ends[1], 4096, IBV_ACCESS_LOCAL_WRITE);
	create_srq();
	pair_open(&pair, &plan);
	race(&sender, send_messages);
	while (again()) {
		/* One at a time, as all go to the same place. */
		post_to_srq();
		nap(&rng, 500);
		attr.max_wr = 1 + rng_below(&rng, rng_one_in(&rng, 2) ? 10 : 400);
		err = ibv_modify_srq(srq, &attr, IBV_SRQ_MAX_WR);
		require(!err || err == EINVAL, "ibv_modify_srq: %s", strerror(err));
		resized += !err;
		require(poll_within(pair.b.rcq, &wc, SOON_MS), "no message");
		require(wc.status == IBV_WC_SUCCESS && wc.byte_len == MESSAGE, "\"%s\", %u bytes",
			ibv_wc_status_str(wc.status), wc.byte_len);
		at = stream_compare(far.bytes, MESSAGE, received++, 0);
		require(at == MESSAGE, "message %u is another at byte %u", received, at);
	}
	stop = true;
	join(&sender);
	note("%u messages, resized %u times", received, resized);
	require(resized && received, "too little has happened");
}

static void destroy_the_srq(struct racer *racer)
{
	do {
		nap(&racer->rng, 300);
		racer->result = raw_destroy_srq(srq->context->cmd_fd, srq->handle);
		require(!racer->result || racer->result == EBUSY, "%s", strerror(racer->result));
		racer->done++;
	} while (racer->result);
}

/* It goes as soon as nobody uses it, and not before, with messages on their way. */
TEST(destroy_srq)
{
	unsigned int tries = 0, i;
	struct racer destroyer;

	set_up();
	plan.rnr_retry = plan.retry_cnt = 1;
	plan.timeout = 8;
	buffer_create(&near, &ends[0], 4096, IBV_ACCESS_LOCAL_WRITE);
	buffer_create(&far, &ends[1], 4096, IBV_ACCESS_LOCAL_WRITE);
	while (again()) {
		struct ibv_sge sge = buffer_sge(&near, 0, MESSAGE);

		create_srq();
		pair_open(&pair, &plan);
		for (i = 0; i < 16; i++)
			post_to_srq();
		race(&destroyer, destroy_the_srq);
		for (i = 0; i < 16; i++)
			post_send(&pair.a, i, IBV_WR_SEND, 0, &sge, 0, 0);
		nap(&rng, 3000);
		require_ok(ibv_destroy_qp(pair.b.qp));
		join(&destroyer);
		tries += destroyer.done;
		require_ok(ibv_destroy_cq(pair.b.scq));
		require_ok(ibv_destroy_cq(pair.b.rcq));
		rc_destroy(&pair.a);
	}
	note("%u tries", tries);
	require(tries > rounds, "it was never in use");
}

/* ---- destroying in the wrong order ------------------------------------- */

static struct ibv_cq *cq;
static struct ibv_pd *pd;

/* Makes and destroys what needs a PD and a CQ that others try to destroy. */
static void make_on(struct racer *racer)
{
	struct ibv_qp_init_attr init = {
		.send_cq = cq, .recv_cq = cq, .qp_type = IBV_QPT_RC,
		.cap = { .max_send_wr = 4, .max_recv_wr = 4, .max_send_sge = 1, .max_recv_sge = 1 },
	};
	static uint8_t bytes[2][4096];
	struct ibv_qp *qp;
	struct ibv_mr *mr;

	for (; !stop; racer->done++) {
		qp = ibv_create_qp(pd, &init);
		require(qp || errno == EINVAL || errno == ENOENT || errno == EBUSY, "ibv_create_qp: %s",
			strerror(errno));
		mr = ibv_reg_mr(pd, bytes[racer->done % 2], 4096, 0);
		require(mr || errno == EINVAL || errno == ENOENT || errno == EBUSY, "ibv_reg_mr: %s",
			strerror(errno));
		nap(&racer->rng, 200);
		if (qp)
			require_ok(ibv_destroy_qp(qp));
		if (mr)
			require_ok(ibv_dereg_mr(mr));
	}
}

TEST(wrong_order)
{
	unsigned int busy = 0, gone = 0, i;
	struct racer makers[2];
	int fd, err;

	set_up();
	fd = ends[0].context->cmd_fd;
	while (again()) {
		cq = ibv_create_cq(ends[0].context, 16, NULL, NULL, 0);
		pd = ibv_alloc_pd(ends[0].context);
		require(cq && pd, "%s", strerror(errno));
		for (i = 0; i < 2; i++)
			race(&makers[i], make_on);
		for (i = 0; i < 20; i++) {
			nap(&rng, 300);
			err = i % 2 ? raw_destroy_cq(fd, cq->handle) : raw_dealloc_pd(fd, pd->handle);
			require(!err || err == EBUSY || err == EINVAL || err == ENOENT, "%s",
				strerror(err));
			busy += err == EBUSY;
			gone += !err;
		}
		stop = true;
		for (i = 0; i < 2; i++)
			join(&makers[i]);
		/* Nobody uses them any more, so they go, if they are not gone. */
		err = raw_destroy_cq(fd, cq->handle);
		require(!err || err == EINVAL || err == ENOENT, "%s", strerror(err));
		err = raw_dealloc_pd(fd, pd->handle);
		require(!err || err == EINVAL || err == ENOENT, "%s", strerror(err));
	}
	note("%u were in use, %u went", busy, gone);
	require(busy, "nothing was in use");
}

TEST_HARNESS_MAIN
