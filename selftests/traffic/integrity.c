// SPDX-License-Identifier: GPL-2.0
/*
 * Data integrity: two processes, each with a device in its network namespace,
 * send random messages to each other over RC, in both directions at once, and
 * compare every byte of all memory that is registered, and every completion; of what
 * kind that memory is, an option says.  Atomics among them are followed by a model of the
 * words they work on, where each must have been carried out once and in its turn.  Over
 * UC and UD they do as well, on a network that loses nothing, with what the receiver
 * can tell the end of: SENDs and, over UC, WRITEs with immediate data.
 *
 * The work comes in rounds.  Both sides derive a round's operations from the
 * seed (lib/plan.h), post what they owe as requesters, follow what they get as
 * responders, and at its end look through their memory (lib/region.h).  They
 * meet between rounds over a socket pair, apart from the network under test.
 * On two machines (--side) they are two programs, which meet over TCP.
 *
 * Status 0: all was right; 1: something was wrong; 3, with --tolerate only: all
 * was right until the connection or the device broke.
 */
#include <arpa/inet.h>
#include <fcntl.h>
#include <getopt.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "plan.h"
#include "rc.h"
#include "region.h"

#define MAX_QPS 64
#define MAX_SGE 32
#define BATCH 8			/* work requests posted at once, at most */
#define MAX_SLACK 100		/* a receive is up to so much longer than the message */

enum { STATUS_WRONG = 1, STATUS_BROKEN = 3, STATUS_PEER_GONE = 5 };

/* ---- options ----------------------------------------------------------- */

static struct {
	enum family family;
	int gid_index[2];		/* of both sides */
	enum ibv_mtu mtu;		/* 0: the active MTU of both */
	const char *sizes;
	unsigned int qps, rounds, seconds;
	unsigned int recvs;		/* receives posted ahead; 0: all of the round's */
	unsigned int depth;		/* of the send queue */
	int64_t psn;			/* -1: random, half of them close to the wrap */
	bool requests[2];		/* which sides are requesters */
	bool datagrams;			/* UD; then the plan's QPs are unreliable, too */
	bool shared;			/* receives come from shared receive queues */
	bool busy;			/* polls all the time instead of waiting for events */
	bool tolerate, insist;
	unsigned int stall;		/* the longest time without any progress, s */
	int side;			/* this one alone; -1: both */
	const char *meeting;		/* where it meets the other one */
	enum memory memory;
	struct menu menu;
	struct rc_plan plan;
} options = {
	.gid_index = { -1, -1 },
	.sizes = "0,1,m-1,m,m+1,65535,65536,65537,8388608",
	.qps = 2,
	.rounds = 10,
	.depth = 32,
	.psn = -1,
	.requests = { true, true },
	.stall = 20,
	.side = -1,
	.menu = {
		.kinds = { [SEND] = true, [SEND_IMM] = true, [WRITE] = true, [WRITE_IMM] = true,
			   [READ] = true },
		.random_max = 65536,
		.ops = 64,
		.bytes = 4 << 20,
		.fences = true,
		.empty = true,
	},
};

static const char usage[] =
"usage: integrity [OPTION...]\n"
"  -a, --end-a [NS/]DEV   the two ends (default: $END_A and $END_B)\n"
"  -b, --end-b [NS/]DEV\n"
"  -4, -6                 GIDs of this family\n"
"  -g, --gid-index N[,M]  this GID index on both sides, or one for each\n"
"  -m, --mtu BYTES        path MTU (default: what both have active)\n"
"  -u, --unreliable       UC, and not RC\n"
"  -U, --datagrams        UD, and not RC; longer sizes are left out\n"
"      --srq              receives come from a shared receive queue for each QP\n"
"  -k, --kinds LIST       of send,send_imm,write,write_imm,read (default: these) and\n"
"                         fetch_add,cmp_swap,atomic_write\n"
"      --atomics          these three, too\n"
"  -M, --memory KIND      pinned (default), huge, on_demand, implicit, dma_buf\n"
"  -s, --sizes LIST       bytes, also \"m\", \"m-1\", \"m+1\" for the path MTU\n"
"  -x, --random-max BYTES sizes chosen at random, too, up to this one\n"
"  -q, --qps N            connections\n"
"  -o, --ops N            operations in a round, on each connection, each way\n"
"  -B, --bytes N          bytes in a round, likewise, before it ends early\n"
"  -n, --rounds N         rounds (0: as many as the time allows)\n"
"  -t, --seconds N        no new round after this time\n"
"  -d, --depth N          of the send queue\n"
"  -r, --recvs N          so many receives posted at a time: RNR NAKs otherwise\n"
"  -D, --direction a|b    only this side is a requester\n"
"  -S, --seed N           default: random\n"
"  -p, --psn N            the first PSN of all\n"
"  -T, --timeout N        the QP's, 4.096 us * 2^N\n"
"  -R, --retry N          the QP's retry_cnt\n"
"  -N, --rnr-retry N      the QP's rnr_retry\n"
"  -i, --rnr-timer N      the QP's min_rnr_timer\n"
"      --no-fences        no fenced operations\n"
"      --no-empty         no operations of zero bytes\n"
"      --side a|b,ADDRESS this side alone; b listens at the IPv4 address, a connects to it\n"
"      --busy             poll instead of waiting for completion events\n"
"      --stall S          give up after so many seconds without progress\n"
"      --tolerate         end with status 3 when the connection breaks\n"
"      --insist           register again what there was no memory for\n";

enum {
	OPTION_ATOMICS = 256, OPTION_BUSY, OPTION_INSIST, OPTION_NO_EMPTY, OPTION_NO_FENCES,
	OPTION_SIDE, OPTION_SRQ, OPTION_STALL, OPTION_TOLERATE,
};

static const struct option long_options[] = {
	{ "end-a", required_argument, NULL, 'a' }, { "end-b", required_argument, NULL, 'b' },
	{ "gid-index", required_argument, NULL, 'g' }, { "mtu", required_argument, NULL, 'm' },
	{ "unreliable", no_argument, NULL, 'u' }, { "datagrams", no_argument, NULL, 'U' },
	{ "srq", no_argument, NULL, OPTION_SRQ },
	{ "kinds", required_argument, NULL, 'k' }, { "sizes", required_argument, NULL, 's' },
	{ "random-max", required_argument, NULL, 'x' }, { "qps", required_argument, NULL, 'q' },
	{ "ops", required_argument, NULL, 'o' }, { "bytes", required_argument, NULL, 'B' },
	{ "rounds", required_argument, NULL, 'n' }, { "seconds", required_argument, NULL, 't' },
	{ "depth", required_argument, NULL, 'd' }, { "recvs", required_argument, NULL, 'r' },
	{ "direction", required_argument, NULL, 'D' }, { "seed", required_argument, NULL, 'S' },
	{ "psn", required_argument, NULL, 'p' }, { "timeout", required_argument, NULL, 'T' },
	{ "retry", required_argument, NULL, 'R' }, { "rnr-retry", required_argument, NULL, 'N' },
	{ "rnr-timer", required_argument, NULL, 'i' },
	{ "memory", required_argument, NULL, 'M' }, { "atomics", no_argument, NULL, OPTION_ATOMICS },
	{ "no-empty", no_argument, NULL, OPTION_NO_EMPTY },
	{ "no-fences", no_argument, NULL, OPTION_NO_FENCES },
	{ "side", required_argument, NULL, OPTION_SIDE },
	{ "busy", no_argument, NULL, OPTION_BUSY },
	{ "insist", no_argument, NULL, OPTION_INSIST },
	{ "stall", required_argument, NULL, OPTION_STALL },
	{ "tolerate", no_argument, NULL, OPTION_TOLERATE },
	{},
};

