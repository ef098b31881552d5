// SPDX-License-Identifier: GPL-2.0
/*
 * Multicast: who gets what is sent to a group, and who does not.
 */
#include <arpa/inet.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#include "harness.h"
#include "rc.h"

#define QKEY 0x11111111
#define GRH 40
#define DEPTH 4
#define LENGTH 100
#define SLOT 256
#define MULTICAST_QPN 0xffffff

/* How long nothing has to come. */
#define SILENCE_MS 300

/* A queue pair for datagrams, with a buffer for what it gets. */
struct member {
	struct end *end;
	struct ibv_cq *cq;
	struct ibv_qp *qp;
	struct buffer target;
	unsigned int recvs;
};

static struct member sender, here, there[3];
static struct buffer source;
static enum family family;
static unsigned int sends;

static void create(struct member *member, struct end *end, uint32_t qkey)
{
	struct ibv_qp_init_attr init = {
		.qp_type = IBV_QPT_UD,
		.cap = { .max_send_wr = DEPTH, .max_recv_wr = DEPTH,
			 .max_send_sge = 1, .max_recv_sge = 1 },
	};
	struct ibv_qp_attr attr = { .qp_state = IBV_QPS_INIT, .port_num = PORT, .qkey = qkey };

	member->end = end;
	member->cq = ibv_create_cq(end->context, 4 * DEPTH, NULL, NULL, 0);
	require(member->cq, "ibv_create_cq: %s", strerror(errno));
	init.send_cq = init.recv_cq = member->cq;
	member->qp = ibv_create_qp(end->pd, &init);
	require(member->qp, "ibv_create_qp: %s", strerror(errno));
	require_ok(ibv_modify_qp(member->qp, &attr, IBV_QP_STATE | IBV_QP_PKEY_INDEX |
				 IBV_QP_PORT | IBV_QP_QKEY));
	attr.qp_state = IBV_QPS_RTR;
	require_ok(ibv_modify_qp(member->qp, &attr, IBV_QP_STATE));
	attr.qp_state = IBV_QPS_RTS;
	require_ok(ibv_modify_qp(member->qp, &attr, IBV_QP_STATE | IBV_QP_SQ_PSN));
	buffer_create(&member->target, end, SLOT, IBV_ACCESS_LOCAL_WRITE);
}

static void set_up(enum family which)
{
	unsigned int i;

	family = which;
	name_ends_from_environment();
	end_open(&ends[0], family);
	end_open(&ends[1], family);
	create(&sender, &ends[0], QKEY);
	create(&here, &ends[0], QKEY);
	for (i = 0; i < ARRAY_SIZE(there); i++)
		create(&there[i], &ends[1], QKEY);
	buffer_create(&source, &ends[0], SLOT, IBV_ACCESS_LOCAL_WRITE);
}

static union ibv_gid group(unsigned int number)
{
	union ibv_gid gid = {};

	if (family == FAMILY_IPV4) {
		gid.raw[10] = gid.raw[11] = 0xff;
		gid.raw[12] = 239;
	} else {
		gid.raw[0] = 0xff;
		gid.raw[1] = 0x15;
	}
	gid.raw[13] = number >> 16;
	gid.raw[14] = number >> 8;
	gid.raw[15] = number;
	return gid;
}

static int attach(struct member *member, union ibv_gid gid)
{
	return ibv_attach_mcast(member->qp, &gid, 0);
}

static int detach(struct member *member, union ibv_gid gid)
{
	return ibv_detach_mcast(member->qp, &gid, 0);
}

/* Whether the netdev of the far end is in the group. */
static bool has_joined(union ibv_gid gid)
{
	char address[INET6_ADDRSTRLEN], command[200];
	int status;

	if (family == FAMILY_IPV4)
		inet_ntop(AF_INET, gid.raw + 12, address, sizeof(address));
	else
		inet_ntop(AF_INET6, gid.raw, address, sizeof(address));
	snprintf(command, sizeof(command), "ip -n %s maddr show dev eth0 | grep -qw 'inet6* *%s'",
		 ends[1].ns, address);
	status = system(command);
	require(status >= 0 && WIFEXITED(status), "ip: %s", strerror(errno));
	return !WEXITSTATUS(status);
}

static struct ibv_ah *address_of(union ibv_gid gid)
{
	struct ibv_ah_attr attr = {
		.is_global = 1, .port_num = PORT,
		.grh = { .dgid = gid, .sgid_index = ends[0].gid_index, .hop_limit = 4 },
	};
	struct ibv_ah *ah;

