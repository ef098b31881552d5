// SPDX-License-Identifier: GPL-2.0
/*
 * What the kernel cannot give: each allocation and each copy from or to the process made to fail in
 * turn, during each verb.  /proc/thread-self/fail-nth lets the nth one of a thread fail, so that a
 * verb is called until it has been through without the failure coming.  A call that failed says so,
 * by an errno that fits; the same call then succeeds; and when all is undone, the device holds as
 * many objects as before.
 *
 * The caller has the kernel's failures ready: see failing.test.
 */
#include <fcntl.h>
#include <linux/netlink.h>
#include <rdma/rdma_netlink.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

#include "harness.h"
#include "raw.h"
#include "stream.h"
#include "ud.h"
#include "verbs.h"

#define QKEY 0x11111111
#define LENGTH (64 * 1024)
/* More chances to fail has no verb. */
#define MANY 5000

static const int all_access = REMOTE;
static struct rc_plan plan;

/* ---- the nth failure --------------------------------------------------- */

static int fail_nth = -1;

static void open_fail_nth(void)
{
	fail_nth = open("/proc/thread-self/fail-nth", O_RDWR | O_CLOEXEC);
	if (fail_nth < 0)
		skip("this kernel does not fail on demand: %s", strerror(errno));
	/* Memory that the program itself lacks would be a failure of its own. */
	require_sys(mlockall(MCL_CURRENT | MCL_FUTURE));
}

static void arm(unsigned int n)
{
	char text[16];
	int length = snprintf(text, sizeof(text), "%u", n);

	require(pwrite(fail_nth, text, length, 0) == length, "fail-nth: %s", strerror(errno));
}

/* Whether the failure has come.  If it has not, the copies of these calls may be what fails. */
static bool disarm(void)
{
	char text[16] = "";
	bool came = pread(fail_nth, text, sizeof(text) - 1, 0) > 0 && atoi(text) == 0;

	while (pwrite(fail_nth, "0", 1, 0) != 1)
		require(errno == EFAULT || errno == ENOMEM, "fail-nth: %s", strerror(errno));
	return came;
}

/* What the device holds. */
static void list_objects(char *list, size_t size)
{
	FILE *pipe;
	size_t used;

	fflush(NULL);
	pipe = popen("rdma resource show | grep -c .; rdma -d resource show | sed 's/^[0-9]*: //' | sort",
		     "r");
	require(pipe, "popen: %s", strerror(errno));
	used = fread(list, 1, size - 1, pipe);
	list[used] = 0;
	require(used > 0 && !pclose(pipe), "rdma resource show");
}

static bool fits(int err)
{
	return err == ENOMEM || err == EFAULT || err == ENOBUFS || err == EAGAIN;
}

struct verb {
	/* Each returns an errno, or 0.  Only the middle one may fail. */
	int (*prepare)(void);
	int (*call)(void);
	int (*undo)(void);
	bool any_errno;		/* the library makes one of its own of it */
	bool takes_away;	/* it may have done so before it failed */
	unsigned int step;	/* for what takes seconds: one in so many, from a random one on */
};

/* One call, the nth chance of which fails: whether there was one. */
static bool try_nth(const struct verb *verb, unsigned int n, unsigned int *errors)
{
	bool came;
	int err;

	if (verb->prepare)
		require_ok(verb->prepare());
	arm(n);
	err = verb->call();
	came = disarm();
	if (err) {
		require(came, "without a failure: %s", strerror(err));
		require(verb->any_errno || fits(err), "failure %u: %s", n, strerror(err));
		(*errors)++;
		err = verb->call();
		require(!err || (verb->takes_away && (err == ENOENT || err == EINVAL)),
			"after failure %u: %s", n, strerror(err));
	}
	if (verb->undo)
		require_ok(verb->undo());
	return came;
}

static void try_all(const struct verb *verb)
{
	static char before[65536], after[65536];
	struct rng rng = { .state = random_seed() };
	unsigned int step = verb->step ? verb->step : 1, n, errors = 0;

	list_objects(before, sizeof(before));
	for (n = 1 + rng_below(&rng, step); try_nth(verb, n, &errors); n += step)
		require(n < MANY, "no end of chances to fail");
	list_objects(after, sizeof(after));
	require(!strcmp(before, after), "before:\n%safter:\n%s", before, after);
	note("%u chances to fail, %u errors", n - 1, errors);
	require(n > 1, "nothing could fail");
}

static void set_up(void)
{
	name_ends_from_environment();
	open_ends();
	plan = default_plan;
	open_fail_nth();
}

