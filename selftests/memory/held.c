// SPDX-License-Identifier: GPL-2.0
/*
 * Multicast datagrams that wait for memory: one datagram is for several members of a group,
 * of which each waits for memory of its own.  Each gets all of them, in their order, with
 * its own bytes, whatever becomes of the others; and afterwards nothing waits any more.
 *
 * On one CPU all datagrams of a doorbell are received before any page is brought in, so that
 * all of them wait; on several, some.  The program that calls this has both.
 */
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <sys/wait.h>

#include "../lib/harness.h"
#include "../lib/stream.h"
#include "../lib/ud.h"
#include "../lib/verbs.h"

#define QKEY 0x11111111
#define MULTICAST_QPN 0xffffff
#define GRH 40
#define LENGTH 1000
#define COUNT 8			/* datagrams of one doorbell */
#define MOST 256
#define MEMBERS 3

/* A datagram's place in memory: its header ends one page, and its payload begins others. */
#define PLACE (4 * PAGE)
#define BEFORE (PAGE - 20)

/* What all packet queues hold together at most (rust/rdma/net/queue.rs). */
#define MAX_OF_ALL 16384

/* How long nothing has to come for what is lost to be given up. */
#define SILENCE_MS (300 * time_scale())

enum memory { ABSENT, PRESENT, PINNED };

struct member {
	struct rc ud;
	struct buffer target;
	enum memory memory;
	unsigned int count;		/* of datagrams of one doorbell */
	uint64_t next;			/* the receive that is posted next */
	uint64_t got;			/* receives that are complete */
	union ibv_gid group;
};

static struct rc sender;
static struct buffer source;
static uint64_t sent;			/* datagrams */

static void open_all(void)
{
	struct ibv_qp_cap cap = { .max_send_wr = MOST, .max_recv_wr = 1,
				  .max_send_sge = 1, .max_recv_sge = 1 };

	name_ends_from_environment();
	end_open(&ends[0], FAMILY_IPV4);
	end_open(&ends[1], FAMILY_IPV4);
	ud_create(&sender, &ends[0], &cap, 2 * MOST);
	ud_start(&sender, QKEY);
	buffer_create(&source, &ends[0], MOST * LENGTH, IBV_ACCESS_LOCAL_WRITE);
}

static union ibv_gid group(uint8_t number)
{
	return (union ibv_gid){ .raw = { [10] = 0xff, 0xff, 239, 1, 0, number } };
}

static void join(struct member *member, struct end *end, enum memory memory, unsigned int count,
		 union ibv_gid gid)
{
	struct ibv_qp_cap cap = { .max_send_wr = 1, .max_recv_wr = count,
				  .max_send_sge = 1, .max_recv_sge = 1 };

	memset(member, 0, sizeof(*member));
	member->memory = memory;
	member->count = count;
	member->group = gid;
	ud_create(&member->ud, end, &cap, 2 * count);
	ud_start(&member->ud, QKEY);
	register_at(&member->target, end, map_pages(count * PLACE), count * PLACE,
		    IBV_ACCESS_LOCAL_WRITE | (memory == PINNED ? 0 : IBV_ACCESS_ON_DEMAND));
	require_ok(ibv_attach_mcast(member->ud.qp, &gid, 0));
}

static void leave(struct member *member)
{
	require_ok(ibv_detach_mcast(member->ud.qp, &member->group, 0));
	require_ok(ibv_destroy_qp(member->ud.qp));
}

static size_t place_of(const struct member *member, uint64_t number)
{
	return number % member->count * PLACE + BEFORE;
}