	end_enter(&ends[0]);
	ah = ibv_create_ah(ends[0].pd, &attr);
	require(ah, "ibv_create_ah: %s", strerror(errno));
	return ah;
}

/* Each message differs from those before. */
static void send_to(union ibv_gid gid, uint32_t qpn, uint32_t qkey)
{
	struct ibv_sge sge = buffer_sge(&source, 0, LENGTH);
	struct ibv_ah *ah = address_of(gid);
	struct ibv_send_wr wr = {
		.wr_id = 1000 + sends, .sg_list = &sge, .num_sge = 1,
		.opcode = IBV_WR_SEND, .send_flags = IBV_SEND_SIGNALED,
		.wr.ud = { .ah = ah, .remote_qpn = qpn, .remote_qkey = qkey },
	}, *bad;

	memset(source.bytes, ++sends, LENGTH);
	require_ok(ibv_post_send(sender.qp, &wr, &bad));
}

static void sent(void)
{
	expect_wc(sender.cq, 1000 + sends - 1, IBV_WC_SUCCESS, SOON_MS);
}

static void send_to_group(union ibv_gid gid)
{
	send_to(gid, MULTICAST_QPN, QKEY);
}

static void listen_for_one(struct member *member)
{
	struct ibv_sge sge = buffer_sge(&member->target, 0, SLOT);
	struct ibv_recv_wr wr = { .wr_id = ++member->recvs, .sg_list = &sge, .num_sge = 1 }, *bad;

	memset(member->target.bytes, 0, SLOT);
	require_ok(ibv_post_recv(member->qp, &wr, &bad));
}

/* It gets the message that was sent last, to this group. */
static void expect_copy(struct member *member, union ibv_gid gid)
{
	struct ibv_wc wc = expect_wc(member->cq, member->recvs, IBV_WC_SUCCESS, SOON_MS);
	const uint8_t *bytes = member->target.bytes;
	unsigned int i;

	require(wc.byte_len == GRH + LENGTH, "%u bytes", wc.byte_len);
	require(wc.src_qp == sender.qp->qp_num, "from QP %#x", wc.src_qp);
	require(wc.wc_flags == IBV_WC_GRH, "the flags are %#x", wc.wc_flags);
	for (i = 0; i < LENGTH; i++)
		require(bytes[GRH + i] == (uint8_t)sends, "byte %u is wrong", i);
	if (family == FAMILY_IPV4) {
		require(bytes[20] == 0x45, "no IPv4 header");
		require(!memcmp(bytes + 32, ends[0].gid.raw + 12, 4), "wrong source");
		require(!memcmp(bytes + 36, gid.raw + 12, 4), "wrong destination");
	} else {
		require(bytes[0] >> 4 == 6, "no IPv6 header");
		require(!memcmp(bytes + 8, ends[0].gid.raw, 16), "wrong source");
		require(!memcmp(bytes + 24, gid.raw, 16), "wrong destination");
	}
}

static void expect_nothing(struct member *member)
{
	expect_no_wc(member->cq, SILENCE_MS);
}

/* Two members get a copy each, and who is in another group gets none. */
/* Rules: MCG-1 */
static void copies(enum family which)
{
	union ibv_gid gid;
	int round;

	set_up(which);
	gid = group(1);
	require_ok(attach(&there[0], gid));
	require_ok(attach(&there[1], gid));
	require_ok(attach(&there[2], group(2)));
	require(has_joined(gid), "the netdev is not in the group");
	listen_for_one(&there[2]);
	for (round = 0; round < 3; round++) {
		listen_for_one(&there[0]);
		listen_for_one(&there[1]);
		send_to_group(gid);
		sent();
		expect_copy(&there[0], gid);
		expect_copy(&there[1], gid);
	}
	expect_nothing(&there[2]);
	send_to_group(group(2));
	sent();
	expect_copy(&there[2], group(2));
}

TEST(copies_ipv4) { copies(FAMILY_IPV4); }
TEST(copies_ipv6) { copies(FAMILY_IPV6); }

/* What is sent comes back to members on the same device, the sender itself included. */
static void copies_here(enum family which)
{
	union ibv_gid gid;

	set_up(which);
	gid = group(3);
	listen_for_one(&here);
	listen_for_one(&sender);
	send_to_group(gid);
	sent();
	expect_nothing(&here);

	require_ok(attach(&here, gid));
	send_to_group(gid);
	sent();
	expect_copy(&here, gid);
	expect_nothing(&sender);

	require_ok(attach(&sender, gid));
	listen_for_one(&here);
	send_to_group(gid);
	/* Both completions of the sender, in either order. */
	expect_copy(&here, gid);
	poll_within(sender.cq, &(struct ibv_wc){}, SOON_MS);
	poll_within(sender.cq, &(struct ibv_wc){}, SOON_MS);
	require(sender.target.bytes[GRH] == (uint8_t)sends, "the sender got no copy");
}

