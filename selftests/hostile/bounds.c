// SPDX-License-Identifier: GPL-2.0
/*
 * What one process can hold up, or take from others: queues so large that to move them takes a
 * while, and all that it can get of what there is for all.
 */
#include <fcntl.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "harness.h"
#include "raw.h"
#include "rc.h"
#include "ud.h"

static void set_up(void)
{
	name_ends_from_environment();
	open_ends();
}

/* ---- somebody in a hurry on the same CPU -------------------------------- */

static atomic_bool stop;
static _Atomic int64_t latest;

/* Wakes up every millisecond, and writes down how late it was at worst. */
static void *tick(void *unused)
{
	struct timespec next;

	(void)unused;
	clock_gettime(CLOCK_MONOTONIC, &next);
	while (!stop) {
		int64_t due, late;

		next.tv_nsec += 1000000;
		if (next.tv_nsec >= 1000000000) {
			next.tv_nsec -= 1000000000;
			next.tv_sec++;
		}
		due = next.tv_sec * 1000000000LL + next.tv_nsec;
		clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &next, NULL);
		late = now_ns() - due;
		if (late > latest)
			latest = late;
		/* Once for all that it has missed. */
		if (late > 0)
			clock_gettime(CLOCK_MONOTONIC, &next);
	}
	return NULL;
}

/* The calling thread and the other one share a CPU, which that one gets whenever it can. */
static void begin_ticking(pthread_t *thread)
{
	const struct sched_param urgent = { .sched_priority = 50 };
	pthread_attr_t attr;
	cpu_set_t one;

	CPU_ZERO(&one);
	CPU_SET(0, &one);
	require_sys(sched_setaffinity(0, sizeof(one), &one));
	require_ok(pthread_attr_init(&attr));
	require_ok(pthread_attr_setinheritsched(&attr, PTHREAD_EXPLICIT_SCHED));
	require_ok(pthread_attr_setschedpolicy(&attr, SCHED_FIFO));
	require_ok(pthread_attr_setschedparam(&attr, &urgent));
	require_ok(pthread_create(thread, &attr, tick, NULL));
}

static int64_t least(int64_t a, int64_t b)
{
	return a < b ? a : b;
}

/* ---- large queues ------------------------------------------------------ */

#define ROUNDS 3

static struct ibv_srq *create_srq(uint32_t max_wr)
{
	struct ibv_srq_init_attr init = { .attr = { .max_wr = max_wr, .max_sge = 1 } };
	struct ibv_srq *srq = ibv_create_srq(ends[1].pd, &init);

	require(srq, "ibv_create_srq: %s", strerror(errno));
	return srq;
}

static int resize_srq(struct ibv_srq *srq, uint32_t max_wr)
{
	struct ibv_srq_attr attr = { .max_wr = max_wr };

	return ibv_modify_srq(srq, &attr, IBV_SRQ_MAX_WR);
}

/*
 * As many receives as may be: whoever wants the CPU meanwhile gets it.  Of several rounds the best
 * one counts, as the host may be busy.
 */
TEST(resize_holds_nobody)
{
	int64_t latest_of_best = INT64_MAX, quickest = INT64_MAX;
	struct ring_list before;
	struct ibv_srq *srq;
	pthread_t ticker;
	struct ring ring;
	uint32_t max_wr;
	int round;

	set_up();
	rings_list(ends[1].context, &before);
	max_wr = ends[1].attr.max_srq_wr;
	srq = create_srq(max_wr);
	rings_since(ends[1].context, &before, &ring, 1);
	/* As a provider would, after it has filled them: they are of nothing. */
	ring.buf->producer_index = max_wr;
	begin_ticking(&ticker);
	for (round = 0; round < ROUNDS; round++) {
		int64_t begin = now_ns();

		latest = 0;
		require_ok(resize_srq(srq, max_wr));
		latest_of_best = least(latest_of_best, latest);
		quickest = least(quickest, now_ns() - begin);
	}
	stop = true;
	require_ok(pthread_join(ticker, NULL));
	note("%lld us for %u receives, %lld us late", (long long)quickest / 1000, max_wr,
	     (long long)latest_of_best / 1000);
	require(latest_of_best < quickest / 8, "others had to wait");
	require_ok(ibv_destroy_srq(srq));
}