static _Noreturn void die_of_usage(const char *wrong)
{
	fprintf(stderr, "integrity: not understood: %s\n%s", wrong, usage);
	exit(2);
}

static uint64_t number(const char *text, uint64_t min, uint64_t max)
{
	char *end;
	uint64_t value;

	errno = 0;
	value = strtoull(text, &end, 0);
	if (errno || end == text || *end || value < min || value > max)
		die_of_usage(text);
	return value;
}

static enum ibv_mtu mtu_of_bytes(const char *text)
{
	enum ibv_mtu mtu;

	for (mtu = IBV_MTU_256; mtu <= IBV_MTU_4096; mtu++)
		if (number(text, 256, 4096) == 128u << mtu)
			return mtu;
	die_of_usage(text);
}

static void parse_kinds(const char *list)
{
	char *copy = strdup(list), *rest = copy, *name;
	enum kind kind;

	memset(options.menu.kinds, 0, sizeof(options.menu.kinds));
	while ((name = strsep(&rest, ","))) {
		kind = kind_by_name(name);
		if (kind == KINDS)
			die_of_usage(name);
		options.menu.kinds[kind] = true;
	}
	free(copy);
}

static enum memory parse_memory(const char *name)
{
	enum memory memory = memory_by_name(name);

	if (memory == MEMORIES)
		die_of_usage(name);
	return memory;
}

static void add_atomics(void)
{
	enum kind kind;

	for (kind = 0; kind < KINDS; kind++)
		options.menu.kinds[kind] |= is_atomic(kind);
}

static void parse_gid_index(const char *value)
{
	char *first = strdup(value), *second = first;

	strsep(&second, ",");
	options.gid_index[0] = number(first, 0, 65535);
	options.gid_index[1] = number(second ?: first, 0, 65535);
	free(first);
}

static void parse_side(const char *value)
{
	if ((value[0] != 'a' && value[0] != 'b') || value[1] != ',')
		die_of_usage(value);
	options.side = value[0] - 'a';
	options.meeting = value + 2;
}

/* Needs the path MTU, so comes after both sides have met. */
static void parse_sizes(uint32_t mtu)
{
	char *copy = strdup(options.sizes), *rest = copy, *size;
	struct menu *menu = &options.menu;
	uint32_t bytes;

	while ((size = strsep(&rest, ","))) {
		bytes = size[0] == 'm' ? mtu + atoi(size + 1) : number(size, 0, 1u << 31);
		if (options.datagrams && bytes > mtu)
			continue;
		if (menu->sizes_count == MAX_SIZES)
			die_of_usage("too many sizes");
		menu->sizes[menu->sizes_count++] = bytes;
	}
	free(copy);
	if (options.datagrams && menu->random_max > mtu)
		menu->random_max = mtu;
}

static void parse_option(int option, const char *value)
{
	struct rc_plan *plan = &options.plan;

	switch (option) {
	case 'a': end_name(&ends[0], value); break;
	case 'b': end_name(&ends[1], value); break;
	case '4': options.family = FAMILY_IPV4; break;
	case '6': options.family = FAMILY_IPV6; break;
	case 'g': parse_gid_index(value); break;
	case 'm': options.mtu = mtu_of_bytes(value); break;
	case 'u': plan->unreliable = true; break;
	case 'U': options.datagrams = plan->unreliable = true; break;
	case OPTION_SRQ: options.shared = true; break;
	case 'k': parse_kinds(value); break;
	case 's': options.sizes = value; break;
	case 'x': options.menu.random_max = number(value, 0, 1u << 31); break;
	case 'q': options.qps = number(value, 1, MAX_QPS); break;
	case 'o': options.menu.ops = number(value, 1, MAX_OPS); break;
	case 'B': options.menu.bytes = number(value, 1, UINT64_MAX); break;
	case 'n': options.rounds = number(value, 0, UINT32_MAX); break;
	case 't': options.seconds = number(value, 1, UINT32_MAX); break;
	case 'd': options.depth = number(value, 1, 16384); break;
	case 'r': options.recvs = number(value, 1, MAX_OPS); break;
	case 'D': options.requests[0] = *value == 'a'; options.requests[1] = *value == 'b'; break;
	case 'S': options.menu.seed = number(value, 0, UINT64_MAX); break;
	case 'p': options.psn = number(value, 0, 0xffffff); break;
	case 'T': plan->timeout = number(value, 0, 31); break;
	case 'R': plan->retry_cnt = number(value, 0, 7); break;
	case 'N': plan->rnr_retry = number(value, 0, 7); break;
	case 'i': plan->min_rnr_timer = number(value, 0, 31); break;
	case OPTION_ATOMICS: add_atomics(); break;
	case 'M': options.memory = parse_memory(value); break;
	case OPTION_NO_EMPTY: options.menu.empty = false; break;
	case OPTION_NO_FENCES: options.menu.fences = false; break;
	case OPTION_SIDE: parse_side(value); break;
	case OPTION_BUSY: options.busy = true; break;
	case OPTION_INSIST: options.insist = true; break;
	case OPTION_STALL: options.stall = number(value, 1, 86400); break;
	case OPTION_TOLERATE: options.tolerate = true; break;
	default: die_of_usage("see above");
	}
}

static void parse_options(int argc, char **argv)
{
	const char *a = getenv("END_A"), *b = getenv("END_B");
	enum kind kind;
	int option;

	options.plan = default_plan;
	if (getentropy(&options.menu.seed, sizeof(options.menu.seed)))
		options.menu.seed = now_ns();
	if (a)
		end_name(&ends[0], a);
	if (b)
		end_name(&ends[1], b);
	while ((option = getopt_long(argc, argv, "a:b:46g:m:uUk:M:s:x:q:o:B:n:t:d:r:D:S:p:T:R:N:i:",
				     long_options, NULL)) >= 0)
		parse_option(option, optarg);
	if (optind < argc)
		die_of_usage(argv[optind]);
	if (!ends[0].dev[0] || !ends[1].dev[0])
		die_of_usage("no ends");
	if (!options.rounds && !options.seconds)
		die_of_usage("no end: neither rounds nor seconds");
	for (kind = 0; kind < KINDS; kind++) {
		if (options.plan.unreliable && (kind == WRITE || fetches(kind) || is_atomic(kind)))
			options.menu.kinds[kind] = false;
		if (options.menu.kinds[kind] && is_atomic(kind))
			options.plan.access |= IBV_ACCESS_REMOTE_ATOMIC;
	}
	if (options.datagrams)
		options.menu.kinds[WRITE_IMM] = options.menu.fences = false;
	options.menu.window = (options.depth + 1) / 2;
}

