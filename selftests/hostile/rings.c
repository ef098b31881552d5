// SPDX-License-Identifier: GPL-2.0
/*
 * A process that stores what it likes into the rings that it shares with the driver, from
 * two threads, before and after the doorbell and while the device works on them: each index
 * and each word of each work request, with limits and with anything.  It may hurt itself
 * alone: of the peer it changes what it was granted and what receives were posted for, of
 * its own memory what it may write to.
 *
 * SEED=... repeats what was stored, if not when.
 */
#include <infiniband/verbs.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

#include "harness.h"
#include "raw.h"
#include "rc.h"
#include "ud.h"
#include "verbs.h"

#define SEND_WR 32
#define RECV_WR 64
#define AREA (16 * PAGE)
#define QKEY 0x11111111

enum service { RC, UC, UD };

/* Memory of an end: areas with pages between them, all full of a pattern. */
enum { GUARD_1, OPEN, GUARD_2, CLOSED, GUARD_3, INBOX, GUARD_4, AREAS };

struct memory {
	uint8_t *bytes;
	struct ibv_mr *open, *closed, *inbox;
};

static struct memory ours, theirs;
static enum service service;
static struct rc_plan plan;
static struct rc_pair pair;		/* a is the evil one */
static struct ibv_srq *srq;		/* of its, or NULL */
static struct ibv_mw *windows[2];
static struct rc_rings its;
static struct ring *const rings[] = { &its.send, &its.recv, &its.cqs[0], &its.cqs[1] };
static struct rng rng;
static uint32_t producer, recv_producer;	/* ours, whatever the rings say */
static unsigned int posted, renewed, received, sent;

/* ---- memory ------------------------------------------------------------ */

static uint8_t *area(const struct memory *memory, int number)
{
	return memory->bytes + number * AREA;
}

static struct ibv_mr *reg(struct end *end, uint8_t *bytes, int access)
{
	struct ibv_mr *mr = ibv_reg_mr(end->pd, bytes, AREA, access);

	require(mr, "ibv_reg_mr: %s", strerror(errno));
	return mr;
}

static void set_up_memory(struct memory *memory, struct end *end, int closed_access)
{
	memory->bytes = map_pages(AREAS * AREA);
	stream_fill(memory->bytes, AREAS * AREA, end - ends, 0);
	memory->open = reg(end, area(memory, OPEN), REMOTE | IBV_ACCESS_MW_BIND);
	memory->closed = reg(end, area(memory, CLOSED), closed_access);
	memory->inbox = reg(end, area(memory, INBOX), IBV_ACCESS_LOCAL_WRITE);
}

static bool is_as_it_was(const struct memory *memory, uint64_t key, int number)
{
	return stream_compare(area(memory, number), AREA, key, number * AREA) == AREA;
}

static void check_memory(const struct memory *memory, uint64_t key)
{
	static const int fixed[] = { GUARD_1, GUARD_2, CLOSED, GUARD_3, GUARD_4 };
	size_t i;

	for (i = 0; i < ARRAY_SIZE(fixed); i++)
		require(is_as_it_was(memory, key, fixed[i]), "area %d of end %c was written to",
			fixed[i], 'a' + (int)key);
}

static void check_all_memory(void)
{
	check_memory(&ours, 0);
	check_memory(&theirs, 1);
}

/* ---- queue pairs ------------------------------------------------------- */

static void create_end(struct rc *rc, struct end *end)
{
	if (service == UD)
		ud_create(rc, end, &plan.cap, plan.cqe);
	else
		rc_create(rc, end, &plan);
}

static void create_evil(void)
{
	struct ring_list before;

	rings_list(ends[0].context, &before);
	create_end(&pair.a, &ends[0]);
	rc_rings_since(&pair.a, &before, &its);
	if (!srq)
		recv_producer = 0;
}

static void reset(struct rc *rc)
{
	rc_modify(rc, IBV_QPS_RESET, NULL, &plan);
}