/* As many receives as are not posted any more, into memory that is as the member has it. */
static void listen_all(struct member *member)
{
	struct ibv_recv_wr wr = { .num_sge = 1 }, *bad;
	struct ibv_sge sge;

	if (member->memory == ABSENT)
		drop_pages(member->target.bytes, member->target.size);
	else
		memset(member->target.bytes, 0, member->target.size);
	wr.sg_list = &sge;
	for (; member->next < member->got + member->count; member->next++) {
		sge = buffer_sge(&member->target, place_of(member, member->next), GRH + LENGTH);
		wr.wr_id = member->next;
		require_ok(ibv_post_recv(member->ud.qp, &wr, &bad));
	}
}

/* All by one doorbell, each with a stream of its own, of which its number is the key. */
static void send_all(struct ibv_ah *ah, uint32_t qpn, unsigned int count)
{
	struct ibv_send_wr wr[MOST] = {}, *bad;
	struct ibv_sge sges[MOST];
	unsigned int i;

	for (i = 0; i < count; i++) {
		stream_fill(source.bytes + i * LENGTH, LENGTH, sent + i, 0);
		sges[i] = buffer_sge(&source, i * LENGTH, LENGTH);
		wr[i] = (struct ibv_send_wr){
			.wr_id = sent + i, .next = i + 1 < count ? &wr[i + 1] : NULL,
			.sg_list = &sges[i], .num_sge = 1,
			.opcode = IBV_WR_SEND, .send_flags = IBV_SEND_SIGNALED,
			.wr.ud = { .ah = ah, .remote_qpn = qpn, .remote_qkey = QKEY },
		};
	}
	require_ok(ibv_post_send(sender.qp, wr, &bad));
	sent += count;
}

static void all_sent(unsigned int count)
{
	unsigned int i;

	for (i = 0; i < count; i++)
		expect_wc(sender.scq, sent - count + i, IBV_WC_SUCCESS, SOON_MS);
}

static struct ibv_ah *address_of(union ibv_gid gid)
{
	struct end to = { .gid = gid };

	return ah_create(&ends[0], &to);
}

static void expect_datagram(struct member *member, uint64_t key)
{
	const uint8_t *bytes = member->target.bytes + place_of(member, member->got) + GRH;
	size_t same = stream_compare(bytes, LENGTH, key, 0);

	require(same == LENGTH, "receive %llu, datagram %llu: byte %zu is wrong",
		(unsigned long long)member->got, (unsigned long long)key, same);
}

/* It gets all that the last doorbell has sent. */
static void expect_all(struct member *member, const char *who)
{
	uint64_t key = sent - member->count;
	unsigned int i;
	struct ibv_wc wc;

	for (i = 0; i < member->count; i++, member->got++) {
		require(poll_within(member->ud.rcq, &wc, SOON_MS), "%s has got %u of %u datagrams",
			who, i, member->count);
		require(wc.status == IBV_WC_SUCCESS, "%s: \"%s\"", who, ibv_wc_status_str(wc.status));
		require(wc.wr_id == member->got && wc.byte_len == GRH + LENGTH,
			"%s: receive %llu, of %u bytes", who, (unsigned long long)wc.wr_id, wc.byte_len);
		expect_datagram(member, key + i);
	}
}

/* Whoever waits for memory alone gets all as well, and of nothing else there is too much. */
static void others_can_wait(void)
{
	uint64_t dropped = hw_counter(&ends[1], "drop_held"), held = hw_counter(&ends[1], "held_pkts");
	struct member alone;
	int round;

	join(&alone, &ends[1], ABSENT, COUNT, group(200));
	for (round = 0; round < 3; round++) {
		listen_all(&alone);
		send_all(ah_create(&ends[0], &ends[1]), alone.ud.qp->qp_num, COUNT);
		all_sent(COUNT);
		expect_all(&alone, "who waits alone");
	}
	leave(&alone);
	require(hw_counter(&ends[1], "drop_held") == dropped, "no room for what waits: %llu dropped",
		(unsigned long long)(hw_counter(&ends[1], "drop_held") - dropped));
	require(hw_counter(&ends[1], "held_pkts") > held, "nothing had to wait: this tests nothing");
}

