// SPDX-License-Identifier: GPL-2.0
/*
 * Somebody who uses the same devices, and has nothing to do with what others do there:
 * messages over queue pairs of its own, every byte of which it verifies, until it gets
 * SIGTERM.
 *
 * It says "alone N" when it has had N rounds in an interval in which nobody disturbed, then
 * "started", and "interval N" after each one that follows, all of which must have some.
 * lib/bystander.sh judges how many.  At the end it says "unhurt".
 *
 * With "--pages" all of its memory is paged in on demand, and is taken away before each use.  Then it
 * says "gap MS" in addition, how long the longest round of the interval took, and lives on if that is
 * too long: who called it judges.
 */
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/random.h>

#include "stream.h"
#include "ud.h"
#include "verbs.h"

#define ROOM 65536		/* of the responder's memory */
#define LONGEST 20000
#define DATAGRAM 1000
#define GRH 40

/* A slow kernel has slow rounds. */
#define INTERVAL_MS ((time_scale() > 1 ? 8000 : 2000) / (pages ? 4 : 1))
/* A machine that has too few CPUs for all who want them stands still, too. */
#define STILL_MS (pages ? STEP_MS : 2 * INTERVAL_MS)
/* What one step of a round may take. */
#define STEP_MS (pages ? 20 * SOON_MS : SOON_MS)

static volatile sig_atomic_t stop;
static bool pages;

static struct rc_pair pair;
static struct buffer near, written, inbox;
static struct rng rng;
static uint64_t *expected;	/* what is in `written` */
static uint64_t total;		/* that the fetched counter must have */

static struct rc ud_a, ud_b;
static struct ibv_ah *ah;
static uint32_t qkey;
static unsigned int datagrams_sent, datagrams_received;

static void on_term(int number)
{
	(void)number;
	stop = 1;
}

/* ---- set-up ------------------------------------------------------------ */

static void post_datagram_recv(void)
{
	struct ibv_sge sge = buffer_sge(&inbox, LONGEST, GRH + DATAGRAM);

	post_recv(&ud_b, 0, &sge);
}