/* ---- one side ---------------------------------------------------------- */

enum { SOURCE, FETCHED, RECEIVED, TARGET, SHOWN, COUNTED, REGIONS };

/* Where the other side finds what it writes to and reads from. */
struct remote {
	uint64_t written, read, counted;
	uint32_t written_rkey, read_rkey, counted_rkey;
};

/* One connection, as this side sees it. */
struct link {
	unsigned int number;
	struct rc rc;
	struct ibv_srq *srq;		/* NULL: the QP has its own receives */
	struct region regions[REGIONS];
	struct remote remote;
	struct rng rng;			/* this side's own choices */

	/* of datagrams */
	struct ibv_ah *ah;
	uint32_t remote_qpn;
	struct buffer grh;		/* where all receives put theirs */

	/* as requester */
	struct planner out_planner;
	struct round out;
	unsigned int posted, retired;
	struct ibv_sge gather[BATCH][MAX_SGE];
	struct ibv_sge read_sges[MAX_SGE];	/* of the last READ, for a relay */
	int read_sges_count;
	uint8_t scratch[BATCH][INLINE_MAX];
	unsigned int fetched_checked;		/* segments */

	/* as responder */
	struct planner in_planner;
	struct round in;
	unsigned int recv_op;		/* the next to arrive that takes a receive */
	unsigned int recv_posted_op;	/* the next to post a receive for */
	unsigned int recvs_posted, recvs_done, recvs_wanted;
	unsigned int target_checked, received_checked;	/* segments */
};

static struct side {
	int index;
	int peer;			/* a socket to the other side */
	struct end *end;
	struct ibv_comp_channel *channel;
	struct ibv_cq *cq;
	unsigned int cq_events;
	struct link *links;
	unsigned int round;
	bool in_round;
	int64_t deadline;		/* for the next progress */
	uint64_t ops, bytes;
	bool last;
} side;

/* The connection or the device has broken. */
static _Noreturn __attribute__((format(printf, 1, 2))) void broken(const char *format, ...)
{
	va_list args;

	printf("side %c, round %u: ", 'a' + side.index, side.round);
	va_start(args, format);
	vprintf(format, args);
	va_end(args);
	printf("\n");
	fflush(stdout);
	_exit(options.tolerate ? STATUS_BROKEN : STATUS_WRONG);
}

/* -1: the device is gone. */
static int state_of(const struct link *link)
{
	struct ibv_qp_init_attr init;
	struct ibv_qp_attr attr;

	return ibv_query_qp(link->rc.qp, &attr, IBV_QP_STATE, &init) ? -1 : (int)attr.qp_state;
}

static void describe(const struct link *link)
{
	note("side %c, connection %u, round %u: posted %u and retired %u of %u, received %u of %u, state %d",
	     'a' + side.index, link->number, side.round, link->posted, link->retired,
	     link->out.count, link->recvs_done, link->recvs_wanted,
	     state_of(link));
}

static bool link_is_done(const struct link *link)
{
	return link->retired == link->out.count && link->recvs_done == link->recvs_wanted;
}

static void progress(void)
{
	side.deadline = now_ns() + options.stall * NS_PER_S;
}

static void check_deadline(void)
{
	unsigned int i;

	if (now_ns() < side.deadline)
		return;
	for (i = 0; side.in_round && i < options.qps; i++)
		if (!link_is_done(&side.links[i]))
			describe(&side.links[i]);
	broken("no progress within %u s", options.stall);
}

/* ---- meeting the other side -------------------------------------------- */

static void tell(const void *message, size_t size)
{
	if (send(side.peer, message, size, MSG_NOSIGNAL) != (ssize_t)size)
		_exit(STATUS_PEER_GONE);
}

static void hear(void *message, size_t size)
{
	struct pollfd wait = { .fd = side.peer, .events = POLLIN };
	ssize_t got;

	while (poll(&wait, 1, 100) == 0)
		check_deadline();
	got = recv(side.peer, message, size, MSG_WAITALL);
	if (got <= 0)
		_exit(STATUS_PEER_GONE);
	require(got == (ssize_t)size, "the sides disagree: %zd bytes, not %zu", got, size);
	progress();
}

static void exchange(const void *mine, void *theirs, size_t size)
{
	tell(mine, size);
	hear(theirs, size);
}

static void barrier(const char *where)
{
	uint64_t mine = mix(side.round, where[0]), theirs;

	exchange(&mine, &theirs, sizeof(mine));
	require(mine == theirs, "the sides are not at the same place: %s", where);
}

/* ---- completions ------------------------------------------------------- */

#define RECV_BIT (1ULL << 63)
#define GRH_BYTES 40
#define QKEY 0x11223344

static uint64_t wr_id(const struct link *link, unsigned int op)
{
	return (uint64_t)side.round << 24 | link->number << 16 | op;
}

static const enum ibv_wr_opcode wr_opcodes[KINDS] = {
	[SEND] = IBV_WR_SEND, [SEND_IMM] = IBV_WR_SEND_WITH_IMM, [WRITE] = IBV_WR_RDMA_WRITE,
	[WRITE_IMM] = IBV_WR_RDMA_WRITE_WITH_IMM, [READ] = IBV_WR_RDMA_READ,
	[FETCH_ADD] = IBV_WR_ATOMIC_FETCH_AND_ADD, [CMP_SWAP] = IBV_WR_ATOMIC_CMP_AND_SWP,
};

static const enum ibv_wc_opcode wc_opcodes[KINDS] = {
	[SEND] = IBV_WC_SEND, [SEND_IMM] = IBV_WC_SEND, [WRITE] = IBV_WC_RDMA_WRITE,
	[WRITE_IMM] = IBV_WC_RDMA_WRITE, [READ] = IBV_WC_RDMA_READ,
	[FETCH_ADD] = IBV_WC_FETCH_ADD, [CMP_SWAP] = IBV_WC_COMP_SWAP,
	[ATOMIC_WRITE] = IBV_WC_ATOMIC_WRITE,
};