static void post_inbox(void)
{
	struct ibv_sge sge = {
		.addr = (uintptr_t)area(&theirs, INBOX), .length = AREA,
		.lkey = theirs.inbox->lkey,
	};
	int i;

	for (i = 0; i < RECV_WR; i++)
		post_recv(&pair.b, i, &sge);
}

static void connect_pair(void)
{
	struct rc_address a = rc_address(&pair.a), b = rc_address(&pair.b);

	if (service == UD) {
		ud_start(&pair.a, QKEY);
		ud_start(&pair.b, QKEY);
	} else {
		rc_connect(&pair.a, &b, &plan);
		rc_connect(&pair.b, &a, &plan);
	}
	post_inbox();
}

static void poll_peer(void)
{
	struct ibv_wc wc;

	while (poll_within(pair.b.rcq, &wc, 0))
		received += wc.status == IBV_WC_SUCCESS;
	while (poll_within(pair.b.scq, &wc, 0))
		sent += wc.status == IBV_WC_SUCCESS;
}

/* As good as new: the driver forgets what is posted, and so does the library at b. */
static void restart(void)
{
	reset(&pair.a);
	reset(&pair.b);
	poll_peer();
	producer = its.send.buf->consumer_index & its.send.mask;
	its.send.buf->producer_index = producer;
	connect_pair();
}

/* Sometimes another one in its place, which goes with all that is stored into it just now. */
static void renew(void)
{
	renewed++;
	if (rng_one_in(&rng, 20)) {
		require_ok(ibv_destroy_qp(pair.a.qp));
		require_ok(ibv_destroy_cq(pair.a.scq));
		require_ok(ibv_destroy_cq(pair.a.rcq));
		create_evil();
	}
	restart();
}

static void create_srq(void)
{
	struct ibv_srq_init_attr init = { .attr = { .max_wr = RECV_WR, .max_sge = 4 } };
	struct ring_list before;

	rings_list(ends[0].context, &before);
	srq = ibv_create_srq(ends[0].pd, &init);
	require(srq, "ibv_create_srq: %s", strerror(errno));
	rings_since(ends[0].context, &before, &its.recv, 1);
}

static void set_up(enum service wanted, bool shared)
{
	const char *driver = getenv("DRIVER");
	int i;

	if (driver && !strcmp(driver, "rxe") && !getenv("HOSTILE"))
		skip("rdma_rxe trusts the rings: HOSTILE=1 tries it all the same");
	name_ends_from_environment();
	open_ends();
	rng.state = random_seed();
	service = wanted;
	plan = default_plan;
	plan.unreliable = service == UC;
	plan.cap.max_send_wr = SEND_WR;
	plan.cap.max_recv_wr = RECV_WR;
	plan.cap.max_send_sge = 6;
	plan.cqe = 300;
	plan.access |= IBV_ACCESS_REMOTE_ATOMIC;
	/* What is lost by intention is not to be waited for. */
	plan.timeout = 8;
	plan.retry_cnt = plan.rnr_retry = 1;
	set_up_memory(&ours, &ends[0], 0);
	set_up_memory(&theirs, &ends[1], IBV_ACCESS_LOCAL_WRITE);
	for (i = 0; i < 2; i++) {
		windows[i] = ibv_alloc_mw(ends[0].pd, i ? IBV_MW_TYPE_2 : IBV_MW_TYPE_1);
		require(windows[i], "ibv_alloc_mw: %s", strerror(errno));
	}
	if (shared) {
		create_srq();
		plan.srq = srq;
	}
	if (service == UD)
		ah_create(&ends[0], &ends[1]);
	create_evil();
	create_end(&pair.b, &ends[1]);
	connect_pair();
}

/* ---- what is stored ---------------------------------------------------- */

static uint32_t some_key(struct rng *rng)
{
	const uint32_t keys[] = {
		ours.open->lkey, ours.closed->lkey, ours.inbox->lkey, theirs.open->rkey,
		theirs.closed->rkey, theirs.inbox->rkey, windows[0]->rkey, windows[1]->rkey,
		/* The kernel's own. */
		0, 1, 0x10000000,
	};

	uint32_t flipped = rng_one_in(rng, 4) ? 1U << rng_below(rng, 32) : 0;

	return keys[rng_below(rng, ARRAY_SIZE(keys))] ^ flipped;
}

