// SPDX-License-Identifier: GPL-2.0
/*
 * Shared receive queues.
 */
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "harness.h"
#include "rc.h"

#define PAIRS 4

/* A large queue: so many receives, of which each has 512 bytes. */
#define LARGE (1 << 18)
#define MANY_SGES 27

static struct rc_pair pairs[PAIRS];
static struct rc_plan plan;
static struct ibv_srq *srq;

static struct ibv_srq *try_create(uint32_t max_wr, uint32_t max_sge, uint32_t limit)
{
	struct ibv_srq_init_attr init = {
		.attr = { .max_wr = max_wr, .max_sge = max_sge, .srq_limit = limit },
	};
	struct ibv_srq *new = ibv_create_srq(ends[1].pd, &init);

	if (new)
		require(init.attr.max_wr >= max_wr && init.attr.max_sge >= max_sge,
			"%u receives of %u SGEs", init.attr.max_wr, init.attr.max_sge);
	return new;
}

/* Queue pairs on the second end that share a queue. */
static void set_up(unsigned int count, uint32_t max_wr)
{
	unsigned int i;

	name_ends_from_environment();
	open_ends();
	srq = try_create(max_wr, 2, 0);
	require(srq, "ibv_create_srq: %s", strerror(errno));
	plan = default_plan;
	plan.srq = srq;
	for (i = 0; i < count; i++)
		pair_open(&pairs[i], &plan);
}

static void post(uint64_t wr_id, const struct ibv_sge *sge)
{
	struct ibv_recv_wr *bad, wr = {
		.wr_id = wr_id, .sg_list = (struct ibv_sge *)sge, .num_sge = sge ? 1 : 0,
	};

	require_ok(ibv_post_srq_recv(srq, &wr, &bad));
}

static void post_many(uint64_t from, uint64_t to)
{
	for (; from < to; from++)
		post(from, NULL);
}

static void send_one(struct rc_pair *pair)
{
	post_send(&pair->a, 1, IBV_WR_SEND, IBV_SEND_SIGNALED, NULL, 0, 0);
	expect_wc(pair->a.scq, 1, IBV_WC_SUCCESS, SOON_MS);
}

static struct ibv_srq_attr query(void)
{
	struct ibv_srq_attr attr;

	require_ok(ibv_query_srq(srq, &attr));
	return attr;
}

static int set_limit(uint32_t limit)
{
	struct ibv_srq_attr attr = { .srq_limit = limit };

	return ibv_modify_srq(srq, &attr, IBV_SRQ_LIMIT);
}

static int set_size(uint32_t max_wr)
{
	struct ibv_srq_attr attr = { .max_wr = max_wr };

	return ibv_modify_srq(srq, &attr, IBV_SRQ_MAX_WR);
}

/* The first that needs a receive gets the oldest. */
/* Rules: SRQ-1 */
TEST(in_order_for_all)
{
	unsigned int round, i;
	uint64_t next = 0;

	set_up(PAIRS, 64);
	post_many(0, 3 * PAIRS);
	for (round = 0; round < 3; round++) {
		for (i = 0; i < PAIRS; i++) {
			struct ibv_wc wc;

			send_one(&pairs[i]);
			wc = expect_wc(pairs[i].b.rcq, next++, IBV_WC_SUCCESS, SOON_MS);
			require(wc.qp_num == pairs[i].b.qp->qp_num, "of another queue pair");
		}
	}
}

/* Many times as many as there is room for, so that the ring goes round. */
TEST(goes_round)
{
	uint64_t i;

	set_up(1, 5);
	for (i = 0; i < 100; i++) {
		post(i, NULL);
		send_one(&pairs[0]);
		expect_wc(pairs[0].b.rcq, i, IBV_WC_SUCCESS, SOON_MS);
	}
}

/* Rules: SRQ-2 */
TEST(waits_for_a_receive)
{
	set_up(2, 8);
	post_send(&pairs[0].a, 1, IBV_WR_SEND, IBV_SEND_SIGNALED, NULL, 0, 0);
	expect_no_wc(pairs[0].a.scq, 100);
	post(7, NULL);
	expect_wc(pairs[0].b.rcq, 7, IBV_WC_SUCCESS, SOON_MS);
	expect_wc(pairs[0].a.scq, 1, IBV_WC_SUCCESS, SOON_MS);
}