#define VERB(name, ...)						\
	TEST(name)						\
	{							\
		set_up();					\
		try_all(&(const struct verb){ __VA_ARGS__ });	\
	}

static int made(const void *object)
{
	return object ? 0 : errno ? errno : EIO;
}

/* ---- devices and protection domains ------------------------------------ */

static struct ibv_context *context;

static int call_open_device(void)
{
	errno = 0;
	context = ibv_open_device(ends[0].context->device);
	return made(context);
}

static int call_close_device(void)
{
	return ibv_close_device(context);
}

VERB(open_device, .call = call_open_device, .undo = call_close_device, .any_errno = true)

static int call_query_device(void)
{
	struct ibv_device_attr_ex attr;

	return ibv_query_device_ex(ends[0].context, NULL, &attr);
}

VERB(query_device, .call = call_query_device)

static int call_query_port(void)
{
	struct ibv_port_attr attr;

	return ibv_query_port(ends[0].context, PORT, &attr);
}

VERB(query_port, .call = call_query_port)

static int call_query_gid_table(void)
{
	struct ibv_gid_entry entries[16];
	ssize_t count = ibv_query_gid_table(ends[0].context, entries, 16, 0);

	return count < 0 ? -count : 0;
}

VERB(query_gid_table, .call = call_query_gid_table)

static struct ibv_pd *pd;

static int call_alloc_pd(void)
{
	pd = ibv_alloc_pd(ends[0].context);
	return made(pd);
}

static int call_dealloc_pd(void)
{
	return ibv_dealloc_pd(pd);
}

VERB(alloc_pd, .call = call_alloc_pd, .undo = call_dealloc_pd)
VERB(dealloc_pd, .prepare = call_alloc_pd, .call = call_dealloc_pd, .takes_away = true)

/* ---- memory ------------------------------------------------------------ */

static uint8_t memory[4 * LENGTH] __attribute__((aligned(4096)));
static struct ibv_mr *mr;
static int mr_access;

static int call_reg_mr(void)
{
	mr = ibv_reg_mr(ends[0].pd, memory, sizeof(memory), all_access | mr_access);
	return made(mr);
}

static int call_reg_mr_on_demand(void)
{
	mr_access = IBV_ACCESS_ON_DEMAND;
	return call_reg_mr();
}

static int call_reg_mr_implicit(void)
{
	mr = ibv_reg_mr(ends[0].pd, NULL, SIZE_MAX, all_access | IBV_ACCESS_ON_DEMAND);
	return made(mr);
}

static int call_dereg_mr(void)
{
	return ibv_dereg_mr(mr);
}

VERB(reg_mr, .call = call_reg_mr, .undo = call_dereg_mr)
VERB(reg_mr_on_demand, .call = call_reg_mr_on_demand, .undo = call_dereg_mr)
VERB(reg_mr_implicit, .call = call_reg_mr_implicit, .undo = call_dereg_mr)
VERB(dereg_mr, .prepare = call_reg_mr, .call = call_dereg_mr, .takes_away = true)
VERB(dereg_mr_on_demand, .prepare = call_reg_mr_on_demand, .call = call_dereg_mr, .takes_away = true)

static int call_rereg_mr(void)
{
	return raw_rereg_mr(mr, IBV_REREG_MR_CHANGE_TRANSLATION | IBV_REREG_MR_CHANGE_ACCESS, NULL,
			    memory + 4096, 2 * LENGTH, IBV_ACCESS_LOCAL_WRITE);
}

VERB(rereg_mr, .prepare = call_reg_mr, .call = call_rereg_mr, .undo = call_dereg_mr)

static int call_advise_mr(void)
{
	struct ibv_sge sge = { (uintptr_t)memory, sizeof(memory), mr->lkey };

	return advise(ends[0].pd, IB_UVERBS_ADVISE_MR_ADVICE_PREFETCH_WRITE,
		      IB_UVERBS_ADVISE_MR_FLAG_FLUSH, &sge, 1);
}

VERB(advise_mr, .prepare = call_reg_mr_on_demand, .call = call_advise_mr, .undo = call_dereg_mr)

static struct raw_mr raw;
static uint8_t *shared;
static int dmabuf;

static int call_reg_dmabuf_mr(void)
{
	return reg_dmabuf(ends[0].pd, dmabuf, 0, LENGTH, 0, all_access, &raw);
}

static int call_dereg_dmabuf_mr(void)
{
	return dereg_raw(ends[0].pd, &raw);
}