static uint64_t some_address(struct rng *rng)
{
	const uint64_t places[] = {
		(uintptr_t)area(&ours, OPEN), (uintptr_t)area(&ours, CLOSED),
		(uintptr_t)area(&theirs, OPEN), (uintptr_t)area(&theirs, CLOSED),
		(uintptr_t)area(&theirs, GUARD_3), (uintptr_t)its.send.buf,
		0, 0xffff888000001000, 0xffffffff80000000, 0xffffffffffffff00,
	};

	return places[rng_below(rng, ARRAY_SIZE(places))] + rng_below(rng, 2 * AREA) -
	       (rng_one_in(rng, 4) ? AREA : 0);
}

static uint64_t some_value(struct rng *rng)
{
	switch (rng_below(rng, 4)) {
	case 0: return some_key(rng);
	case 1: return some_address(rng);
	default: return wild_number(rng);
	}
}

/* Nobody else stores through these as anything but bytes. */
typedef volatile uint32_t __attribute__((may_alias)) word;
typedef volatile uint64_t __attribute__((may_alias)) long_word;

/* One word, or two, of a slot of as many bytes. */
static void spoil(struct rng *rng, void *slot, size_t size)
{
	size_t at = 4 * rng_below(rng, size / 4);

	if (at % 8 || rng_one_in(rng, 2))
		*(word *)((uint8_t *)slot + at) = some_value(rng);
	else
		*(long_word *)((uint8_t *)slot + at) = some_value(rng);
}

static void spoil_index(struct rng *rng, struct ring *ring)
{
	word *index = rng_one_in(rng, 2) ? &ring->buf->producer_index : &ring->buf->consumer_index;

	*index = rng_one_in(rng, 2) ? *index + rng_below(rng, 8) - 4 : wild_number(rng);
}

/* What the driver has told of the ring, which it needs no more. */
static void spoil_geometry(struct rng *rng, struct ring *ring)
{
	*(rng_one_in(rng, 2) ? (word *)&ring->buf->index_mask : (word *)&ring->buf->log2_elem_size) =
		wild_number(rng);
}

/* ---- what is good ------------------------------------------------------ */

static const uint32_t opcodes[] = {
	IB_UVERBS_WR_RDMA_WRITE, IB_UVERBS_WR_RDMA_WRITE_WITH_IMM, IB_UVERBS_WR_SEND,
	IB_UVERBS_WR_SEND_WITH_IMM, IB_UVERBS_WR_RDMA_READ, IB_UVERBS_WR_ATOMIC_CMP_AND_SWP,
	IB_UVERBS_WR_ATOMIC_FETCH_AND_ADD, IB_UVERBS_WR_FLUSH, IB_UVERBS_WR_ATOMIC_WRITE,
	IB_UVERBS_WR_BIND_MW, IB_UVERBS_WR_LOCAL_INV, IB_UVERBS_WR_SEND_WITH_INV,
};
#define MOSTLY_FAIL 3

static bool is_atomic(uint32_t opcode)
{
	return opcode == IB_UVERBS_WR_ATOMIC_CMP_AND_SWP ||
	       opcode == IB_UVERBS_WR_ATOMIC_FETCH_AND_ADD || opcode == IB_UVERBS_WR_ATOMIC_WRITE;
}

static void good_sges(struct rxe_dma_info *dma, const struct ibv_mr *mr, uint32_t count,
		      uint32_t length)
{
	uint32_t i;

	for (i = 0; i < count; i++)
		dma->sge[i] = (struct rxe_sge){
			.addr = (uintptr_t)mr->addr + 64 * rng_below(&rng, 100),
			.length = length, .lkey = mr->lkey,
		};
	dma->num_sge = count;
	dma->length = dma->resid = count * length;
}