static void in_rounds(struct member *members, unsigned int count, unsigned int rounds)
{
	struct ibv_ah *ah = address_of(members[0].group);
	uint64_t held = hw_counter(&ends[1], "held_pkts");
	unsigned int round, i;
	char who[32];

	for (round = 0; round < rounds; round++) {
		for (i = 0; i < count; i++)
			listen_all(&members[i]);
		send_all(ah, MULTICAST_QPN, members[0].count);
		all_sent(members[0].count);
		for (i = 0; i < count; i++) {
			snprintf(who, sizeof(who), "round %u: member %u", round, i);
			expect_all(&members[i], who);
		}
	}
	for (i = 0; i < count; i++)
		expect_no_wc(members[i].ud.rcq, 0);
	require(hw_counter(&ends[1], "held_pkts") > held, "nothing had to wait: this tests nothing");
	note("%llu waited", (unsigned long long)(hw_counter(&ends[1], "held_pkts") - held));
	for (i = 0; i < count; i++)
		leave(&members[i]);
	others_can_wait();
}

/* ---- tests ------------------------------------------------------------- */

static void members_of(const enum memory *memory, unsigned int count, uint8_t number)
{
	struct member members[MEMBERS];
	unsigned int i;

	open_all();
	for (i = 0; i < count; i++)
		join(&members[i], &ends[1], memory[i], COUNT, group(number));
	in_rounds(members, count, 20);
}

TEST(two_members)
{
	members_of((enum memory[]){ ABSENT, ABSENT }, 2, 1);
}

TEST(three_members)
{
	members_of((enum memory[]){ ABSENT, ABSENT, ABSENT }, 3, 2);
}

TEST(some_need_not_wait)
{
	members_of((enum memory[]){ PRESENT, ABSENT, PINNED }, 3, 3);
}

TEST(first_and_last_wait)
{
	members_of((enum memory[]){ ABSENT, PINNED, ABSENT }, 3, 4);
}

/* Members on the sender's own device, too, which get theirs from the same datagrams. */
TEST(on_both_devices)
{
	struct member members[4];
	unsigned int i;

	open_all();
	for (i = 0; i < 4; i++)
		join(&members[i], &ends[i / 2], ABSENT, COUNT, group(5));
	in_rounds(members, 4, 20);
}

/*
 * Datagrams that wait go with their queue pair, and with nobody else's.  This thread goes before
 * those that bring pages in, if there is one CPU, so that all of them do wait.
 */
static void one_goes_while_it_waits(void (*goes)(struct member *member))
{
	struct sched_param first = { .sched_priority = 1 }, last = {};
	struct member members[2];
	unsigned int round, which;
	struct ibv_ah *ah;
	uint64_t held;

	open_all();
	ah = address_of(group(6));
	held = hw_counter(&ends[1], "held_pkts");
	for (round = 0; round < 20; round++) {
		which = round % 2;
		join(&members[0], &ends[1], ABSENT, COUNT, group(6));
		join(&members[1], &ends[1], ABSENT, COUNT, group(6));
		listen_all(&members[0]);
		listen_all(&members[1]);
		require_sys(sched_setscheduler(0, SCHED_FIFO, &first));
		send_all(ah, MULTICAST_QPN, COUNT);
		goes(&members[which]);
		require_sys(sched_setscheduler(0, SCHED_OTHER, &last));
		all_sent(COUNT);
		expect_all(&members[!which], which ? "the first" : "the second");
		leave(&members[0]);
		leave(&members[1]);
	}
	require(hw_counter(&ends[1], "held_pkts") > held, "nothing had to wait: this tests nothing");
	others_can_wait();
}

static void to_reset(struct member *member)
{
	rc_modify(&member->ud, IBV_QPS_RESET, NULL, NULL);
}

TEST(reset_while_it_waits)
{
	one_goes_while_it_waits(to_reset);
}

static void to_error(struct member *member)
{
	rc_modify(&member->ud, IBV_QPS_ERR, NULL, NULL);
}