static void wrong_wc(const struct link *link, const struct ibv_wc *wc, const char *what)
{
	describe(link);
	fail("%s: wr_id 0x%llx, opcode %d, byte_len %u, flags 0x%x, imm 0x%x", what,
	     (unsigned long long)wc->wr_id, wc->opcode, wc->byte_len, wc->wc_flags,
	     ntohl(wc->imm_data));
}

/* What READs and atomics have fetched is there when they complete. */
static void check_fetched(struct link *link)
{
	const struct region *region = &link->regions[FETCHED];
	const struct segment *segment;

	while (link->fetched_checked < region->count) {
		segment = &region->segments[link->fetched_checked];
		if (segment->op >= link->retired)
			break;
		region_check_segment(region, segment);
		link->fetched_checked++;
	}
}

static void handle_send_wc(struct link *link, const struct ibv_wc *wc)
{
	const struct op *op;
	unsigned int next = link->retired;

	while (next < link->posted && !link->out.ops[next].signalled)
		next++;
	if (next == link->posted)
		wrong_wc(link, wc, "a send completion too many");
	op = &link->out.ops[next];
	if (wc->wr_id != wr_id(link, next))
		wrong_wc(link, wc, "a send completion out of order");
	if (wc->opcode != wc_opcodes[op->kind])
		wrong_wc(link, wc, "a send completion with a wrong opcode");
	if ((op->kind == READ || is_atomic(op->kind)) && wc->byte_len != op->length)
		wrong_wc(link, wc, "a completion with a wrong length");
	for (; link->retired <= next; link->retired++)
		side.bytes += link->out.ops[link->retired].length;
	check_fetched(link);
}

/*
 * All WRITEs before a message that has arrived have been placed, and of the
 * message every byte.
 */
static void check_arrived(struct link *link, unsigned int op)
{
	const struct region *target = &link->regions[TARGET];
	const struct region *received = &link->regions[RECEIVED];

	while (link->target_checked < target->count &&
	       target->segments[link->target_checked].op <= op)
		region_check_segment(target, &target->segments[link->target_checked++]);
	while (link->received_checked < received->count &&
	       received->segments[link->received_checked].op <= op)
		region_check_segment(received, &received->segments[link->received_checked++]);
}

static void handle_recv_wc(struct link *link, const struct ibv_wc *wc)
{
	const struct op *op;

	while (link->recv_op < link->in.count && !takes_recv(link->in.ops[link->recv_op].kind))
		link->recv_op++;
	if (link->recv_op == link->in.count)
		wrong_wc(link, wc, "a receive completion too many");
	op = &link->in.ops[link->recv_op];
	if (wc->wr_id != (RECV_BIT | wr_id(link, link->recv_op)))
		wrong_wc(link, wc, "a receive completion out of order");
	if (wc->opcode != (op->kind == WRITE_IMM ? IBV_WC_RECV_RDMA_WITH_IMM : IBV_WC_RECV))
		wrong_wc(link, wc, "a receive completion with a wrong opcode");
	if (wc->byte_len != op->length + (options.datagrams ? GRH_BYTES : 0))
		wrong_wc(link, wc, "a receive completion with a wrong length");
	if (options.datagrams && (!(wc->wc_flags & IBV_WC_GRH) || wc->src_qp != link->remote_qpn))
		wrong_wc(link, wc, "a datagram from elsewhere");
	if (!(wc->wc_flags & IBV_WC_WITH_IMM) != !has_imm(op->kind))
		wrong_wc(link, wc, "a receive completion with a wrong flag");
	if (has_imm(op->kind) && ntohl(wc->imm_data) != op->imm)
		wrong_wc(link, wc, "a receive completion with wrong immediate data");
	check_arrived(link, link->recv_op);
	link->recv_op++;
	link->recvs_done++;
}

static struct link *link_by_qpn(uint32_t qpn)
{
	unsigned int i;

	for (i = 0; i < options.qps; i++)
		if (side.links[i].rc.qp->qp_num == qpn)
			return &side.links[i];
	fail("a completion of an unknown QP 0x%x", qpn);
}

static void handle_wc(const struct ibv_wc *wc)
{
	struct link *link = link_by_qpn(wc->qp_num);

	if (wc->status != IBV_WC_SUCCESS) {
		describe(link);
		broken("%s 0x%llx completed with \"%s\"",
		       wc->wr_id & RECV_BIT ? "receive" : "send",
		       (unsigned long long)wc->wr_id, ibv_wc_status_str(wc->status));
	}
	if (wc->wr_id & RECV_BIT)
		handle_recv_wc(link, wc);
	else
		handle_send_wc(link, wc);
}

static unsigned int poll_all(void)
{
	struct ibv_wc wcs[16];
	unsigned int total = 0;
	int i, n;

	do {
		n = ibv_poll_cq(side.cq, ARRAY_SIZE(wcs), wcs);
		require(n >= 0, "ibv_poll_cq: %d", n);
		for (i = 0; i < n; i++)
			handle_wc(&wcs[i]);
		total += n;
	} while (n);
	return total;
}

/* Waits for a completion event, for the end of the other side, or a while. */
static void sleep_on_channel(void)
{
	struct pollfd wait[] = {
		{ .fd = side.channel->fd, .events = POLLIN },
		{ .fd = side.peer, .events = POLLRDHUP },
	};
	struct ibv_cq *cq;
	void *context;

	if (poll(wait, ARRAY_SIZE(wait), 1000) <= 0)
		return;
	if (wait[1].revents)
		_exit(STATUS_PEER_GONE);
	if (!wait[0].revents)
		return;
	if (ibv_get_cq_event(side.channel, &cq, &context))
		broken("ibv_get_cq_event: %s", strerror(errno));
	if (++side.cq_events == 100) {
		ibv_ack_cq_events(side.cq, side.cq_events);
		side.cq_events = 0;
	}
}

static void wait_for_wc(void)
{
	int err;

	if (options.busy) {
		sched_yield();
		return;
	}
	err = ibv_req_notify_cq(side.cq, 0);
	if (err)
		broken("ibv_req_notify_cq: %s", strerror(err));
	if (poll_all())
		progress();
	else
		sleep_on_channel();
}

/* Errors of the device come here. */
static void check_async_events(void)
{
	struct ibv_async_event event;

	while (!ibv_get_async_event(side.end->context, &event)) {
		ibv_ack_async_event(&event);
		switch (event.event_type) {
		case IBV_EVENT_GID_CHANGE:
		case IBV_EVENT_PORT_ACTIVE:
		case IBV_EVENT_PORT_ERR:
		case IBV_EVENT_COMM_EST:
			break;
		default:
			broken("asynchronous event \"%s\"", ibv_event_type_str(event.event_type));
		}
	}
}

/* ---- the requester ----------------------------------------------------- */