static void good_datagram(struct rxe_send_wqe *wqe)
{
	wqe->wr.opcode = rng_one_in(&rng, 4) ? IB_UVERBS_WR_SEND_WITH_IMM : IB_UVERBS_WR_SEND;
	wqe->wr.wr.ud.remote_qpn = pair.b.qp->qp_num;
	wqe->wr.wr.ud.remote_qkey = QKEY;
	if (rng_one_in(&rng, 2)) {
		/* By the handle, whose number the library hides. */
		wqe->wr.wr.ud.ah_num = rng_below(&rng, 8);
	}
	wqe->wr.wr.ud.av.port_num = PORT;
	wqe->wr.wr.ud.av.grh.sgid_index = ends[0].gid_index;
	wqe->wr.wr.ud.av.grh.hop_limit = 64;
	memcpy(&wqe->wr.wr.ud.av.grh.dgid, &ends[1].gid, sizeof(ends[1].gid));
	good_sges(&wqe->dma, ours.open, 1 + rng_below(&rng, 3), 300);
}

static void good_bind(struct rxe_send_wqe *wqe)
{
	const struct ibv_mw *mw = windows[rng_below(&rng, 2)];

	wqe->wr.wr.mw.addr = (uintptr_t)ours.open->addr + PAGE;
	wqe->wr.wr.mw.length = PAGE;
	wqe->wr.wr.mw.mr_lkey = ours.open->lkey;
	wqe->wr.wr.mw.mw_rkey = mw->rkey;
	wqe->wr.wr.mw.rkey = mw->rkey + rng_below(&rng, 3);
	wqe->wr.wr.mw.access = IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ;
}

static void good_connected(struct rxe_send_wqe *wqe)
{
	/* Those at the end of the list mostly fail. */
	uint32_t opcode = opcodes[rng_below(&rng, ARRAY_SIZE(opcodes) -
						  (rng_one_in(&rng, 4) ? 0 : MOSTLY_FAIL))];
	uint64_t there = (uintptr_t)area(&theirs, OPEN) + 8 * rng_below(&rng, 4000);

	wqe->wr.opcode = opcode;
	wqe->wr.wr.rdma.remote_addr = wqe->iova = there;
	wqe->wr.wr.rdma.rkey = theirs.open->rkey;
	good_sges(&wqe->dma, ours.open, 1 + rng_below(&rng, 4), 1 + rng_below(&rng, 3000));
	if (is_atomic(opcode)) {
		wqe->wr.wr.atomic.rkey = theirs.open->rkey;
		good_sges(&wqe->dma, ours.open, 1, 8);
	} else if (opcode == IB_UVERBS_WR_BIND_MW) {
		good_bind(wqe);
	} else if (opcode == IB_UVERBS_WR_FLUSH) {
		wqe->wr.wr.flush.rkey = theirs.open->rkey;
		wqe->wr.wr.flush.type = IB_FLUSH_GLOBAL;
	} else if (opcode == IB_UVERBS_WR_LOCAL_INV || opcode == IB_UVERBS_WR_SEND_WITH_INV) {
		wqe->wr.ex.invalidate_rkey = windows[1]->rkey;
	}
}

static void *good_request(void)
{
	struct rxe_send_wqe *wqe = ring_slot(&its.send, producer);

	memset(wqe, 0, 1UL << its.send.log2);
	wqe->wr.wr_id = posted;
	wqe->wr.send_flags = IBV_SEND_SIGNALED | (rng_one_in(&rng, 8) ? IBV_SEND_FENCE : 0);
	if (service == UD)
		good_datagram(wqe);
	else
		good_connected(wqe);
	return wqe;
}

static void good_recv(void)
{
	struct rxe_recv_wqe *wqe = ring_slot(&its.recv, recv_producer);

	memset(wqe, 0, 1UL << its.recv.log2);
	good_sges(&wqe->dma, ours.inbox, 1 + rng_below(&rng, 3), 4000);
	if (rng_one_in(&rng, 4))
		spoil(&rng, wqe, 1UL << its.recv.log2);
	its.recv.buf->producer_index = recv_producer = (recv_producer + 1) & its.recv.mask;
}

/* ---- the two threads --------------------------------------------------- */

static atomic_bool stop;
static pthread_mutex_t rings_stand = PTHREAD_MUTEX_INITIALIZER;
static uint64_t scribbled;