/* ---- traffic meanwhile -------------------------------------------------- */

#define MANY 6000
#define UNDER_WAY 16

static struct rc_pair pair;

/* Empty messages, as many as there are receives, a few at a time. */
static void *send_messages(void *unused)
{
	unsigned int posted = 0, done = 0;
	struct ibv_wc wc;

	(void)unused;
	while (done < MANY) {
		while (posted < MANY && posted - done < UNDER_WAY)
			post_send(&pair.a, posted++, IBV_WR_SEND, IBV_SEND_SIGNALED, NULL, 0, 0);
		require(poll_within(pair.a.scq, &wc, SOON_MS), "no completion");
		require(wc.status == IBV_WC_SUCCESS, "\"%s\"", ibv_wc_status_str(wc.status));
		done++;
	}
	stop = true;
	return NULL;
}

static void open_pair(struct ibv_srq *srq)
{
	struct rc_plan plan = default_plan;

	plan.srq = srq;
	plan.cqe = MANY;
	plan.cap.max_send_wr = 2 * UNDER_WAY;
	if (!srq)
		plan.cap.max_recv_wr = MANY;
	pair_open(&pair, &plan);
}

static void expect_all_in_order(void)
{
	uint64_t i;

	for (i = 0; i < MANY; i++)
		expect_wc(pair.b.rcq, i, IBV_WC_SUCCESS, SOON_MS);
}

/* Receives are taken while they move, many pieces long: each once and in order. */
TEST(srq_moves_under_traffic)
{
	struct ibv_recv_wr recv = {}, *bad;
	unsigned int resized = 0;
	struct ibv_srq *srq;
	pthread_t sender;

	set_up();
	srq = create_srq(MANY);
	open_pair(srq);
	for (recv.wr_id = 0; recv.wr_id < MANY; recv.wr_id++)
		require_ok(ibv_post_srq_recv(srq, &recv, &bad));
	require_ok(pthread_create(&sender, NULL, send_messages, NULL));
	while (!stop)
		require_ok(resize_srq(srq, MANY + resized++ % 2 * MANY));
	require_ok(pthread_join(sender, NULL));
	note("resized %u times", resized);
	expect_all_in_order();
}

/* Completions come while those before them move. */
TEST(cq_moves_under_traffic)
{
	unsigned int resized = 0, i;
	pthread_t sender;

	set_up();
	open_pair(NULL);
	for (i = 0; i < MANY; i++)
		post_recv(&pair.b, i, NULL);
	require_ok(pthread_create(&sender, NULL, send_messages, NULL));
	while (!stop)
		require_ok(ibv_resize_cq(pair.b.rcq, MANY + resized++ % 2 * MANY));
	require_ok(pthread_join(sender, NULL));
	note("resized %u times", resized);
	expect_all_in_order();
}

/* ---- one takes all that it can get ------------------------------------- */

/* Opens the device of an end once more, as whoever the caller is by now. */
static void reopen(struct end *end)
{
	end->context = ibv_open_device(end->context->device);
	require(end->context, "ibv_open_device: %s", strerror(errno));
	end->pd = ibv_alloc_pd(end->context);
	require(end->pd, "ibv_alloc_pd: %s", strerror(errno));
}

/* Nobody's. */
#define OTHER_USER 65534
static uid_t taker;

/*
 * Has another process, of the user `taker`, take all that it gets, by a function that returns how much
 * that is.  It has that until it is killed.
 */