TEST(data_arrives)
{
	struct buffer mine, theirs;
	struct ibv_sge from, to;
	size_t i;

	set_up(1, 8);
	buffer_create(&mine, &ends[0], 20000, 0);
	buffer_create(&theirs, &ends[1], 20000, IBV_ACCESS_LOCAL_WRITE);
	for (i = 0; i < mine.size; i++)
		mine.bytes[i] = i * 7 + i / 256;
	from = buffer_sge(&mine, 0, 20000);
	to = buffer_sge(&theirs, 0, 20000);
	post(3, &to);
	post_send(&pairs[0].a, 1, IBV_WR_SEND, IBV_SEND_SIGNALED, &from, 0, 0);
	require(expect_wc(pairs[0].b.rcq, 3, IBV_WC_SUCCESS, SOON_MS).byte_len == 20000,
		"another length");
	require(!memcmp(mine.bytes, theirs.bytes, 20000), "other bytes");
}

/* Rules: SRQ-3 */
TEST(limit_is_told_once)
{
	unsigned int i;

	set_up(1, 16);
	post_many(0, 8);
	require_ok(set_limit(6));
	require(query().srq_limit == 6, "the limit is %u", query().srq_limit);
	for (i = 0; i < 2; i++) {
		send_one(&pairs[0]);
		expect_no_async_event(&ends[1]);
	}
	send_one(&pairs[0]);
	require(async_event_within(&ends[1], IBV_EVENT_SRQ_LIMIT_REACHED, SOON_MS), "no event");
	require(query().srq_limit == 0, "the limit is still set");
	send_one(&pairs[0]);
	expect_no_async_event(&ends[1]);
	require_ok(set_limit(6));
	send_one(&pairs[0]);
	require(async_event_within(&ends[1], IBV_EVENT_SRQ_LIMIT_REACHED, SOON_MS), "no event");
}

TEST(resized)
{
	uint64_t i;

	set_up(1, 8);
	/* Not from the first slot. */
	post_many(0, 5);
	for (i = 0; i < 5; i++)
		send_one(&pairs[0]);
	post_many(5, 11);
	require_ok(set_size(60));
	require(query().max_wr >= 60, "room for %u", query().max_wr);
	post_many(11, 5 + query().max_wr);
	require_ok(set_size(query().max_wr));
	for (i = 5; i < 5 + query().max_wr; i++)
		send_one(&pairs[0]);
	for (i = 0; i < 5 + query().max_wr; i++)
		expect_wc(pairs[0].b.rcq, i, IBV_WC_SUCCESS, SOON_MS);
	post_many(0, 3);
	require_ok(set_size(3));
	require(query().max_wr < 60, "room for %u", query().max_wr);
	for (i = 0; i < 3; i++) {
		send_one(&pairs[0]);
		expect_wc(pairs[0].b.rcq, i, IBV_WC_SUCCESS, SOON_MS);
	}
}

TEST(bad_sizes)
{
	uint32_t max_wr, max_sge;

	set_up(1, 8);
	max_wr = ends[1].attr.max_srq_wr;
	max_sge = ends[1].attr.max_srq_sge;
	require(max_wr >= 917503 && max_sge >= 27 && ends[1].attr.max_srq >= 917503,
		"%u queues of %u receives of %u SGEs", ends[1].attr.max_srq, max_wr, max_sge);
	require(!try_create(max_wr + 1, 1, 0) && errno == EINVAL, "too many receives");
	require(!try_create(8, max_sge + 1, 0) && errno == EINVAL, "too many SGEs");
	require(!try_create(0, 1, 0) && errno == EINVAL, "no receives");
	require(!try_create(8, 1, 1000) && errno == EINVAL, "a limit above the size");
	require(set_limit(query().max_wr + 1) == EINVAL, "a limit above the size");
	require(set_size(max_wr + 1) == EINVAL, "too large");
	require(set_size(0) == EINVAL, "nothing");
	post_many(0, 6);
	require(set_size(2) == EINVAL, "smaller than what is posted");
	require_ok(set_limit(5));
	require(set_size(3) == EINVAL, "smaller than what is posted, and the limit");
	require(query().srq_limit == 5 && query().max_wr >= 8, "something was changed");
	send_one(&pairs[0]);
	expect_wc(pairs[0].b.rcq, 0, IBV_WC_SUCCESS, SOON_MS);
}

/* The end of a queue pair takes nothing with it that another one could use. */
/* Rules: SRQ-5 */
TEST(error_leaves_the_rest)
{
	set_up(2, 8);
	post_many(0, 2);
	rc_modify(&pairs[0].b, IBV_QPS_ERR, NULL, NULL);
	require(async_event_within(&ends[1], IBV_EVENT_QP_LAST_WQE_REACHED, SOON_MS), "no event");
	expect_no_wc(pairs[0].b.rcq, 100);
	send_one(&pairs[1]);
	expect_wc(pairs[1].b.rcq, 0, IBV_WC_SUCCESS, SOON_MS);
	require_ok(ibv_destroy_qp(pairs[0].b.qp));
	require(ibv_destroy_srq(srq) == EBUSY, "it can go before its queue pairs");
	send_one(&pairs[1]);
	expect_wc(pairs[1].b.rcq, 1, IBV_WC_SUCCESS, SOON_MS);
	expect_no_async_event(&ends[1]);
	require_ok(ibv_destroy_qp(pairs[1].b.qp));
	require_ok(ibv_destroy_srq(srq));
}