/* Stores for a while, and lets something good come about now and then. */
static void *scribble(void *seed)
{
	struct rng rng = { .state = (uintptr_t)seed };
	unsigned int count;
	struct ring *ring;

	while (!stop) {
		pthread_mutex_lock(&rings_stand);
		for (count = rng_below(&rng, 2000); count; count--, scribbled++) {
			ring = rings[rng_below(&rng, ARRAY_SIZE(rings))];
			if (rng_one_in(&rng, 20))
				spoil_index(&rng, ring);
			else if (rng_one_in(&rng, 100))
				spoil_geometry(&rng, ring);
			else
				spoil(&rng, ring_slot(ring, rng_next(&rng)), 1UL << ring->log2);
		}
		pthread_mutex_unlock(&rings_stand);
		usleep(rng_below(&rng, 6000));
	}
	return NULL;
}

/* What the peer gets, and what it asks for in turn. */
static void peer_part(void)
{
	struct ibv_sge sge = {
		.addr = (uintptr_t)area(&theirs, INBOX), .length = 1 + rng_below(&rng, 9000),
		.lkey = theirs.inbox->lkey,
	};
	static const enum ibv_wr_opcode asks[] = {
		IBV_WR_SEND, IBV_WR_RDMA_WRITE, IBV_WR_RDMA_READ,
	};

	poll_peer();
	if (service != UD && rng_one_in(&rng, 4))
		try_post_send(&pair.b, 1, asks[rng_below(&rng, service == UC ? 2 : 3)],
			      IBV_SEND_SIGNALED, &sge, (uintptr_t)area(&ours, OPEN),
			      rng_one_in(&rng, 4) ? windows[rng_below(&rng, 2)]->rkey :
						    ours.open->rkey);
}

static bool is_broken(void)
{
	enum ibv_qp_state a = rc_state(&pair.a), b = rc_state(&pair.b);

	return a == IBV_QPS_ERR || a == IBV_QPS_SQE || b == IBV_QPS_ERR;
}

/* Publishes what is in the slot, as it should be done. */
static void push_request(void)
{
	posted++;
	producer = (producer + 1) & its.send.mask;
	its.send.buf->producer_index = producer;
	raw_doorbell(ends[0].context->cmd_fd, pair.a.qp->handle);
}

static unsigned int under_way(void)
{
	return (producer - *(word *)&its.send.buf->consumer_index) & its.send.mask;
}

/* The device works until so much is left; it may have been told that there is nothing. */
static void let_it_work(unsigned int most)
{
	int64_t end = now_ns() + 2 * NS_PER_MS;

	while (under_way() > most && now_ns() < end)
		usleep(100);
}

/* One work request, which may be spoilt at any time. */
static void step(void)
{
	void *slot = good_request();
	int count;

	if (rng_one_in(&rng, 2))
		for (count = rng_below(&rng, 4); count; count--)
			spoil(&rng, slot, 1UL << its.send.log2);
	good_recv();
	push_request();
	if (rng_one_in(&rng, 2))
		spoil(&rng, slot, 1UL << its.send.log2);
	if (rng_one_in(&rng, 30))
		spoil_index(&rng, rings[rng_below(&rng, ARRAY_SIZE(rings))]);
	raw_doorbell(ends[0].context->cmd_fd, pair.a.qp->handle);
	let_it_work(SEND_WR / 2);
	peer_part();
}

/* Each word of a request takes each of these, once. */
static void each_word(void)
{
	static const uint32_t values[] = { 0, 1, 32, 33, 0x7fffffff, 0x80000000, 0xffffffff };
	size_t at, i;
	word *slot;

	for (at = 0; at < sizeof(struct rxe_send_wqe) + 64; at += 4) {
		for (i = 0; i < ARRAY_SIZE(values); i++) {
			slot = good_request();
			slot[at / 4] = values[i];
			good_recv();
			push_request();
			let_it_work(0);
			peer_part();
			if (is_broken())
				renew();
		}
	}
	check_all_memory();
}