/* Cuts a length into a random number of pieces, some of them empty. */
static int cut(struct rng *rng, uint32_t length, int max, uint32_t pieces[])
{
	int count = rng_one_in(rng, 2) ? 1 : 1 + rng_below(rng, max), i;

	for (i = 0; i < count - 1; i++) {
		pieces[i] = rng_one_in(rng, 8) ? 0 : rng_below(rng, 2 * (length / count) + 2);
		if (pieces[i] > length)
			pieces[i] = length;
		length -= pieces[i];
	}
	pieces[count - 1] = length;
	return count;
}

/* Lays a stream out in a region, in pieces, and remembers their SGEs but for the lkey. */
static int lay_out(struct link *link, struct region *region, unsigned int op, uint32_t length,
		   uint64_t key, uint32_t capacity, int max, struct ibv_sge sges[])
{
	uint32_t pieces[MAX_SGE], done = 0, part;
	uint64_t at;
	int count = cut(&link->rng, capacity, max, pieces), i;

	for (i = 0; i < count; i++) {
		at = region->end + rng_below(&link->rng, 70);
		part = pieces[i] < length - done ? pieces[i] : length - done;
		region_add(region, op, at, part, key, done);
		region->end = at + pieces[i];
		done += part;
		sges[i] = (struct ibv_sge){ .addr = at, .length = pieces[i] };
	}
	return count;
}

/* The layout of a round's messages is drawn up before it begins. */
struct layout {
	struct ibv_sge sges[MAX_SGE];
	int count;
};
static struct layout (*send_layouts)[MAX_OPS], (*recv_layouts)[MAX_OPS];

/* Where an atomic puts the word that it finds. */
static int lay_out_word(struct link *link, unsigned int number, const struct op *op, int max,
			struct ibv_sge sges[])
{
	struct region *region = &link->regions[FETCHED];
	unsigned int i = region->count;
	int count = lay_out(link, region, number, op->length, op->found, op->length, max, sges);

	for (; i < region->count; i++)
		region->segments[i].is_word = true;
	return count;
}

static void lay_out_sends(struct link *link)
{
	const struct op *op;
	struct layout *layout;
	unsigned int i;
	int max = options.plan.cap.max_send_sge;

	for (i = 0; i < link->out.count; i++) {
		op = &link->out.ops[i];
		layout = &send_layouts[link->number][i];
		layout->count = 0;
		if (op->relay || op->inlined || op->kind == ATOMIC_WRITE)
			continue;
		if (is_atomic(op->kind)) {
			layout->count = lay_out_word(link, i, op, max, layout->sges);
			continue;
		}
		if (!op->length && rng_one_in(&link->rng, 2))
			continue;
		layout->count = lay_out(link, &link->regions[op->kind == READ ? FETCHED : SOURCE],
					i, op->length, op->key, op->length, max, layout->sges);
	}
}

/* Gathers from memory that is not registered, and is overwritten soon. */
static int gather_inline(struct link *link, const struct op *op, unsigned int slot)
{
	uint32_t pieces[MAX_SGE], done = 0;
	struct ibv_sge *sges = link->gather[slot];
	int count = cut(&link->rng, op->length, options.plan.cap.max_send_sge, pieces), i;

	stream_fill(link->scratch[slot], op->length, op->key, 0);
	for (i = 0; i < count; i++) {
		sges[i] = (struct ibv_sge){
			.addr = (uintptr_t)link->scratch[slot] + done, .length = pieces[i],
			.lkey = rng_next(&link->rng), /* ignored */
		};
		done += pieces[i];
	}
	return count;
}

/* Gathers the beginning of what the last READ scatters. */
static int gather_relay(struct link *link, const struct op *op, unsigned int slot)
{
	uint32_t left = op->length;
	int i;

	for (i = 0; i < link->read_sges_count && left; i++) {
		link->gather[slot][i] = link->read_sges[i];
		if (link->gather[slot][i].length > left)
			link->gather[slot][i].length = left;
		left -= link->gather[slot][i].length;
	}
	return i;
}

static int gather_region(struct link *link, const struct op *op, unsigned int number,
			 unsigned int slot)
{
	const struct layout *layout = &send_layouts[link->number][number];
	struct region *region = &link->regions[fetches(op->kind) ? FETCHED : SOURCE];
	struct ibv_sge *sges = link->gather[slot];
	int i;

	for (i = 0; i < layout->count; i++) {
		sges[i] = layout->sges[i];
		sges[i].addr += (uintptr_t)region->bytes;
		sges[i].lkey = region->mr->lkey;
	}
	if (op->kind == READ) {
		memcpy(link->read_sges, sges, sizeof(link->read_sges));
		link->read_sges_count = layout->count;
	}
	return layout->count;
}

static void make_wr(struct link *link, unsigned int number, unsigned int slot,
		    struct ibv_send_wr *wr)
{
	const struct op *op = &link->out.ops[number];

	*wr = (struct ibv_send_wr){
		.wr_id = wr_id(link, number),
		.opcode = wr_opcodes[op->kind],
		.send_flags = (op->signalled ? IBV_SEND_SIGNALED : 0) |
			      (op->fence ? IBV_SEND_FENCE : 0) |
			      (op->solicited ? IBV_SEND_SOLICITED : 0) |
			      (op->inlined ? IBV_SEND_INLINE : 0),
		.sg_list = link->gather[slot],
	};
	if (has_imm(op->kind))
		wr->imm_data = htonl(op->imm);
	if (is_write(op->kind)) {
		wr->wr.rdma.remote_addr = link->remote.written + op->remote;
		wr->wr.rdma.rkey = link->remote.written_rkey;
	}
	if (op->kind == READ) {
		wr->wr.rdma.remote_addr = link->remote.read + op->remote;
		wr->wr.rdma.rkey = link->remote.read_rkey;
	}
	if (is_atomic(op->kind)) {
		wr->wr.atomic.remote_addr = link->remote.counted + op->remote;
		wr->wr.atomic.rkey = link->remote.counted_rkey;
		wr->wr.atomic.compare_add = op->operand;
		wr->wr.atomic.swap = op->swap;
	}
	if (options.datagrams) {
		wr->wr.ud.ah = link->ah;
		wr->wr.ud.remote_qpn = link->remote_qpn;
		wr->wr.ud.remote_qkey = QKEY;
	}
	if (op->wild_rkey)
		wr->wr.rdma.rkey = rng_next(&link->rng);

	if (op->inlined)
		wr->num_sge = gather_inline(link, op, slot);
	else if (op->relay)
		wr->num_sge = gather_relay(link, op, slot);
	else
		wr->num_sge = gather_region(link, op, number, slot);
}

/* That one has a verb of its own. */
static int post_atomic_write(struct link *link)
{
	const struct op *op = &link->out.ops[link->posted];
	struct ibv_qp_ex *qp = ibv_qp_to_qp_ex(link->rc.qp);

	ibv_wr_start(qp);
	qp->wr_id = wr_id(link, link->posted);
	qp->wr_flags = (op->signalled ? IBV_SEND_SIGNALED : 0) | (op->fence ? IBV_SEND_FENCE : 0);
	ibv_wr_atomic_write(qp, link->remote.counted_rkey, link->remote.counted + op->remote,
			    &op->operand);
	return ibv_wr_complete(qp);
}