static pid_t begin_taking(unsigned int (*take)(void), unsigned int *taken)
{
	int ends_of_pipe[2];
	pid_t child;

	require_sys(pipe(ends_of_pipe));
	child = fork();
	require_sys(child);
	if (!child) {
		unsigned int count;

		set_up();
		/* Whose device is it that counts: who changes has to open it again. */
		require_sys(setresuid(taker, taker, taker));
		reopen(&ends[0]);
		reopen(&ends[1]);
		count = take();
		if (write(ends_of_pipe[1], &count, sizeof(count)) != sizeof(count))
			_exit(1);
		pause();
		_exit(1);
	}
	close(ends_of_pipe[1]);
	require(read(ends_of_pipe[0], taken, sizeof(*taken)) == sizeof(*taken), "the other one failed");
	close(ends_of_pipe[0]);
	set_up();
	return child;
}

static void end_taking(pid_t child)
{
	int status;

	require_sys(kill(child, SIGKILL));
	require_sys(waitpid(child, &status, 0));
	require(WIFSIGNALED(status), "status %d", status);
}

/* The smallest queue pair that can be in a group. */
static struct ibv_qp *create_member(void)
{
	const struct ibv_qp_cap cap = { 1, 1, 1, 1, 0 };
	struct rc ud;

	ud_create(&ud, &ends[1], &cap, 1);
	return ud.qp;
}

static int attach(struct ibv_qp *qp, uint16_t number)
{
	union ibv_gid gid = { .raw = { 0xff, 0x0e, [12] = 0xfe, [13] = 0, number >> 8, number & 0xff } };

	return ibv_attach_mcast(qp, &gid, 0);
}

static unsigned int take_groups(void)
{
	struct ibv_qp *qp = create_member();
	unsigned int count = 0;
	int err;

	while (!(err = attach(qp, count)))
		count++;
	require(err == ENOMEM, "%u groups: %s", count, strerror(err));
	return count;
}

TEST(groups_are_left)
{
	unsigned int taken, i;
	struct ibv_qp *qp;
	pid_t other;

	other = begin_taking(take_groups, &taken);
	require((int)taken >= 1024 && (int)taken <= ends[1].attr.max_mcast_grp / 4, "%u of %d groups", taken,
		ends[1].attr.max_mcast_grp);
	qp = create_member();
	for (i = 0; i < 300; i++)
		require_ok(attach(qp, taken + i));
	/* Also of those that the other one has. */
	require_ok(attach(qp, 0));
	end_taking(other);
	/* Nothing of what it had is missing now. */
	other = begin_taking(take_groups, &i);
	require(i == taken, "%u groups, and not %u", i, taken);
	end_taking(other);
}

static unsigned int take_memberships(void)
{
	unsigned int count = 0;
	int err;

	while (!(err = attach(create_member(), 0)))
		count++;
	require(err == ENOMEM, "%u members: %s", count, strerror(err));
	return count;
}

/* Another process takes memberships so, and there are some left. */
static void expect_memberships_left(unsigned int (*take)(void))
{
	unsigned int taken, i;
	pid_t other;

	other = begin_taking(take, &taken);
	require((int)taken >= 56 && (int)taken <= ends[1].attr.max_mcast_qp_attach / 2, "%u of %d members",
		taken, ends[1].attr.max_mcast_qp_attach);
	for (i = 0; i < 56; i++)
		require_ok(attach(create_member(), 0));
	end_taking(other);
}

TEST(memberships_are_left)
{
	expect_memberships_left(take_memberships);
}

/* It opens the device again whenever it gets no more. */
static unsigned int take_by_many_contexts(void)
{
	unsigned int count = 0, i;

	for (i = 0; i < 6; i++) {
		count += take_memberships();
		reopen(&ends[1]);
	}
	return count;
}

TEST(contexts_do_not_add_up)
{
	taker = OTHER_USER;
	expect_memberships_left(take_by_many_contexts);
}

#define SUBORDINATES 6

/* Becomes OTHER_USER in a user namespace of its own, in which a privileged process gives it more users. */
static void enter_namespace(int ready, int mapped)
{
	char byte = 0;

	require_sys(setresuid(OTHER_USER, OTHER_USER, OTHER_USER));
	require_sys(unshare(CLONE_NEWUSER));
	/* Or nobody may write its map. */
	require_sys(prctl(PR_SET_DUMPABLE, 1));
	require(write(ready, &byte, 1) == 1, "write: %s", strerror(errno));
	require(read(mapped, &byte, 1) == 1, "there is no map");
}