static void run(enum service wanted, bool shared)
{
	int64_t end;
	pthread_t thread;

	set_up(wanted, shared);
	each_word();
	note("each word: %u renewals, %u messages came, %u went", renewed, received, sent);
	require(received, "nothing came through");
	require_ok(pthread_create(&thread, NULL, scribble, (void *)(uintptr_t)rng_next(&rng)));
	for (end = now_ns() + chance_ns(); now_ns() < end;) {
		step();
		if (!rng_one_in(&rng, 4) || !is_broken())
			continue;
		/* The rings may be others after this. */
		pthread_mutex_lock(&rings_stand);
		renew();
		pthread_mutex_unlock(&rings_stand);
		check_all_memory();
	}
	check_all_memory();
	note("%u requests, %llu stores beside, %u renewals, %u messages came, %u went", posted,
	     (unsigned long long)scribbled, renewed, received, sent);
	require(posted > 20 && scribbled > 1000 && renewed, "too little has happened");
	require(service == UD || !is_as_it_was(&theirs, 1, OPEN), "no WRITE was carried out");
	/* The process ends, and the other thread stores on. */
}

TEST(reliable) { run(RC, false); }
TEST(unreliable) { run(UC, false); }
TEST(datagrams) { run(UD, false); }
TEST(shared) { run(RC, true); }

/* ---- a ring as memory -------------------------------------------------- */

/* Has the peer's bytes written into the ring: 64 of them, to its last slot. */
static void read_into(const struct ring *ring, const struct ibv_mr *mr)
{
	uint8_t *slot = ring_slot(ring, ring->mask), *there = area(&theirs, OPEN);
	struct rxe_send_wqe *wqe = good_request();
	int64_t end = now_ns() + SOON_MS * NS_PER_MS;

	memset(&wqe->wr, 0, sizeof(wqe->wr));
	wqe->wr.opcode = IB_UVERBS_WR_RDMA_READ;
	wqe->wr.wr.rdma.remote_addr = wqe->iova = (uintptr_t)there;
	wqe->wr.wr.rdma.rkey = theirs.open->rkey;
	wqe->dma.num_sge = 1;
	wqe->dma.length = wqe->dma.resid = 64;
	wqe->dma.sge[0] = (struct rxe_sge){
		.addr = (uintptr_t)slot, .length = 64, .lkey = mr->lkey,
	};
	push_request();
	while (memcmp(slot, there, 64))
		require(now_ns() < end, "the ring was not written to");
}

/* The rings are registered, and the device writes into them what it likes to find there. */
TEST(rings_as_memory)
{
	struct ibv_mr *mrs[ARRAY_SIZE(rings)];
	struct rxe_send_wqe *wqe;
	int64_t end;
	size_t i;
	int fd;

	set_up(RC, false);
	fd = ends[0].context->cmd_fd;
	for (i = 0; i < ARRAY_SIZE(rings); i++) {
		mrs[i] = ibv_reg_mr(ends[0].pd, rings[i]->buf, rings[i]->size, REMOTE);
		require(mrs[i], "ring %zu: %s", i, strerror(errno));
	}
	read_into(&its.recv, mrs[1]);
	for (end = now_ns() + chance_ns() / 2; now_ns() < end;) {
		wqe = good_request();
		i = rng_below(&rng, ARRAY_SIZE(rings));
		/* From the peer into the ring, whatever is there. */
		wqe->wr.opcode = IB_UVERBS_WR_RDMA_READ;
		good_sges(&wqe->dma, mrs[i], 1, 64 + rng_below(&rng, 1000));
		good_recv();
		push_request();
		let_it_work(SEND_WR / 2);
		peer_part();
		if (is_broken())
			restart();
	}
	check_all_memory();
	note("%u requests, %u messages came", posted, received);
	/* The rings go, and their pages stay as long as they are registered. */
	require_ok(raw_destroy_qp(fd, pair.a.qp->handle));
	for (i = 0; i < ARRAY_SIZE(rings); i++)
		require_sys(munmap(rings[i]->buf, rings[i]->size));
	for (i = 0; i < ARRAY_SIZE(rings); i++)
		require_ok(ibv_dereg_mr(mrs[i]));
}

TEST_HARNESS_MAIN