/* Up to so many requests, that go together. */
static int post_chain(struct link *link, unsigned int *count)
{
	struct ibv_send_wr wrs[BATCH], *bad;
	unsigned int i;

	for (i = 0; i < *count; i++) {
		if (link->out.ops[link->posted + i].kind == ATOMIC_WRITE)
			break;
		make_wr(link, link->posted + i, i, &wrs[i]);
		if (i)
			wrs[i - 1].next = &wrs[i];
	}
	*count = i ?: 1;
	return i ? ibv_post_send(link->rc.qp, wrs, &bad) : post_atomic_write(link);
}

/* Posts some of the requests that have room in the queue; true if there was one. */
static bool post_sends(struct link *link)
{
	unsigned int count, room;
	int err;

	room = options.depth - (link->posted - link->retired);
	count = link->out.count - link->posted;
	if (count > room)
		count = room;
	if (count > BATCH)
		count = BATCH;
	if (!count)
		return false;
	count = 1 + rng_below(&link->rng, count);
	err = post_chain(link, &count);
	if (err)
		broken("ibv_post_send: %s", strerror(err));
	memset(link->scratch, 0x5a, sizeof(link->scratch));
	link->posted += count;
	side.ops += count;
	return true;
}

/* ---- the responder ----------------------------------------------------- */

/* The words that atomics work on, as they are before the first. */
static void lay_out_words(struct link *link)
{
	const struct word *word;

	if (!link->in.count)
		return;
	for (word = link->in.words; word < link->in.words + WORDS; word++)
		region_add(&link->regions[COUNTED], 0, word->at, sizeof(uint64_t), word->first,
			   0)->is_word = true;
}

/* From now on they are checked for what they must be in the end. */
static void expect_words(struct link *link)
{
	struct region *region = &link->regions[COUNTED];
	unsigned int i;

	for (i = 0; i < region->count; i++)
		region->segments[i].key = link->in.words[i].last;
}

static void lay_out_recvs(struct link *link)
{
	const struct op *op;
	struct layout *layout;
	uint32_t slack;
	unsigned int i;

	link->recvs_wanted = 0;
	for (i = 0; i < link->in.count; i++) {
		op = &link->in.ops[i];
		if (is_write(op->kind))
			region_add(&link->regions[TARGET], i, op->remote, op->length, op->key, 0);
		if (op->kind == READ)
			region_add(&link->regions[SHOWN], i, op->remote, op->length, op->key, 0);
		if (!takes_recv(op->kind))
			continue;
		link->recvs_wanted++;
		layout = &recv_layouts[link->number][i];
		layout->count = 0;
		slack = rng_one_in(&link->rng, 2) ? rng_below(&link->rng, MAX_SLACK) : 0;
		if (op->kind == WRITE_IMM)
			continue; /* needs no memory */
		if (op->length || slack)
			layout->count = lay_out(link, &link->regions[RECEIVED], i, op->length,
						op->key, op->length + slack,
						options.plan.cap.max_recv_sge -
						(options.datagrams ? 1 : 0), layout->sges);
	}
}

static void post_one_recv(struct link *link, unsigned int op)
{
	const struct layout *layout = &recv_layouts[link->number][op];
	const struct region *region = &link->regions[RECEIVED];
	struct ibv_sge sges[MAX_SGE];
	struct ibv_recv_wr *bad, wr = {
		.wr_id = RECV_BIT | wr_id(link, op), .sg_list = sges,
	};
	int i, err;

	if (options.datagrams)
		sges[wr.num_sge++] = buffer_sge(&link->grh, 0, GRH_BYTES);
	for (i = 0; i < layout->count; i++, wr.num_sge++) {
		sges[wr.num_sge] = layout->sges[i];
		sges[wr.num_sge].addr += (uintptr_t)region->bytes;
		sges[wr.num_sge].lkey = region->mr->lkey;
	}
	if (link->srq)
		err = ibv_post_srq_recv(link->srq, &wr, &bad);
	else
		err = ibv_post_recv(link->rc.qp, &wr, &bad);
	if (err)
		broken("posting a receive: %s", strerror(err));
	link->recvs_posted++;
}

static void post_recvs(struct link *link)
{
	unsigned int ahead = options.recvs ? options.recvs : MAX_OPS;

	while (link->recvs_posted < link->recvs_wanted &&
	       link->recvs_posted - link->recvs_done < ahead) {
		while (!takes_recv(link->in.ops[link->recv_posted_op].kind))
			link->recv_posted_op++;
		post_one_recv(link, link->recv_posted_op++);
	}
}

/* ---- rounds ------------------------------------------------------------ */

static void prepare_region(struct link *link, int region, size_t tail, bool sent)
{
	int err;

	do {
		err = region_prepare(&link->regions[region], &link->rng, tail, sent);
	} while (err == ENOMEM && options.insist);
	if (err)
		broken("ibv_reg_mr or ibv_dereg_mr: %s", strerror(err));
}

static void prepare_link(struct link *link)
{
	struct region *regions = link->regions;
	int i;

	for (i = 0; i < REGIONS; i++)
		region_reset(&regions[i], rng_next(&link->rng));
	link->out.count = link->in.count = 0;
	if (options.requests[side.index])
		plan_round(&link->out_planner, &link->out);
	if (options.requests[!side.index])
		plan_round(&link->in_planner, &link->in);
	lay_out_sends(link);
	lay_out_recvs(link);
	lay_out_words(link);
	prepare_region(link, SOURCE, 0, true);
	prepare_region(link, FETCHED, 0, false);
	prepare_region(link, RECEIVED, MAX_SLACK, false);
	prepare_region(link, TARGET, 0, false);
	prepare_region(link, SHOWN, 0, true);
	prepare_region(link, COUNTED, 0, true);
	expect_words(link);
	link->posted = link->retired = link->fetched_checked = 0;
	link->recv_op = link->recv_posted_op = link->recvs_posted = link->recvs_done = 0;
	link->target_checked = link->received_checked = 0;
	post_recvs(link);
}

static void exchange_remotes(void)
{
	struct remote mine[MAX_QPS], theirs[MAX_QPS];
	struct region *regions;
	unsigned int i;

	for (i = 0; i < options.qps; i++) {
		regions = side.links[i].regions;
		mine[i] = (struct remote){
			.written = (uintptr_t)regions[TARGET].bytes,
			.written_rkey = regions[TARGET].mr->rkey,
			.read = (uintptr_t)regions[SHOWN].bytes,
			.read_rkey = regions[SHOWN].mr->rkey,
			.counted = (uintptr_t)regions[COUNTED].bytes,
			.counted_rkey = regions[COUNTED].mr->rkey,
		};
	}
	exchange(mine, theirs, options.qps * sizeof(*mine));
	for (i = 0; i < options.qps; i++)
		side.links[i].remote = theirs[i];
}