TEST(failed_while_it_waits)
{
	one_goes_while_it_waits(to_error);
}

/* Another queue pair takes its place among the members, so that both may leave. */
static void to_nothing(struct member *member)
{
	struct end *end = member->ud.end;
	union ibv_gid gid = member->group;

	leave(member);
	join(member, end, ABSENT, COUNT, gid);
}

TEST(destroyed_while_it_waits)
{
	one_goes_while_it_waits(to_nothing);
}

/* A member's process is killed while datagrams wait for memory. */
TEST(killed_while_it_waits)
{
	union ibv_gid gid = group(7);
	struct member member, other;
	unsigned int round;
	int status, go[2];
	pid_t child;
	char byte;

	for (round = 0; round < 10; round++) {
		require_sys(pipe(go));
		child = fork();
		require_sys(child);
		if (!child) {
			name_ends_from_environment();
			open_ends();
			join(&other, &ends[1], ABSENT, COUNT, gid);
			listen_all(&other);
			require(write(go[1], "", 1) == 1, "write: %s", strerror(errno));
			for (;;)
				pause();
		}
		require(read(go[0], &byte, 1) == 1, "the member died");
		if (!round)
			open_all();
		join(&member, &ends[1], ABSENT, COUNT, gid);
		listen_all(&member);
		send_all(address_of(gid), MULTICAST_QPN, COUNT);
		require_sys(kill(child, SIGKILL));
		require_sys(waitpid(child, &status, 0));
		all_sent(COUNT);
		expect_all(&member, "who lives on");
		leave(&member);
		close(go[0]);
		close(go[1]);
	}
	others_can_wait();
}

/* Gets what comes; returns how many did not. */
static unsigned int drain(struct member *member)
{
	uint64_t key = sent - member->count;
	unsigned int lost = 0;
	struct ibv_wc wc;

	while (member->got < member->next) {
		if (!poll_within(member->ud.rcq, &wc, SILENCE_MS))
			break;
		require(wc.status == IBV_WC_SUCCESS && wc.wr_id == member->got, "receive %llu, \"%s\"",
			(unsigned long long)wc.wr_id, ibv_wc_status_str(wc.status));
		member->got++;
	}
	lost = member->next - member->got;
	if (!lost)
		for (member->got -= member->count; member->got < member->next; member->got++)
			expect_datagram(member, key++);
	return lost;
}

/*
 * More waited than all queues hold together: if some of it stayed, there would be no room left.
 * Each round has queue pairs of its own, of which each keeps fewer than it may.
 */
TEST(nothing_stays)
{
	uint64_t held, dropped, waited = 0, lost = 0, refused = 0;
	struct member members[2];
	unsigned int round, i;
	struct ibv_ah *ah;

	open_all();
	held = hw_counter(&ends[1], "held_pkts");
	dropped = hw_counter(&ends[1], "drop_held");
	ah = address_of(group(8));
	for (round = 0; round < 200 && waited < MAX_OF_ALL * 5 / 4 && !refused; round++) {
		for (i = 0; i < 2; i++) {
			join(&members[i], &ends[1], ABSENT, MOST, group(8));
			listen_all(&members[i]);
		}
		send_all(ah, MULTICAST_QPN, MOST);
		all_sent(MOST);
		for (i = 0; i < 2; i++) {
			lost += drain(&members[i]);
			leave(&members[i]);
			buffer_destroy(&members[i].target);
		}
		waited = hw_counter(&ends[1], "held_pkts") - held;
		refused = hw_counter(&ends[1], "drop_held") - dropped;
	}
	note("%u rounds: %llu waited, %llu found no room, %llu were lost", round,
	     (unsigned long long)waited, (unsigned long long)refused, (unsigned long long)lost);
	others_can_wait();
	require(!refused && !lost, "some were lost");
}

TEST_HARNESS_MAIN