static unsigned int take_as_each(void)
{
	unsigned int count = 0;
	uid_t user;

	for (user = 1; user <= SUBORDINATES; user++) {
		require_sys(seteuid(0));
		require_sys(seteuid(user));
		reopen(&ends[1]);
		count += take_memberships();
	}
	return count;
}

static void map_users(pid_t pid)
{
	static const char map[] = "0 65534 1\n1 200000 100\n";
	char path[64];
	int fd;

	snprintf(path, sizeof(path), "/proc/%d/uid_map", pid);
	fd = open(path, O_WRONLY);
	require_sys(fd);
	require(write(fd, map, sizeof(map) - 1) == sizeof(map) - 1, "%s: %s", path, strerror(errno));
	close(fd);
}

/* The subordinate users have that until the caller ends. */
static unsigned int take_by_subordinates(void)
{
	int ready[2], mapped[2];
	unsigned int count;
	pid_t child;
	char byte = 0;

	require_sys(pipe(ready));
	require_sys(pipe(mapped));
	child = fork();
	require_sys(child);
	if (!child) {
		close(mapped[1]);
		enter_namespace(ready[1], mapped[0]);
		count = take_as_each();
		if (write(ready[1], &count, sizeof(count)) != sizeof(count))
			_exit(1);
		if (read(mapped[0], &byte, 1))
			_exit(1);
		_exit(0);
	}
	close(ready[1]);
	require(read(ready[0], &byte, 1) == 1, "there is no namespace");
	map_users(child);
	require(write(mapped[1], &byte, 1) == 1, "write: %s", strerror(errno));
	require(read(ready[0], &count, sizeof(count)) == sizeof(count), "the other one failed");
	return count;
}

TEST(subordinate_users_do_not_add_up)
{
	expect_memberships_left(take_by_subordinates);
}

static int create_ah(void)
{
	struct {
		struct ib_uverbs_cmd_hdr header;
		struct ib_uverbs_create_ah body;
	} cmd = { .body = { .pd_handle = ends[0].pd->handle } };
	struct {
		struct ib_uverbs_create_ah_resp core;
		uint32_t number, reserved;
	} response;
	struct ib_uverbs_ah_attr *attr = &cmd.body.attr;

	attr->is_global = 1;
	attr->port_num = PORT;
	attr->grh.sgid_index = ends[0].gid_index;
	attr->grh.hop_limit = 1;
	memcpy(attr->grh.dgid, &ends[1].gid, 16);
	return uverbs_command(ends[0].context->cmd_fd, IB_USER_VERBS_CMD_CREATE_AH, &cmd, sizeof(cmd),
			      &response, sizeof(response));
}

/* More than there once were for all. */
#define AHS 33000

static unsigned int take_ahs(void)
{
	unsigned int count;

	for (count = 0; count < AHS; count++)
		if (create_ah())
			break;
	return count;
}

TEST(address_handles_are_left)
{
	unsigned int taken, i;
	pid_t other;

	other = begin_taking(take_ahs, &taken);
	for (i = 0; i < 100; i++)
		require_ok(create_ah());
	note("the other one has %u of %d", taken, ends[0].attr.max_ah);
	end_taking(other);
}

static unsigned int take_windows(void)
{
	unsigned int count = 0;

	while (ibv_alloc_mw(ends[0].pd, IBV_MW_TYPE_1))
		count++;
	return count;
}

TEST(windows_are_left)
{
	unsigned int taken, i;
	pid_t other;

	other = begin_taking(take_windows, &taken);
	require(taken > 0 && (int)taken <= ends[0].attr.max_mw / 8, "%u of %d windows", taken, ends[0].attr.max_mw);
	for (i = 0; i < 100; i++)
		require(ibv_alloc_mw(ends[0].pd, IBV_MW_TYPE_1), "no window is left");
	note("the other one has %u of %d", taken, ends[0].attr.max_mw);
	end_taking(other);
}

TEST_HARNESS_MAIN