static void run_round(void)
{
	bool done, moved;
	unsigned int i;

	do {
		moved = poll_all();
		done = true;
		for (i = 0; i < options.qps; i++) {
			post_recvs(&side.links[i]);
			moved |= post_sends(&side.links[i]);
			done &= link_is_done(&side.links[i]);
		}
		if (moved) {
			progress();
			continue;
		}
		check_async_events();
		check_deadline();
		if (!done)
			wait_for_wc();
	} while (!done);
}

static void check_memory(void)
{
	unsigned int i;
	int region;

	for (i = 0; i < options.qps; i++)
		for (region = 0; region < REGIONS; region++)
			region_check(&side.links[i].regions[region]);
	progress();
}

static void one_round(void)
{
	unsigned int i;

	for (i = 0; i < options.qps; i++)
		prepare_link(&side.links[i]);
	exchange_remotes();
	side.in_round = true;
	if (options.plan.unreliable) {
		/* Nobody waits for a receive. */
		for (i = 0; i < options.qps; i++)
			post_recvs(&side.links[i]);
		barrier("posted");
	}
	run_round();
	barrier("round");
	if (poll_all())
		fail("completions after the end of round %u", side.round);
	side.in_round = false;
	check_async_events();
	check_memory();
	barrier("memory");
}

static void run_rounds(void)
{
	int64_t end = now_ns() + options.seconds * NS_PER_S;
	bool mine, last;

	do {
		one_round();
		if (side.round == 0 && side.index == 0)
			note("started");
		side.round++;
		mine = (options.rounds && side.round >= options.rounds) ||
		       (options.seconds && now_ns() >= end);
		exchange(&mine, &last, sizeof(mine));
	} while (!mine && !last);
}

/* ---- setting up -------------------------------------------------------- */

/* The path MTU of both, which the schedule depends on. */
static void agree_on_mtu(void)
{
	enum ibv_mtu theirs;

	if (!options.mtu) {
		exchange(&side.end->port.active_mtu, &theirs, sizeof(theirs));
		options.mtu = theirs < side.end->port.active_mtu ? theirs :
			      side.end->port.active_mtu;
	}
	options.plan.mtu = options.mtu;
	parse_sizes(128u << options.mtu);
}

static uint32_t choose_psn(struct link *link)
{
	if (options.psn >= 0)
		return options.psn;
	if (rng_one_in(&link->rng, 2))
		return (0xffffff - rng_below(&link->rng, 64)) & 0xffffff;
	return rng_below(&link->rng, 1 << 24);
}

static void create_cq(void)
{
	int entries = options.qps * (options.depth + MAX_OPS);

	side.channel = ibv_create_comp_channel(side.end->context);
	require(side.channel, "ibv_create_comp_channel: %s", strerror(errno));
	require_sys(fcntl(side.channel->fd, F_SETFL, O_NONBLOCK));
	if (entries > side.end->attr.max_cqe)
		entries = side.end->attr.max_cqe;
	side.cq = ibv_create_cq(side.end->context, entries, NULL, side.channel, 0);
	require(side.cq, "ibv_create_cq: %s", strerror(errno));
}

static struct ibv_srq *create_srq(void)
{
	struct ibv_srq_init_attr init = {
		.attr = {
			.max_wr = options.plan.cap.max_recv_wr,
			.max_sge = options.plan.cap.max_recv_sge,
		},
	};
	struct ibv_srq *srq = ibv_create_srq(side.end->pd, &init);

	require(srq, "ibv_create_srq: %s", strerror(errno));
	return srq;
}

static void create_link(struct link *link, unsigned int number)
{
	static const struct { const char *name; int access; } regions[REGIONS] = {
		[SOURCE] = { "the source of sends", 0 },
		[FETCHED] = { "the destination of READs", IBV_ACCESS_LOCAL_WRITE },
		[RECEIVED] = { "the receive buffers", IBV_ACCESS_LOCAL_WRITE },
		[TARGET] = { "the target of WRITEs", IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE },
		[SHOWN] = { "the source of READs", IBV_ACCESS_REMOTE_READ },
		[COUNTED] = { "the target of atomics", IBV_ACCESS_LOCAL_WRITE |
			      IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_ATOMIC },
	};
	struct ibv_qp_init_attr_ex init = {
		.comp_mask = IBV_QP_INIT_ATTR_PD, .pd = side.end->pd,
		.cap = options.plan.cap,
		.qp_type = options.datagrams ? IBV_QPT_UD :
			   options.plan.unreliable ? IBV_QPT_UC : IBV_QPT_RC,
		.send_cq = side.cq, .recv_cq = side.cq,
	};
	int i;

	if (options.shared)
		init.srq = link->srq = create_srq();
	if (options.datagrams)
		buffer_create(&link->grh, side.end, GRH_BYTES, IBV_ACCESS_LOCAL_WRITE);

	link->number = number;
	link->rng.state = mix(options.menu.seed, 1000 + number * 2 + side.index);
	planner_init(&link->out_planner, &options.menu, number * 2 + side.index);
	planner_init(&link->in_planner, &options.menu, number * 2 + !side.index);
	for (i = 0; i < REGIONS; i++)
		region_init(&link->regions[i], regions[i].name, side.end->pd, regions[i].access,
			    options.memory, i == COUNTED ? sizeof(uint64_t) : 1);
	link->rc.end = side.end;
	link->rc.scq = link->rc.rcq = side.cq;
	link->rc.psn = choose_psn(link);
	if (options.menu.kinds[ATOMIC_WRITE]) {
		init.comp_mask |= IBV_QP_INIT_ATTR_SEND_OPS_FLAGS;
		init.send_ops_flags = IBV_QP_EX_WITH_ATOMIC_WRITE;
	}
	link->rc.qp = ibv_create_qp_ex(side.end->context, &init);
	require(link->rc.qp, "ibv_create_qp: %s", strerror(errno));
}

/* Nothing connects those of datagrams, but that they know of each other. */
static void introduce(struct link *link, const struct rc_address *peer)
{
	struct ibv_ah_attr to = {
		.is_global = 1, .port_num = PORT,
		.grh = {
			.dgid = peer->gid, .sgid_index = side.end->gid_index,
			.hop_limit = options.plan.hop_limit,
		},
	};
	struct ibv_qp_attr attr = {
		.qp_state = IBV_QPS_INIT, .port_num = PORT, .qkey = QKEY, .sq_psn = link->rc.psn,
	};

	require_ok(ibv_modify_qp(link->rc.qp, &attr, IBV_QP_STATE | IBV_QP_PKEY_INDEX |
				 IBV_QP_PORT | IBV_QP_QKEY));
	attr.qp_state = IBV_QPS_RTR;
	require_ok(ibv_modify_qp(link->rc.qp, &attr, IBV_QP_STATE));
	attr.qp_state = IBV_QPS_RTS;
	require_ok(ibv_modify_qp(link->rc.qp, &attr, IBV_QP_STATE | IBV_QP_SQ_PSN));
	link->ah = ibv_create_ah(side.end->pd, &to);
	require(link->ah, "ibv_create_ah: %s", strerror(errno));
	link->remote_qpn = peer->qpn;
}

