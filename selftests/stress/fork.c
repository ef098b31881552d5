// SPDX-License-Identifier: GPL-2.0
/*
 * Processes that fork while they have a device open.  Files and mappings are the
 * child's as well; what the kernel keeps must stand whatever both do with them, and go
 * with the last of them.
 */
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "harness.h"
#include "rc.h"

#define BYTES 65536
#define MESSAGES 20

static struct rc_pair pair;
static struct buffer near, far;

static void set_up(void)
{
	name_ends_from_environment();
	open_ends();
	pair_open(&pair, &default_plan);
	buffer_create(&near, &ends[0], BYTES, IBV_ACCESS_LOCAL_WRITE);
	buffer_create(&far, &ends[1], BYTES, IBV_ACCESS_LOCAL_WRITE);
}

/* A message whose bytes are all alike arrives. */
static void exchange(uint8_t byte)
{
	struct ibv_sge from = buffer_sge(&near, 0, BYTES), to = buffer_sge(&far, 0, BYTES);
	size_t i;

	memset(near.bytes, byte, BYTES);
	memset(far.bytes, ~byte, BYTES);
	post_recv(&pair.b, 1, &to);
	post_send(&pair.a, 2, IBV_WR_SEND, IBV_SEND_SIGNALED, &from, 0, 0);
	expect_wc(pair.a.scq, 2, IBV_WC_SUCCESS, SOON_MS);
	expect_wc(pair.b.rcq, 1, IBV_WC_SUCCESS, SOON_MS);
	for (i = 0; i < BYTES; i++)
		require(far.bytes[i] == byte, "byte %zu is 0x%x, not 0x%x", i, far.bytes[i], byte);
}

static pid_t fork_child(void)
{
	pid_t pid;

	fflush(stdout);
	pid = fork();
	require_sys(pid);
	if (!pid)
		prctl(PR_SET_PDEATHSIG, SIGKILL);
	return pid;
}

static void join(pid_t pid)
{
	int status;

	require_sys(waitpid(pid, &status, 0));
	require(status == 0, "the child's status: 0x%x", status);
}

/*
 * What is registered stays the parent's, whichever of them writes first; the child
 * has a copy.
 */
TEST(memory_stays_with_the_parent)
{
	int i, go[2];
	char byte;
	pid_t pid;

	set_up();
	exchange(1);
	require_sys(pipe(go));
	pid = fork_child();
	if (!pid) {
		close(go[1]);
		far.bytes[BYTES / 2] = 99;
		if (read(go[0], &byte, 1) < 0)
			_exit(1);
		/* Nothing of what came later, in the pages that it did not touch. */
		_exit(far.bytes[0] == 1 && far.bytes[BYTES / 2] == 99 &&
		      far.bytes[BYTES - 1] == 1 ? 0 : 2);
	}
	for (i = 2; i < MESSAGES; i++)
		exchange(i);
	close(go[1]);
	join(pid);
	exchange(200);
}

TEST(children_come_and_go)
{
	pid_t pid;
	int i;

	set_up();
	for (i = 0; i < MESSAGES; i++) {
		pid = fork_child();
		if (!pid)
			_exit(0);
		exchange(i);
		join(pid);
	}
}

/* The child lets go of all that it was given; the parent's stays. */
TEST(child_closes_the_files)
{
	pid_t pid;

	set_up();
	pid = fork_child();
	if (!pid) {
		close(ends[0].context->cmd_fd);
		close(ends[1].context->cmd_fd);
		close(ends[0].context->async_fd);
		close(ends[1].context->async_fd);
		_exit(0);
	}
	join(pid);
	exchange(7);
}

/* What a process that was told nothing of the rules may do: both use the queues. */
TEST(both_use_the_queues)
{
	int64_t end = now_ns() + NS_PER_S;
	struct ibv_sge from, to;
	struct ibv_wc wc;
	pid_t pid;

	set_up();
	from = buffer_sge(&near, 0, 1000);
	to = buffer_sge(&far, 0, BYTES);
	pid = fork_child();
	while (now_ns() < end) {
		struct ibv_recv_wr *bad, recv = { .sg_list = &to, .num_sge = 1 };

		ibv_post_recv(pair.b.qp, &recv, &bad);
		try_post_send(&pair.a, 2, IBV_WR_SEND, IBV_SEND_SIGNALED, &from, 0, 0);
		ibv_poll_cq(pair.a.scq, 1, &wc);
		ibv_poll_cq(pair.b.rcq, 1, &wc);
	}
	if (!pid)
		_exit(0);
	join(pid);
	pair_destroy(&pair);
	pair_open(&pair, &default_plan);
	exchange(8);
}

/* A child that has the files open while the process that made all of it is killed. */
TEST(child_outlives_the_parent)
{
	pid_t parent, child = 0;
	int told[2], status;

	require_sys(pipe(told));
	require_sys(prctl(PR_SET_CHILD_SUBREAPER, 1));
	parent = fork();
	require_sys(parent);
	if (!parent) {
		set_up();
		exchange(9);
		child = fork();
		if (!child) {
			pause();
			_exit(0);
		}
		if (write(told[1], &child, sizeof(child)) != sizeof(child))
			_exit(1);
		for (;;)
			exchange(10);
	}
	close(told[1]);
	require(read(told[0], &child, sizeof(child)) == sizeof(child), "the parent failed");
	usleep(200000);
	require_sys(kill(parent, SIGKILL));
	require_sys(waitpid(parent, &status, 0));
	require(WIFSIGNALED(status), "the parent's status: 0x%x", status);
	usleep(200000);
	require_sys(kill(child, SIGKILL));
	require_sys(waitpid(child, &status, 0));
}

TEST_HARNESS_MAIN