TEST(copies_here_ipv4) { copies_here(FAMILY_IPV4); }
TEST(copies_here_ipv6) { copies_here(FAMILY_IPV6); }

/* Each member looks at the Q_Key for itself. */
/* Rules: MCG-3 */
TEST(wrong_qkey)
{
	struct member other;

	set_up(FAMILY_IPV4);
	create(&other, &ends[1], QKEY + 1);
	memcpy(&there[2], &other, sizeof(other));
	require_ok(attach(&there[0], group(4)));
	require_ok(attach(&there[2], group(4)));
	listen_for_one(&there[0]);
	listen_for_one(&there[2]);
	send_to_group(group(4));
	sent();
	expect_copy(&there[0], group(4));
	expect_nothing(&there[2]);
	send_to(group(4), MULTICAST_QPN, QKEY + 1);
	sent();
	expect_copy(&there[2], group(4));
}

/* Who has no receive posted misses a message, and keeps nobody else from it. */
/* Rules: MCG-3 */
TEST(no_receive)
{
	set_up(FAMILY_IPV4);
	require_ok(attach(&there[0], group(5)));
	require_ok(attach(&there[1], group(5)));
	listen_for_one(&there[1]);
	send_to_group(group(5));
	sent();
	expect_copy(&there[1], group(5));
	listen_for_one(&there[0]);
	expect_nothing(&there[0]);
}

/* The number of a queue pair does not go with a group, nor that of all with one address. */
/* Rules: MCG-2, VAL-13 */
TEST(mismatched_destination)
{
	set_up(FAMILY_IPV4);
	require_ok(attach(&there[0], group(6)));
	listen_for_one(&there[0]);
	send_to(group(6), there[0].qp->qp_num, QKEY);
	sent();
	send_to(ends[1].gid, MULTICAST_QPN, QKEY);
	sent();
	expect_nothing(&there[0]);
	send_to_group(group(6));
	sent();
	expect_copy(&there[0], group(6));
}

/* Rules: MCG-4 */
static void detaching(enum family which)
{
	union ibv_gid gid;

	set_up(which);
	gid = group(7);
	require_ok(attach(&there[0], gid));
	require_ok(attach(&there[1], gid));
	require_ok(detach(&there[0], gid));
	listen_for_one(&there[0]);
	listen_for_one(&there[1]);
	send_to_group(gid);
	sent();
	expect_copy(&there[1], gid);
	expect_nothing(&there[0]);
	require(has_joined(gid), "the netdev left with the first member");
	require_ok(detach(&there[1], gid));
	require(!has_joined(gid), "the netdev is still in the group");
	listen_for_one(&there[1]);
	send_to_group(gid);
	sent();
	expect_nothing(&there[1]);
	/* And again. */
	require_ok(attach(&there[1], gid));
	send_to_group(gid);
	sent();
	expect_copy(&there[1], gid);
}

TEST(detaching_ipv4) { detaching(FAMILY_IPV4); }
TEST(detaching_ipv6) { detaching(FAMILY_IPV6); }

/* Rules: MCG-5 */
TEST(refused)
{
	union ibv_gid gid;
	struct rc_pair pair;

	set_up(FAMILY_IPV4);
	require(attach(&there[0], ends[1].gid) == EINVAL, "an address is taken for a group");
	memset(&gid, 0, sizeof(gid));
	require(attach(&there[0], gid) == EINVAL, "nothing is taken for a group");
	gid = group(8);
	gid.raw[12] = 223;
	require(attach(&there[0], gid) == EINVAL, "223.0.0.0/8 is taken for groups");
	gid.raw[12] = 240;
	require(attach(&there[0], gid) == EINVAL, "240.0.0.0/8 is taken for groups");
	require(detach(&there[0], group(8)) == EINVAL, "it was not attached");
	require_ok(attach(&there[1], group(8)));
	require(detach(&there[0], group(8)) == EINVAL, "another one was attached");
	require(detach(&there[1], group(9)) == EINVAL, "it was attached to another group");
	pair_create(&pair, &default_plan);
	gid = group(8);
	require(ibv_attach_mcast(pair.b.qp, &gid, 0) == EINVAL, "a connection is attached");
}

/* Of a group, who has opened the device may have a quarter at least, and a user half. */
#define SHARE 4
#define OTHER_USER 65534