/* A receive for memory that the queue's domain does not have fails whoever takes it. */
/* Rules: SRQ-4 */
TEST(memory_of_another_domain)
{
	struct ibv_pd *own, *other;
	struct buffer buffer;
	struct ibv_sge sge;

	set_up(2, 8);
	own = ends[1].pd;
	other = ibv_alloc_pd(ends[1].context);
	require(other, "ibv_alloc_pd: %s", strerror(errno));
	ends[1].pd = other;
	buffer_create(&buffer, &ends[1], 4096, IBV_ACCESS_LOCAL_WRITE);
	ends[1].pd = own;
	sge = buffer_sge(&buffer, 0, 100);
	post(4, &sge);
	post(5, NULL);
	post_send(&pairs[0].a, 1, IBV_WR_SEND, IBV_SEND_SIGNALED, NULL, 0, 0);
	expect_wc(pairs[0].b.rcq, 4, IBV_WC_LOC_PROT_ERR, SOON_MS);
	expect_wc(pairs[0].a.scq, 1, IBV_WC_REM_OP_ERR, SOON_MS);
	send_one(&pairs[1]);
	expect_wc(pairs[1].b.rcq, 5, IBV_WC_SUCCESS, SOON_MS);
}

/* ---- while others work -------------------------------------------------- */

/*
 * How long others may have to wait: the longer of this, and of a tenth of what the change of size
 * takes, as all of it takes longer on a busy host. The RDMA core needs half of this to forget where
 * the old ring could be mapped, page by page under a lock (rdma_user_mmap_entry_free). Of several
 * attempts the best one counts.
 */
#define STALL_NS (60 * NS_PER_MS * time_scale())
#define ATTEMPTS 4

/* A process of its own that exchanges messages all the time, on the CPU of who asks for it. */
static struct bystander {
	_Atomic unsigned int rounds;
	_Atomic int64_t worst_ns;
} *bystander;
static pid_t bystander_pid;

static void run_on_cpu(int cpu)
{
	cpu_set_t set;

	CPU_ZERO(&set);
	CPU_SET(cpu, &set);
	require_sys(sched_setaffinity(0, sizeof(set), &set));
}

/* Each millisecond, before all that is not urgent; how long after that it is done is measured. */
static _Noreturn void stand_by(void)
{
	struct sched_param first = { .sched_priority = 1 };
	struct rc_pair pair;
	struct timespec at;
	int64_t due, took;

	name_ends_from_environment();
	open_ends();
	pair_open(&pair, &default_plan);
	require_sys(sched_setscheduler(0, SCHED_FIFO, &first));
	for (due = now_ns();; due += NS_PER_MS) {
		at = (struct timespec){ .tv_sec = due / NS_PER_S, .tv_nsec = due % NS_PER_S };
		clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &at, NULL);
		post_recv(&pair.b, 1, NULL);
		send_one(&pair);
		expect_wc(pair.b.rcq, 1, IBV_WC_SUCCESS, SOON_MS);
		took = now_ns() - due;
		if (took > bystander->worst_ns)
			bystander->worst_ns = took;
		bystander->rounds++;
		if (took > NS_PER_MS)
			due = now_ns();
	}
}

/* Before the caller opens anything. */
static void bystander_begin(void)
{
	run_on_cpu(sched_getcpu());
	bystander = mmap(NULL, sizeof(*bystander), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS,
			 -1, 0);
	require(bystander != MAP_FAILED, "mmap: %s", strerror(errno));
	bystander_pid = fork();
	require_sys(bystander_pid);
	if (!bystander_pid) {
		require_sys(prctl(PR_SET_PDEATHSIG, SIGKILL));
		stand_by();
	}
}

/* Goes on for some rounds of its. */
static void bystander_goes_on(unsigned int rounds)
{
	int64_t deadline = now_ns() + SOON_MS * NS_PER_MS;
	unsigned int end = bystander->rounds + rounds;

	while ((int)(end - bystander->rounds) > 0) {
		require(now_ns() < deadline && !waitpid(bystander_pid, NULL, WNOHANG),
			"the bystander stands still");
		usleep(1000);
	}
}

static void bystander_end(void)
{
	require_sys(kill(bystander_pid, SIGKILL));
	require_sys(waitpid(bystander_pid, NULL, 0));
}