TEST(reg_dmabuf_mr)
{
	set_up();
	dmabuf = make_dmabuf(LENGTH, &shared);
	/* The exporter has an errno of its own for it. */
	try_all(&(const struct verb){
		.call = call_reg_dmabuf_mr, .undo = call_dereg_dmabuf_mr, .any_errno = true,
	});
	try_all(&(const struct verb){
		.prepare = call_reg_dmabuf_mr, .call = call_dereg_dmabuf_mr, .takes_away = true,
	});
}

static struct ibv_mw *mw;

static int call_alloc_mw(void)
{
	mw = ibv_alloc_mw(ends[0].pd, IBV_MW_TYPE_2);
	return made(mw);
}

static int call_dealloc_mw(void)
{
	return ibv_dealloc_mw(mw);
}

VERB(alloc_mw, .call = call_alloc_mw, .undo = call_dealloc_mw)
VERB(dealloc_mw, .prepare = call_alloc_mw, .call = call_dealloc_mw, .takes_away = true)

/* ---- queues ------------------------------------------------------------ */

static struct ibv_comp_channel *channel;
static struct ibv_cq *cq;

static int call_create_comp_channel(void)
{
	channel = ibv_create_comp_channel(ends[0].context);
	return made(channel);
}

static int call_destroy_comp_channel(void)
{
	int err = ibv_destroy_comp_channel(channel);

	channel = NULL;
	return err;
}

VERB(create_comp_channel, .call = call_create_comp_channel, .undo = call_destroy_comp_channel)

static int call_create_cq(void)
{
	cq = ibv_create_cq(ends[0].context, 100, NULL, channel, 0);
	return made(cq);
}

static int call_destroy_cq(void)
{
	return ibv_destroy_cq(cq);
}

static int make_channel_cq(void)
{
	require_ok(call_create_comp_channel());
	return call_create_cq();
}

static int take_channel_cq(void)
{
	require_ok(call_destroy_cq());
	return call_destroy_comp_channel();
}

VERB(create_cq, .call = call_create_cq, .undo = call_destroy_cq)
VERB(destroy_cq, .prepare = call_create_cq, .call = call_destroy_cq, .takes_away = true)

static int call_resize_cq(void)
{
	return ibv_resize_cq(cq, 1000);
}

static int call_req_notify_cq(void)
{
	return ibv_req_notify_cq(cq, 0);
}

VERB(resize_cq, .prepare = call_create_cq, .call = call_resize_cq, .undo = call_destroy_cq)
VERB(req_notify_cq, .prepare = make_channel_cq, .call = call_req_notify_cq, .undo = take_channel_cq)

static struct ibv_srq *srq;

static int call_create_srq(void)
{
	struct ibv_srq_init_attr init = { .attr = { .max_wr = 100, .max_sge = 2 } };

	srq = ibv_create_srq(ends[0].pd, &init);
	return made(srq);
}

static int call_destroy_srq(void)
{
	return ibv_destroy_srq(srq);
}

static int call_resize_srq(void)
{
	struct ibv_srq_attr attr = { .max_wr = 1000 };

	return ibv_modify_srq(srq, &attr, IBV_SRQ_MAX_WR);
}

static int call_query_srq(void)
{
	struct ibv_srq_attr attr;

	return ibv_query_srq(srq, &attr);
}

VERB(create_srq, .call = call_create_srq, .undo = call_destroy_srq)
VERB(destroy_srq, .prepare = call_create_srq, .call = call_destroy_srq, .takes_away = true)
VERB(resize_srq, .prepare = call_create_srq, .call = call_resize_srq, .undo = call_destroy_srq)
VERB(query_srq, .prepare = call_create_srq, .call = call_query_srq, .undo = call_destroy_srq)

/* ---- queue pairs ------------------------------------------------------- */

static struct rc_pair pair;
static struct ibv_qp *qp;
static enum ibv_qp_type type;

static int call_create_qp(void)
{
	struct ibv_qp_init_attr init = {
		.send_cq = cq, .recv_cq = cq, .cap = default_plan.cap, .qp_type = type,
	};

	qp = ibv_create_qp(ends[0].pd, &init);
	return made(qp);
}

static int call_destroy_qp(void)
{
	return ibv_destroy_qp(qp);
}

static void try_qps(int (*prepare)(void), int (*call)(void), int (*undo)(void), bool takes_away)
{
	static const enum ibv_qp_type types[] = { IBV_QPT_RC, IBV_QPT_UC, IBV_QPT_UD };
	unsigned int i;

	set_up();
	for (i = 0; i < ARRAY_SIZE(types); i++) {
		type = types[i];
		require_ok(call_create_cq());
		try_all(&(const struct verb){
			.prepare = prepare, .call = call, .undo = undo, .takes_away = takes_away,
		});
		require_ok(call_destroy_cq());
	}
}

