// SPDX-License-Identifier: GPL-2.0
/*
 * Processes that create, connect, use and destroy queue pairs, with all that belongs
 * to them, in random order and in parallel.
 *
 * Each has some pairs of connected queue pairs.  At every step it takes one of them:
 * makes it if it isn't there, else exchanges a message, leaves messages under way, or
 * breaks it, or destroys it whatever it is doing.
 */
#include <getopt.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "rc.h"
#include "stream.h"

#define SLOTS 12
#define BYTES 16384
#define MESSAGES 8	/* under way, at most */
#define WAIT_MS 60000

static unsigned int processes = 2, seconds, wanted_pairs;
static uint64_t seed;

struct slot {
	bool used, broken;
	struct rc_pair pair;
	struct buffer near, far;
	unsigned int sent, received;	/* completions that are still to come */
};

static struct slot slots[SLOTS];
static struct rng rng;
static unsigned int pairs_made, messages;

static void make(struct slot *slot)
{
	struct rc_plan plan = default_plan;

	plan.cap.max_send_wr = MESSAGES + rng_below(&rng, 100);
	plan.cap.max_recv_wr = MESSAGES + rng_below(&rng, 100);
	plan.cap.max_send_sge = 1 + rng_below(&rng, 8);
	plan.cqe = 2 * MESSAGES + rng_below(&rng, 200);
	plan.rd_atomic = 1 + rng_below(&rng, 8);
	memset(slot, 0, sizeof(*slot));
	pair_open(&slot->pair, &plan);
	buffer_create(&slot->near, &ends[0], BYTES, IBV_ACCESS_LOCAL_WRITE);
	buffer_create(&slot->far, &ends[1], BYTES, plan.access);
	slot->used = true;
	pairs_made++;
}

static void start_send(struct slot *slot)
{
	uint32_t length = rng_below(&rng, BYTES + 1);
	struct ibv_sge from = buffer_sge(&slot->near, 0, length);
	struct ibv_sge to = buffer_sge(&slot->far, 0, BYTES);

	post_recv(&slot->pair.b, 1, &to);
	post_send(&slot->pair.a, 2, IBV_WR_SEND, IBV_SEND_SIGNALED, &from, 0, 0);
	slot->sent++;
	slot->received++;
}

static void start_read(struct slot *slot)
{
	struct ibv_sge sge = buffer_sge(&slot->near, 0, rng_below(&rng, BYTES + 1));

	post_send(&slot->pair.a, 2, IBV_WR_RDMA_READ, IBV_SEND_SIGNALED, &sge,
		  (uintptr_t)slot->far.bytes, slot->far.mr->rkey);
	slot->sent++;
}

static void start_messages(struct slot *slot)
{
	unsigned int count = 1 + rng_below(&rng, MESSAGES);

	while (!slot->broken && slot->sent < MESSAGES && count--) {
		if (rng_one_in(&rng, 3))
			start_read(slot);
		else
			start_send(slot);
	}
}

static void wait_for_all(struct ibv_cq *cq, unsigned int *left, bool broken)
{
	struct ibv_wc wc;

	for (; *left; (*left)--) {
		require(poll_within(cq, &wc, WAIT_MS), "no completion within %d ms", WAIT_MS);
		require(broken || wc.status == IBV_WC_SUCCESS, "a completion with \"%s\"",
			ibv_wc_status_str(wc.status));
		messages++;
	}
}

/* All that was started comes to an end, in a broken pair as well. */
static void finish_messages(struct slot *slot)
{
	wait_for_all(slot->pair.a.scq, &slot->sent, slot->broken);
	wait_for_all(slot->pair.b.rcq, &slot->received, slot->broken);
}

static void break_pair(struct slot *slot)
{
	rc_modify(&slot->pair.a, IBV_QPS_ERR, NULL, NULL);
	rc_modify(&slot->pair.b, IBV_QPS_ERR, NULL, NULL);
	slot->broken = true;
}

/* With its queues in use, or the regions first. */
static void destroy(struct slot *slot)
{
	if (rng_one_in(&rng, 4)) {
		buffer_destroy(&slot->far);
		pair_destroy(&slot->pair);
	} else {
		pair_destroy(&slot->pair);
		buffer_destroy(&slot->far);
	}
	buffer_destroy(&slot->near);
	slot->used = false;
}

static void step(void)
{
	struct slot *slot = &slots[rng_below(&rng, SLOTS)];

	if (!slot->used) {
		make(slot);
		return;
	}
	switch (rng_below(&rng, 8)) {
	case 0:
		break_pair(slot);
		break;
	case 1:
		start_messages(slot);
		break;
	case 2:
	case 3:
		start_messages(slot);
		finish_messages(slot);
		break;
	default:
		destroy(slot);
	}
}

static bool is_over(int64_t end)
{
	return wanted_pairs ? pairs_made >= wanted_pairs : now_ns() >= end;
}

static _Noreturn void run(unsigned int number)
{
	int64_t end = now_ns() + seconds * NS_PER_S;
	int i;

	prctl(PR_SET_PDEATHSIG, SIGKILL);
	rng.state = mix(seed, number);
	open_ends();
	while (!is_over(end))
		step();
	for (i = 0; i < SLOTS; i++)
		if (slots[i].used && rng_one_in(&rng, 2))
			destroy(&slots[i]);
	note("process %u: %u pairs, %u completions", number, pairs_made, messages);
	/* The kernel cleans up after the others. */
	_exit(0);
}

static _Noreturn void die_of_usage(void)
{
	fprintf(stderr, "usage: churn [-p PROCESSES] [-S SEED] -t SECONDS | -n PAIRS\n");
	exit(2);
}

static void parse_options(int argc, char **argv)
{
	int option;

	while ((option = getopt(argc, argv, "p:S:t:n:")) >= 0) {
		switch (option) {
		case 'p': processes = strtoul(optarg, NULL, 0); break;
		case 'S': seed = strtoull(optarg, NULL, 0); break;
		case 't': seconds = strtoul(optarg, NULL, 0); break;
		case 'n': wanted_pairs = strtoul(optarg, NULL, 0); break;
		default: die_of_usage();
		}
	}
	if (optind < argc || !seconds == !wanted_pairs)
		die_of_usage();
}

int main(int argc, char **argv)
{
	unsigned int i;
	int status, failed = 0;
	pid_t pid;

	setvbuf(stdout, NULL, _IOLBF, 0);
	parse_options(argc, argv);
	name_ends_from_environment();
	for (i = 0; i < processes; i++) {
		pid = fork();
		require_sys(pid);
		if (!pid)
			run(i);
	}
	for (i = 0; i < processes; i++) {
		require_sys(wait(&status));
		failed |= status != 0;
	}
	return failed;
}