/* Opens the device of an end once more, as whoever the caller is by now. */
static void reopen(struct end *end)
{
	end->context = ibv_open_device(end->context->device);
	require(end->context, "ibv_open_device: %s", strerror(errno));
	end->pd = ibv_alloc_pd(end->context);
	require(end->pd, "ibv_alloc_pd: %s", strerror(errno));
}

/* Makes half of all members, and one more. */
static struct member *create_half(int max)
{
	struct member *members = xcalloc(max / 2 + 1, sizeof(*members));
	struct end *owners = xcalloc(SHARE, sizeof(*owners));
	int i;

	require(max >= 56 && max % SHARE == 0, "%d members", max);
	for (i = 0; i <= max / 2; i++) {
		struct end *owner = &owners[i / (max / SHARE)];

		if (!owner->context) {
			*owner = ends[1];
			reopen(owner);
		}
		create(&members[i], owner, QKEY);
	}
	return members;
}

/* Another user's half, who hears nothing. */
static pid_t fill_half(void)
{
	int ready[2], i, max;
	pid_t child;
	char byte;

	require_sys(pipe(ready));
	child = fork();
	require_sys(child);
	if (!child) {
		struct member *members;

		name_ends_from_environment();
		open_ends();
		require_sys(setresuid(OTHER_USER, OTHER_USER, OTHER_USER));
		max = ends[1].attr.max_mcast_qp_attach;
		members = create_half(max);
		for (i = 0; i < max / 2; i++)
			require_ok(attach(&members[i], group(10)));
		require(write(ready[1], "", 1) == 1, "write: %s", strerror(errno));
		pause();
		_exit(1);
	}
	close(ready[1]);
	require(read(ready[0], &byte, 1) == 1, "the other one failed");
	close(ready[0]);
	return child;
}

/* As many members as are advertised, and each gets a copy. */
TEST(full_group)
{
	struct member *members;
	pid_t other;
	int i, max;

	family = FAMILY_IPV4;
	other = fill_half();
	set_up(FAMILY_IPV4);
	members = create_half(ends[1].attr.max_mcast_qp_attach);
	max = ends[1].attr.max_mcast_qp_attach / 2;
	for (i = 0; i < max; i++)
		require_ok(attach(&members[i], group(10)));
	require(attach(&members[max], group(10)) == ENOMEM, "one too many");
	for (i = 0; i < max; i++)
		listen_for_one(&members[i]);
	send_to_group(group(10));
	sent();
	for (i = 0; i < max; i++)
		expect_copy(&members[i], group(10));
	/* One makes room for another, whichever it is. */
	require_ok(detach(&members[0], group(10)));
	require_ok(attach(&members[max], group(10)));
	listen_for_one(&members[max]);
	send_to_group(group(10));
	sent();
	expect_copy(&members[max], group(10));
	require_sys(kill(other, SIGKILL));
	require_sys(waitpid(other, NULL, 0));
}

/* Many groups, founded and left in an order of their own. */
TEST(many_groups)
{
	const unsigned int count = 300;
	unsigned int i;

	set_up(FAMILY_IPV6);
	require(ends[1].attr.max_mcast_grp >= 8192, "%d groups only", ends[1].attr.max_mcast_grp);
	require(ends[1].attr.max_total_mcast_qp_attach >= 8192 * 56, "%d attachments only",
		ends[1].attr.max_total_mcast_qp_attach);
	for (i = 0; i < count; i++)
		require_ok(attach(&there[0], group(100 + i * 7 % count)));
	for (i = 0; i < count; i += 2)
		require_ok(detach(&there[0], group(100 + i * 11 % count)));
	for (i = 0; i < count; i += 37) {
		bool is_member = i % 2;

		listen_for_one(&there[0]);
		send_to_group(group(100 + i * 11 % count));
		sent();
		if (!is_member) {
			expect_nothing(&there[0]);
			i++;
			send_to_group(group(100 + i * 11 % count));
			sent();
		}
		expect_copy(&there[0], group(100 + i * 11 % count));
	}
}

/* A queue pair that is attached stays, until its process goes. */
TEST(attached_at_the_end)
{
	pid_t child = fork();
	int status;

	require_sys(child);
	if (!child) {
		set_up(FAMILY_IPV4);
		require_ok(attach(&there[0], group(11)));
		require(ibv_destroy_qp(there[0].qp) == EBUSY, "it was destroyed");
		require(has_joined(group(11)), "not joined");
		_exit(0);
	}
	require_sys(waitpid(child, &status, 0));
	require(status == 0, "status %d", status);
	family = FAMILY_IPV4;
	name_ends_from_environment();
	require(!has_joined(group(11)), "the netdev is still in the group");
}

TEST_HARNESS_MAIN