TEST(create_qp)
{
	try_qps(NULL, call_create_qp, call_destroy_qp, false);
}

TEST(destroy_qp)
{
	try_qps(call_create_qp, call_destroy_qp, NULL, true);
}

static int call_query_qp(void)
{
	struct ibv_qp_init_attr init;
	struct ibv_qp_attr attr;

	return ibv_query_qp(qp, &attr, IBV_QP_STATE, &init);
}

TEST(query_qp)
{
	try_qps(call_create_qp, call_query_qp, call_destroy_qp, false);
}

/* From RESET to RTS and to ERR, each step with its failures. */
static enum ibv_qp_state next;

static void pair_to(enum ibv_qp_state state)
{
	static const enum ibv_qp_state way[] = { IBV_QPS_INIT, IBV_QPS_RTR, IBV_QPS_RTS };
	struct rc_address peer = rc_address(&pair.b);
	unsigned int i;

	for (i = 0; i < ARRAY_SIZE(way) && way[i] <= state; i++)
		rc_modify(&pair.a, way[i], &peer, &plan);
}

static int make_pair(void)
{
	pair_create(&pair, &plan);
	if (next == IBV_QPS_ERR || next == IBV_QPS_SQD)
		pair_to(IBV_QPS_RTS);
	else
		pair_to(next - 1);
	return 0;
}

static int call_modify_qp(void)
{
	struct rc_address peer = rc_address(&pair.b);

	return rc_try_modify(&pair.a, next, &peer, &plan);
}

static int take_pair(void)
{
	pair_destroy(&pair);
	return 0;
}

TEST(modify_qp)
{
	static const enum ibv_qp_state states[] = {
		IBV_QPS_INIT, IBV_QPS_RTR, IBV_QPS_RTS, IBV_QPS_SQD, IBV_QPS_ERR,
	};
	unsigned int i;

	set_up();
	for (i = 0; i < ARRAY_SIZE(states); i++) {
		next = states[i];
		try_all(&(const struct verb){
			.prepare = make_pair, .call = call_modify_qp, .undo = take_pair,
		});
	}
}

/* ---- addresses --------------------------------------------------------- */

static struct ibv_ah *ah;

static int call_create_ah(void)
{
	struct ibv_ah_attr attr = {
		.is_global = 1, .port_num = PORT,
		.grh = { .dgid = ends[1].gid, .sgid_index = ends[0].gid_index, .hop_limit = 64 },
	};

	ah = ibv_create_ah(ends[0].pd, &attr);
	return made(ah);
}

static int call_destroy_ah(void)
{
	return ibv_destroy_ah(ah);
}

/* The library looks for the peer by itself. */
static void try_ahs(const struct verb *verb)
{
	set_up();
	end_enter(&ends[0]);
	try_all(verb);
}

TEST(create_ah)
{
	try_ahs(&(const struct verb){ .call = call_create_ah, .undo = call_destroy_ah, .any_errno = true });
}

TEST(destroy_ah)
{
	try_ahs(&(const struct verb){
		.prepare = call_create_ah, .call = call_destroy_ah, .takes_away = true,
	});
}

static struct rc datagrams;
static const union ibv_gid group = { .raw = { 0xff, 0x0e, [15] = 0x42 } };

static int call_attach_mcast(void)
{
	return ibv_attach_mcast(datagrams.qp, &group, 0);
}

static int call_detach_mcast(void)
{
	return ibv_detach_mcast(datagrams.qp, &group, 0);
}

TEST(multicast)
{
	set_up();
	ud_create(&datagrams, &ends[0], &plan.cap, plan.cqe);
	ud_start(&datagrams, QKEY);
	try_all(&(const struct verb){ .call = call_attach_mcast, .undo = call_detach_mcast });
	try_all(&(const struct verb){
		.prepare = call_attach_mcast, .call = call_detach_mcast, .takes_away = true,
	});
}

/* ---- work requests ----------------------------------------------------- */

static struct buffer mine, theirs;

/* The library has queued the work request before it asks the kernel to look. */
static bool post_nth(unsigned int n, enum ibv_wr_opcode opcode, struct ibv_sge *sge)
{
	bool came;
	int err;

	arm(n);
	err = try_post_send(&pair.a, n, opcode, IBV_SEND_SIGNALED, sge, (uintptr_t)theirs.bytes,
			    theirs.mr->rkey);
	came = disarm();
	if (!err)
		return came;
	require(came, "without a failure: %s", strerror(err));
	require(fits(err), "failure %u: %s", n, strerror(err));
	raw_doorbell(ends[0].context->cmd_fd, pair.a.qp->handle);
	return came;
}