static void make_buffer(struct buffer *buffer, struct end *end, int access)
{
	uint8_t *bytes;

	if (!pages)
		return buffer_create(buffer, end, ROOM, access);
	/* What it holds is there after it was taken away. */
	bytes = mmap(NULL, ROOM, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	require(bytes != MAP_FAILED, "mmap: %s", strerror(errno));
	register_at(buffer, end, bytes, ROOM, access | IBV_ACCESS_ON_DEMAND);
}

/* Both ends have to page in what the next step uses. */
static void take_pages(void)
{
	if (!pages)
		return;
	drop_pages(near.bytes, ROOM);
	drop_pages(written.bytes, ROOM);
	drop_pages(inbox.bytes, ROOM);
}

static void set_up(void)
{
	struct rc_plan plan = default_plan;
	int access = plan.access | IBV_ACCESS_REMOTE_ATOMIC;

	/* A secret from those who guess. */
	require(getrandom(&qkey, sizeof(qkey), 0) == sizeof(qkey), "getrandom");
	qkey &= 0x7fffffff;
	require(getrandom(&rng.state, sizeof(rng.state), 0) == sizeof(rng.state), "getrandom");
	name_ends_from_environment();
	open_ends();
	/* Whoever floods the network device's queue has packets be lost: 7 times half a second. */
	plan.timeout = 17 + (time_scale() > 1 ? 3 : 0);
	plan.access = access;
	pair_open(&pair, &plan);
	make_buffer(&near, &ends[0], IBV_ACCESS_LOCAL_WRITE);
	make_buffer(&written, &ends[1], access);
	make_buffer(&inbox, &ends[1], IBV_ACCESS_LOCAL_WRITE);
	expected = xcalloc(1, ROOM);
	ud_create(&ud_a, &ends[0], &plan.cap, plan.cqe);
	ud_create(&ud_b, &ends[1], &plan.cap, plan.cqe);
	ud_start(&ud_a, qkey);
	ud_start(&ud_b, qkey);
	ah = ah_create(&ends[0], &ends[1]);
	post_datagram_recv();
}

/* ---- a round ----------------------------------------------------------- */

static void check_memory(void)
{
	require(!memcmp(written.bytes, expected, ROOM), "what others may not write to has changed");
}

static void sends(void)
{
	uint32_t length = rng_below(&rng, LONGEST);
	struct ibv_sge from = buffer_sge(&near, 0, length), to = buffer_sge(&inbox, 0, LONGEST);
	uint64_t key = rng_next(&rng);
	struct ibv_wc wc;

	stream_fill(near.bytes, length, key, 0);
	memset(inbox.bytes, 0, LONGEST);
	take_pages();
	post_recv(&pair.b, 1, &to);
	post_send(&pair.a, 2, IBV_WR_SEND, IBV_SEND_SIGNALED, &from, 0, 0);
	wc = expect_wc(pair.b.rcq, 1, IBV_WC_SUCCESS, STEP_MS);
	expect_wc(pair.a.scq, 2, IBV_WC_SUCCESS, STEP_MS);
	require(wc.byte_len == length, "%u bytes came, and not %u", wc.byte_len, length);
	require(stream_compare(inbox.bytes, length, key, 0) == length, "wrong bytes came");
}

static void writes_and_reads(void)
{
	uint32_t length = rng_below(&rng, LONGEST), at = 8 + rng_below(&rng, ROOM - LONGEST - 8);
	struct ibv_sge sge = buffer_sge(&near, 0, length);
	uint64_t key = rng_next(&rng), there = (uintptr_t)written.bytes + at;

	stream_fill(near.bytes, length, key, 0);
	stream_fill((uint8_t *)expected + at, length, key, 0);
	take_pages();
	post_send(&pair.a, 3, IBV_WR_RDMA_WRITE, IBV_SEND_SIGNALED, &sge, there, written.mr->rkey);
	expect_wc(pair.a.scq, 3, IBV_WC_SUCCESS, STEP_MS);
	check_memory();
	memset(near.bytes, 0, length);
	take_pages();
	post_send(&pair.a, 4, IBV_WR_RDMA_READ, IBV_SEND_SIGNALED, &sge, there, written.mr->rkey);
	expect_wc(pair.a.scq, 4, IBV_WC_SUCCESS, STEP_MS);
	require(stream_compare(near.bytes, length, key, 0) == length, "wrong bytes were read");
}

static void counts(void)
{
	struct ibv_sge sge = buffer_sge(&near, 0, 8);
	struct ibv_send_wr *bad, wr = {
		.wr_id = 5, .opcode = IBV_WR_ATOMIC_FETCH_AND_ADD, .send_flags = IBV_SEND_SIGNALED,
		.sg_list = &sge, .num_sge = 1,
		.wr.atomic = {
			.remote_addr = (uintptr_t)written.bytes, .rkey = written.mr->rkey,
			.compare_add = 1,
		},
	};

	take_pages();
	require_ok(ibv_post_send(pair.a.qp, &wr, &bad));
	expect_wc(pair.a.scq, 5, IBV_WC_SUCCESS, STEP_MS);
	require(*(uint64_t *)near.bytes == total, "the counter is not what it was");
	expected[0] = ++total;
	check_memory();
}

/* One that is lost is lost: what comes must be right. */
static void datagram(void)
{
	struct ibv_sge sge = buffer_sge(&near, 0, DATAGRAM);
	const uint8_t *came = inbox.bytes + LONGEST + GRH;
	uint64_t key = ++datagrams_sent;
	struct ibv_wc wc;

	stream_fill(near.bytes, DATAGRAM, mix(key, 1), 0);
	memcpy(near.bytes, &key, sizeof(key));
	take_pages();
	require_ok(ud_post(&ud_a, ah, ud_b.qp->qp_num, qkey, 6, IBV_SEND_SIGNALED, &sge));
	expect_wc(ud_a.scq, 6, IBV_WC_SUCCESS, STEP_MS);
	/* Or an earlier one, that was late. */
	if (!poll_within(ud_b.rcq, &wc, 20 * time_scale()))
		return;
	require(wc.status == IBV_WC_SUCCESS && wc.byte_len == GRH + DATAGRAM, "a datagram: %s",
		ibv_wc_status_str(wc.status));
	memcpy(&key, came, sizeof(key));
	require(key <= datagrams_sent, "a datagram that was not sent");
	require(stream_compare(came + 8, DATAGRAM - 8, mix(key, 1), 8) == DATAGRAM - 8,
		"a wrong datagram");
	datagrams_received++;
	post_datagram_recv();
}

static void one_round(void)
{
	sends();
	writes_and_reads();
	counts();
	datagram();
}

/* ---- intervals --------------------------------------------------------- */

/* How long the longest round of the interval took. */
static int64_t gap_ms;

/* Rounds in an interval; fewer when it ends before. */
static unsigned int interval(void)
{
	int64_t begin = now_ns(), took = 0, before;
	unsigned int rounds = 0;

	gap_ms = 0;
	do {
		before = took;
		one_round();
		rounds++;
		took = (now_ns() - begin) / NS_PER_MS;
		if (took - before > gap_ms)
			gap_ms = took - before;
	} while (!stop && took < INTERVAL_MS);
	require(took < INTERVAL_MS + STILL_MS, "nothing went on for %lld ms", (long long)took - INTERVAL_MS);
	return rounds;
}

static void run(void)
{
	unsigned int rounds;

	interval(); /* what is done once is done */
	note("alone %u", interval());
	note("started");
	for (;;) {
		rounds = interval();
		if (stop)
			break;
		note("interval %u", rounds);
		if (pages)
			note("gap %lld", (long long)gap_ms);
	}
	expect_no_async_event(&ends[0]);
	expect_no_async_event(&ends[1]);
	note("%u of %u datagrams came", datagrams_received, datagrams_sent);
	require(datagrams_received, "no datagram came");
	note("unhurt");
}

int main(int argc, char **argv)
{
	struct sigaction action = { .sa_handler = on_term };

	pages = argc > 1 && !strcmp(argv[1], "--pages");
	setvbuf(stdout, NULL, _IOLBF, 0);
	sigaction(SIGTERM, &action, NULL);
	set_up();
	run();
	return 0;
}