static void connect_links(void)
{
	struct rc_address mine[MAX_QPS], theirs[MAX_QPS];
	unsigned int i;

	for (i = 0; i < options.qps; i++)
		mine[i] = rc_address(&side.links[i].rc);
	exchange(mine, theirs, options.qps * sizeof(*mine));
	for (i = 0; i < options.qps; i++) {
		if (options.datagrams)
			introduce(&side.links[i], &theirs[i]);
		else
			rc_connect(&side.links[i].rc, &theirs[i], &options.plan);
	}
	barrier("connected");
}

static unsigned int min_sge(int max)
{
	return max < MAX_SGE ? max : MAX_SGE;
}

static void set_up(void)
{
	struct ibv_qp_cap *cap = &options.plan.cap;
	unsigned int i;

	side.end->gid_index = options.gid_index[side.index];
	end_enter(side.end);
	end_open(side.end, options.family);
	agree_on_mtu();
	cap->max_send_wr = options.depth;
	cap->max_recv_wr = MAX_OPS;
	cap->max_send_sge = min_sge(side.end->attr.max_sge);
	cap->max_recv_sge = options.shared ? min_sge(side.end->attr.max_srq_sge) :
			    cap->max_send_sge;
	cap->max_inline_data = INLINE_MAX;
	create_cq();
	side.links = xcalloc(options.qps, sizeof(*side.links));
	send_layouts = xcalloc(options.qps, sizeof(*send_layouts));
	recv_layouts = xcalloc(options.qps, sizeof(*recv_layouts));
	for (i = 0; i < options.qps; i++)
		create_link(&side.links[i], i);
	connect_links();
}

static void tear_down(void)
{
	struct link *link;
	unsigned int i;
	int region;

	for (i = 0; i < options.qps; i++) {
		link = &side.links[i];
		require_ok(ibv_destroy_qp(link->rc.qp));
		if (link->srq)
			require_ok(ibv_destroy_srq(link->srq));
		if (link->ah) {
			require_ok(ibv_destroy_ah(link->ah));
			buffer_destroy(&link->grh);
		}
		for (region = 0; region < REGIONS; region++)
			region_destroy(&link->regions[region]);
	}
	ibv_ack_cq_events(side.cq, side.cq_events);
	require_ok(ibv_destroy_cq(side.cq));
	require_ok(ibv_destroy_comp_channel(side.channel));
	end_close(side.end);
}

static _Noreturn void run_side(int index, int peer)
{
	prctl(PR_SET_PDEATHSIG, SIGKILL);
	side.index = index;
	side.peer = peer;
	side.end = &ends[index];
	progress();
	set_up();
	run_rounds();
	tear_down();
	note("side %c: %u rounds, %llu operations, %llu bytes", 'a' + index, side.round,
	     (unsigned long long)side.ops, (unsigned long long)side.bytes);
	barrier("over");
	_exit(0);
}

/* ---- one side on a machine of its own ---------------------------------- */

#define MEETING_PORT 18515

static struct sockaddr_in meeting_place(void)
{
	struct sockaddr_in place = { .sin_family = AF_INET, .sin_port = htons(MEETING_PORT) };

	if (inet_pton(AF_INET, options.meeting, &place.sin_addr) != 1)
		die_of_usage(options.meeting);
	return place;
}

static int tcp_socket(void)
{
	int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0), one = 1;

	require_sys(fd);
	require_sys(setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &one, sizeof(one)));
	return fd;
}

static int connect_to_peer(void)
{
	struct sockaddr_in place = meeting_place();
	int fd = tcp_socket();

	require_sys(connect(fd, (struct sockaddr *)&place, sizeof(place)));
	return fd;
}

static int accept_peer(void)
{
	struct sockaddr_in place = meeting_place();
	int listener = tcp_socket(), fd;

	require_sys(bind(listener, (struct sockaddr *)&place, sizeof(place)));
	require_sys(listen(listener, 1));
	fd = accept4(listener, NULL, NULL, SOCK_CLOEXEC);
	require_sys(fd);
	close(listener);
	return fd;
}

/* Both go by the seed of a. */
static _Noreturn void run_alone(void)
{
	int one = 1;

	side.peer = options.side ? accept_peer() : connect_to_peer();
	require_sys(setsockopt(side.peer, IPPROTO_TCP, TCP_NODELAY, &one, sizeof(one)));
	progress();
	if (options.side)
		hear(&options.menu.seed, sizeof(options.menu.seed));
	else
		tell(&options.menu.seed, sizeof(options.menu.seed));
	note("seed 0x%llx", (unsigned long long)options.menu.seed);
	run_side(options.side, side.peer);
}

/* ---- both sides -------------------------------------------------------- */

static pid_t start_side(int index, int sockets[2])
{
	pid_t pid = fork();

	require_sys(pid);
	if (pid == 0) {
		close(sockets[!index]);
		run_side(index, sockets[index]);
	}
	return pid;
}

/* A side that went because the other one did has nothing to say. */
static int worse(int status, int other)
{
	if (status == STATUS_WRONG || other == STATUS_WRONG)
		return STATUS_WRONG;
	if (status == STATUS_BROKEN || other == STATUS_BROKEN)
		return STATUS_BROKEN;
	return status ? status : other;
}

int main(int argc, char **argv)
{
	int sockets[2], i, ended, status = 0;
	pid_t pids[2];

	setvbuf(stdout, NULL, _IOLBF, 0);
	parse_options(argc, argv);
	if (options.side >= 0)
		run_alone();
	note("seed 0x%llx", (unsigned long long)options.menu.seed);
	require_sys(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, sockets));
	for (i = 0; i < 2; i++)
		pids[i] = start_side(i, sockets);
	close(sockets[0]);
	close(sockets[1]);
	note("pids %d %d", pids[0], pids[1]);
	for (i = 0; i < 2; i++) {
		require_sys(waitpid(pids[i], &ended, 0));
		if (WIFSIGNALED(ended))
			note("side %c was ended by signal %d", 'a' + i, WTERMSIG(ended));
		status = worse(status, WIFEXITED(ended) ? WEXITSTATUS(ended) : STATUS_WRONG);
	}
	/* Then the other one went without a reason. */
	return status == STATUS_PEER_GONE ? STATUS_WRONG : status;
}