/* Whatever fails while a message is sent: it arrives all the same. */
static void post_each(const char *what, enum ibv_wr_opcode opcode, uint32_t length)
{
	struct ibv_sge sge = buffer_sge(&mine, 0, length);
	const struct buffer *to = opcode == IBV_WR_RDMA_READ ? &mine : &theirs;
	const struct buffer *from = opcode == IBV_WR_RDMA_READ ? &theirs : &mine;
	struct ibv_sge into = buffer_sge(&theirs, 0, length);
	unsigned int n;
	bool came;

	for (n = 1;; n++) {
		stream_fill(from->bytes, length, n, 0);
		memset(to->bytes, 0, length);
		if (opcode == IBV_WR_SEND)
			post_recv(&pair.b, n, &into);
		came = post_nth(n, opcode, &sge);
		expect_wc(pair.a.scq, n, IBV_WC_SUCCESS, SOON_MS);
		if (opcode == IBV_WR_SEND)
			expect_wc(pair.b.rcq, n, IBV_WC_SUCCESS, SOON_MS);
		require(stream_compare(to->bytes, length, n, 0) == length, "wrong data");
		if (!came)
			break;
		require(n < MANY, "no end of chances to fail");
	}
	note("%s, %u bytes: %u chances to fail", what, length, n - 1);
	require(n > 1, "nothing could fail");
}

TEST(post_send_each)
{
	set_up();
	pair_open(&pair, &plan);
	buffer_create(&mine, &ends[0], LENGTH, IBV_ACCESS_LOCAL_WRITE);
	buffer_create(&theirs, &ends[1], LENGTH, all_access);
	post_each("SEND", IBV_WR_SEND, 64);
	post_each("SEND", IBV_WR_SEND, LENGTH);
	post_each("WRITE", IBV_WR_RDMA_WRITE, 64);
	post_each("WRITE", IBV_WR_RDMA_WRITE, LENGTH);
	post_each("READ", IBV_WR_RDMA_READ, 64);
	post_each("READ", IBV_WR_RDMA_READ, LENGTH);
	require(rc_state(&pair.a) == IBV_QPS_RTS && rc_state(&pair.b) == IBV_QPS_RTS, "states");
}

/* ---- links ------------------------------------------------------------- */

#define LINK "failing0"

static int link_socket;

static void add_attr(struct nlmsghdr *header, uint16_t id, const char *text)
{
	struct nlattr *attr = (void *)((char *)header + NLMSG_ALIGN(header->nlmsg_len));

	attr->nla_type = id;
	attr->nla_len = NLA_HDRLEN + strlen(text) + 1;
	strcpy((char *)attr + NLA_HDRLEN, text);
	header->nlmsg_len = NLMSG_ALIGN(header->nlmsg_len) + NLA_ALIGN(attr->nla_len);
}

static bool link_is_there(void)
{
	return !access("/sys/class/infiniband/" LINK, F_OK);
}

/* The answer may be what failed: a look at the device tells. */
static int call_link_add(void)
{
	union {
		struct nlmsghdr header;
		char bytes[512];
	} message = {
		.header = {
			.nlmsg_len = NLMSG_HDRLEN, .nlmsg_flags = NLM_F_REQUEST | NLM_F_ACK,
			.nlmsg_type = RDMA_NL_GET_TYPE(RDMA_NL_NLDEV, RDMA_NLDEV_CMD_NEWLINK),
		},
	};

	add_attr(&message.header, RDMA_NLDEV_ATTR_DEV_NAME, LINK);
	add_attr(&message.header, RDMA_NLDEV_ATTR_NDEV_NAME, "spare");
	add_attr(&message.header, RDMA_NLDEV_ATTR_LINK_TYPE, getenv("DRIVER"));
	if (send(link_socket, &message, message.header.nlmsg_len, 0) < 0)
		return errno;
	return link_is_there() ? 0 : ENOMEM;
}

static int open_link_socket(void)
{
	link_socket = socket(AF_NETLINK, SOCK_RAW | SOCK_CLOEXEC, NETLINK_RDMA);
	return link_socket < 0 ? errno : 0;
}

static int take_link(void)
{
	require(link_is_there(), "there is no link");
	shell("rdma link delete " LINK);
	close(link_socket);
	return 0;
}

TEST(link_add)
{
	name_ends_from_environment();
	open_fail_nth();
	end_enter(&ends[0]);
	shell("ip link add spare type dummy && ip link set spare up");
	try_all(&(const struct verb){
		.prepare = open_link_socket, .call = call_link_add, .undo = take_link, .step = 16,
	});
	shell("ip link delete spare");
}

TEST_HARNESS_MAIN