/* A large queue, full but for one, with receives numbered from 0 on. */
static uint32_t set_up_large(unsigned int count, uint32_t max_wr)
{
	uint32_t room;

	name_ends_from_environment();
	open_ends();
	srq = try_create(max_wr, MANY_SGES, 0);
	require(srq, "ibv_create_srq: %s", strerror(errno));
	plan = default_plan;
	plan.srq = srq;
	while (count--)
		pair_open(&pairs[count], &plan);
	room = query().max_wr;
	post_many(0, room - 1);
	return room;
}

static void expect_oldest(uint64_t from, uint64_t to)
{
	for (; from < to; from++) {
		send_one(&pairs[0]);
		expect_wc(pairs[0].b.rcq, from, IBV_WC_SUCCESS, SOON_MS);
	}
}

/* So many receives can be posted, and no more: what was posted is there, once. */
static void expect_room(uint32_t count)
{
	struct ibv_recv_wr wr = {}, *bad;

	post_many(1000000, 1000000 + count);
	require(ibv_post_srq_recv(srq, &wr, &bad) == ENOMEM, "some of what was posted is not there");
}

TEST(resized_disturbs_nobody)
{
	bool is_good = false;
	int64_t took, worst;
	unsigned int i;
	uint32_t room;

	bystander_begin();
	room = set_up_large(1, LARGE - 1);
	for (i = 0; i < ATTEMPTS && !is_good; i++) {
		bystander_goes_on(5);
		bystander->worst_ns = 0;
		took = now_ns();
		require_ok(set_size(i % 2 ? room : room + 1));
		took = now_ns() - took;
		bystander_goes_on(2);
		worst = bystander->worst_ns;
		note("resized in %lld ms; the bystander waited for %lld us",
		     (long long)(took / NS_PER_MS), (long long)(worst / 1000));
		is_good = worst < STALL_NS || worst < took / 10;
		expect_oldest(10 * i, 10 * (i + 1));
	}
	bystander_end();
	expect_room(query().max_wr - (room - 1) + 10 * i);
	require(is_good, "nobody else had the CPU for that long");
}

static _Atomic uint64_t taken;
static _Atomic bool all_taken;

/* Takes one receive after the other, each by another queue pair; each is the oldest. */
static void *take_all(void *count)
{
	uint64_t i;

	for (i = 0; i < (uintptr_t)count; i++) {
		struct rc_pair *pair = &pairs[i % PAIRS];

		send_one(pair);
		expect_wc(pair->b.rcq, i, IBV_WC_SUCCESS, SOON_MS);
		taken = i + 1;
	}
	all_taken = true;
	return NULL;
}

/* Receives are taken all the time, and posted between the changes of size. */
TEST(resized_under_traffic)
{
	static const uint32_t sizes[] = { 6000, 4200, 9000, 4095 };
	uint64_t posted, count = 5000;
	unsigned int resized = 0;
	pthread_t thread;

	posted = set_up_large(PAIRS, 4000) - 1;
	require_ok(pthread_create(&thread, NULL, take_all, (void *)(uintptr_t)count));
	while (!all_taken) {
		uint64_t before = taken;

		require_ok(set_size(sizes[resized++ % ARRAY_SIZE(sizes)]));
		for (; posted < before + 4000; posted++)
			post(posted, NULL);
	}
	require_ok(pthread_join(thread, NULL));
	note("%u times while %llu were taken", resized, (unsigned long long)taken);
	require(resized >= 5, "only %u times", resized);
	expect_room(query().max_wr - (posted - taken));
	expect_oldest(taken, posted);
}

TEST(killed_while_resized)
{
	int64_t begin, took;
	unsigned int round;
	pid_t child;
	int go[2];
	char byte;

	for (round = 0; round < 6; round++) {
		require_sys(pipe(go));
		child = fork();
		require_sys(child);
		if (!child) {
			uint32_t room = set_up_large(1, LARGE / 4 - 1);

			require_sys(prctl(PR_SET_PDEATHSIG, SIGKILL));
			require(write(go[1], "", 1) == 1, "write: %s", strerror(errno));
			for (;;) {
				require_ok(set_size(room + 1));
				require_ok(set_size(room));
			}
		}
		close(go[1]);
		require(read(go[0], &byte, 1) == 1, "the child died");
		close(go[0]);
		usleep(1000 * (1 + 7 * round));
		begin = now_ns();
		require_sys(kill(child, SIGKILL));
		require_sys(waitpid(child, NULL, 0));
		took = now_ns() - begin;
		note("gone after %lld ms", (long long)(took / NS_PER_MS));
		require(took < 2 * NS_PER_S * time_scale(), "that is too long");
	}
}

TEST_HARNESS_MAIN
