// SPDX-License-Identifier: GPL-2.0
/*
 * A process that calls the driver as no library would: wrong offsets to map, commands of
 * every length, forged pointers and handles, and random ones that are nearly right.  Each
 * call either does what it says or fails with an errno that tells why; nothing is written
 * beyond the room for the response, and what is made is all that is there.
 *
 * SEED=... repeats the random ones.
 */
#include <fcntl.h>
#include <rdma/ib_user_ioctl_cmds.h>
#include <rdma/ib_user_ioctl_verbs.h>
#include <rdma/rdma_user_ioctl_cmds.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "harness.h"
#include "raw.h"
#include "rc.h"

#define BOTH (PROT_READ | PROT_WRITE)

static int fd;			/* of the device at end a */
static uint8_t *memory;		/* to be registered */
#define MEMORY (64 * PAGE)

/* ---- commands ---------------------------------------------------------- */

enum type { NONE, PD, MR, MW, CQ, QP, SRQ, AH, TYPES };

/* Objects that commands may name. */
static uint32_t handles[TYPES];

/* A command: what the core reads of it, and what it and the driver write in response. */
struct call {
	struct ib_uverbs_cmd_hdr header;
	union {
		uint64_t response;	/* where to, if `core` or `driver` */
		uint32_t words[200];
		struct ib_uverbs_alloc_pd alloc_pd;
		struct ib_uverbs_reg_mr reg_mr;
		struct ib_uverbs_rereg_mr rereg_mr;
		struct ib_uverbs_alloc_mw alloc_mw;
		struct ib_uverbs_create_cq create_cq;
		struct ib_uverbs_resize_cq resize_cq;
		struct ib_uverbs_create_qp create_qp;
		struct ib_uverbs_modify_qp modify_qp;
		struct ib_uverbs_query_qp query_qp;
		struct ib_uverbs_create_srq create_srq;
		struct ib_uverbs_modify_srq modify_srq;
		struct ib_uverbs_query_srq query_srq;
		struct ib_uverbs_create_ah create_ah;
		struct ib_uverbs_attach_mcast mcast;
		struct ib_uverbs_post_send post_send;
		struct ib_uverbs_post_recv post_recv;
		struct ib_uverbs_poll_cq poll_cq;
		struct ib_uverbs_req_notify_cq req_notify_cq;
		struct ib_uverbs_destroy_qp destroy;
	};
};

static void alloc_pd(struct call *call) { (void)call; }

static void reg_mr(struct call *call)
{
	call->reg_mr.start = call->reg_mr.hca_va = (uintptr_t)memory;
	call->reg_mr.length = MEMORY;
	call->reg_mr.pd_handle = handles[PD];
	call->reg_mr.access_flags = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_MW_BIND;
}

static void rereg_mr(struct call *call)
{
	call->rereg_mr.mr_handle = handles[MR];
	call->rereg_mr.flags = IBV_REREG_MR_CHANGE_ACCESS;
	call->rereg_mr.access_flags = IBV_ACCESS_LOCAL_WRITE;
	call->rereg_mr.pd_handle = handles[PD];
}

static void alloc_mw(struct call *call)
{
	call->alloc_mw.pd_handle = handles[PD];
	call->alloc_mw.mw_type = IBV_MW_TYPE_1;
}

static void create_cq(struct call *call)
{
	call->create_cq.cqe = 10;
	call->create_cq.comp_channel = -1;
}

static void resize_cq(struct call *call)
{
	call->resize_cq.cq_handle = handles[CQ];
	call->resize_cq.cqe = 100;
}

static void create_qp(struct call *call)
{
	call->create_qp.pd_handle = handles[PD];
	call->create_qp.send_cq_handle = call->create_qp.recv_cq_handle = handles[CQ];
	call->create_qp.max_send_wr = call->create_qp.max_recv_wr = 4;
	call->create_qp.max_send_sge = call->create_qp.max_recv_sge = 2;
	call->create_qp.qp_type = IBV_QPT_RC;
}

static void modify_qp(struct call *call)
{
	call->modify_qp.qp_handle = handles[QP];
	call->modify_qp.attr_mask = IBV_QP_STATE;
	call->modify_qp.qp_state = IBV_QPS_RESET;
}

static void query_qp(struct call *call)
{
	call->query_qp.qp_handle = handles[QP];
	call->query_qp.attr_mask = IBV_QP_STATE;
}

static void create_srq(struct call *call)
{
	call->create_srq.pd_handle = handles[PD];
	call->create_srq.max_wr = 10;
	call->create_srq.max_sge = 2;
}

static struct mminfo srq_map;

/* The driver reads where to respond to. */
static void modify_srq(struct call *call)
{
	uint64_t place = (uintptr_t)&srq_map;

	call->modify_srq.srq_handle = handles[SRQ];
	call->modify_srq.attr_mask = IBV_SRQ_MAX_WR;
	call->modify_srq.max_wr = 20;
	memcpy(call->modify_srq.driver_data, &place, sizeof(place));
}

static void query_srq(struct call *call) { call->query_srq.srq_handle = handles[SRQ]; }

static void create_ah(struct call *call)
{
	call->create_ah.pd_handle = handles[PD];
	call->create_ah.attr.is_global = 1;
	call->create_ah.attr.port_num = PORT;
	call->create_ah.attr.grh.sgid_index = ends[0].gid_index;
	call->create_ah.attr.grh.hop_limit = 1;
	memcpy(call->create_ah.attr.grh.dgid, &ends[1].gid, 16);
}

/* The group of a UD queue pair, which nobody has here: refused, unless it is made one. */
static void mcast(struct call *call)
{
	static const uint8_t gid[16] = { [10] = 0xff, 0xff, 239, 1, 2, 3 };

	memcpy(call->mcast.gid, gid, sizeof(gid));
	call->mcast.qp_handle = handles[QP];
}

static void send_requests(struct call *call)
{
	call->post_send.qp_handle = handles[QP];
	call->post_send.wqe_size = sizeof(struct ib_uverbs_send_wr);
}

static void recv_requests(struct call *call)
{
	call->post_recv.qp_handle = handles[QP];
	call->post_recv.wqe_size = sizeof(struct ib_uverbs_recv_wr);
}

static void srq_requests(struct call *call)
{
	recv_requests(call);
	call->post_recv.qp_handle = handles[SRQ];
}

static void poll_cq(struct call *call)
{
	call->poll_cq.cq_handle = handles[CQ];
	call->poll_cq.ne = 1;
}

static void req_notify(struct call *call) { call->req_notify_cq.cq_handle = handles[CQ]; }
static void destroy_cq(struct call *call) { call->destroy.qp_handle = handles[CQ]; }
static void destroy_qp(struct call *call) { call->destroy.qp_handle = handles[QP]; }
static void destroy_srq(struct call *call) { call->destroy.qp_handle = handles[SRQ]; }
static void destroy_ah(struct call *call) { call->words[0] = handles[AH]; }
static void dereg_mr(struct call *call) { call->words[0] = handles[MR]; }
static void dealloc_mw(struct call *call) { call->words[0] = handles[MW]; }
static void dealloc_pd(struct call *call) { call->words[0] = handles[PD]; }

#define COMMAND(name) IB_USER_VERBS_CMD_##name
#define OF(type) sizeof(struct ib_uverbs_##type)

static const struct verb {
	const char *name;
	uint32_t number;
	size_t size;			/* that the core reads */
	size_t core, driver;		/* bytes of the response */
	size_t input;			/* that the driver reads */
	void (*fill)(struct call *call);
	enum type makes, ends;
} verbs[] = {
	{ "alloc_pd", COMMAND(ALLOC_PD), 8, 4, 0, 0, alloc_pd, PD, NONE },
	{ "reg_mr", COMMAND(REG_MR), OF(reg_mr), 12, 0, 0, reg_mr, MR, NONE },
	{ "rereg_mr", COMMAND(REREG_MR), OF(rereg_mr), 8, 0, 0, rereg_mr, NONE, NONE },
	{ "alloc_mw", COMMAND(ALLOC_MW), 16, 8, 0, 0, alloc_mw, MW, NONE },
	{ "create_cq", COMMAND(CREATE_CQ), OF(create_cq), 8, 16, 0, create_cq, CQ, NONE },
	{ "resize_cq", COMMAND(RESIZE_CQ), OF(resize_cq), 8, 16, 0, resize_cq, NONE, NONE },
	{ "create_qp", COMMAND(CREATE_QP), OF(create_qp), 32, 32, 0, create_qp, QP, NONE },
	{ "modify_qp", COMMAND(MODIFY_QP), OF(modify_qp), 0, 0, 0, modify_qp, NONE, NONE },
	{ "query_qp", COMMAND(QUERY_QP), OF(query_qp), OF(query_qp_resp), 0, 0, query_qp, NONE,
	  NONE },
	{ "create_srq", COMMAND(CREATE_SRQ), OF(create_srq), 16, 24, 0, create_srq, SRQ, NONE },
	{ "modify_srq", COMMAND(MODIFY_SRQ), 16, 0, 0, 8, modify_srq, NONE, NONE },
	{ "query_srq", COMMAND(QUERY_SRQ), 16, 16, 0, 0, query_srq, NONE, NONE },
	{ "create_ah", COMMAND(CREATE_AH), OF(create_ah), 4, 8, 0, create_ah, AH, NONE },
	{ "attach_mcast", COMMAND(ATTACH_MCAST), OF(attach_mcast), 0, 0, 0, mcast, NONE, NONE },
	{ "detach_mcast", COMMAND(DETACH_MCAST), OF(attach_mcast), 0, 0, 0, mcast, NONE, NONE },
	{ "post_send", COMMAND(POST_SEND), 24, 4, 0, 0, send_requests, NONE, NONE },
	{ "post_recv", COMMAND(POST_RECV), 24, 4, 0, 0, recv_requests, NONE, NONE },
	{ "post_srq_recv", COMMAND(POST_SRQ_RECV), 24, 4, 0, 0, srq_requests, NONE, NONE },
	{ "poll_cq", COMMAND(POLL_CQ), 16, 8, 0, 0, poll_cq, NONE, NONE },
	{ "req_notify_cq", COMMAND(REQ_NOTIFY_CQ), 8, 0, 0, 0, req_notify, NONE, NONE },
	{ "destroy_cq", COMMAND(DESTROY_CQ), 16, 8, 0, 0, destroy_cq, NONE, CQ },
	{ "destroy_qp", COMMAND(DESTROY_QP), 16, 4, 0, 0, destroy_qp, NONE, QP },
	{ "destroy_srq", COMMAND(DESTROY_SRQ), 16, 4, 0, 0, destroy_srq, NONE, SRQ },
	{ "destroy_ah", COMMAND(DESTROY_AH), 4, 0, 0, 0, destroy_ah, NONE, AH },
	{ "dereg_mr", COMMAND(DEREG_MR), 4, 0, 0, 0, dereg_mr, NONE, MR },
	{ "dealloc_mw", COMMAND(DEALLOC_MW), 4, 0, 0, 0, dealloc_mw, NONE, MW },
	{ "dealloc_pd", COMMAND(DEALLOC_PD), 4, 0, 0, 0, dealloc_pd, NONE, PD },
};

static bool responds(const struct verb *verb)
{
	return verb->core || verb->driver;
}

static void fill(const struct verb *verb, struct call *call, void *response)
{
	memset(call, 0, sizeof(*call));
	verb->fill(call);
	if (responds(verb))
		call->response = (uintptr_t)response;
}

/* Errors that tell what is wrong. */
static void expect_clear(const char *what, int err)
{
	static const int clear[] = {
		0, EINVAL, ENOSPC, EFAULT, EOPNOTSUPP, ENOENT, EBADF, EBUSY, ENOMEM, EPROTO,
		EPROTONOSUPPORT, ENOTTY, EPERM, EACCES, E2BIG, ENETUNREACH, EHOSTUNREACH,
		EADDRNOTAVAIL, ENODEV, EAGAIN, EIO, EOVERFLOW, ENODATA, EEXIST, ERANGE,
		ETIMEDOUT, EMSGSIZE,
	};
	size_t i;

	for (i = 0; i < ARRAY_SIZE(clear); i++)
		if (err == clear[i])
			return;
	fail("%s: errno %d, %s", what, err, strerror(err));
}

static int send_call(const struct verb *verb, struct call *call, size_t in, size_t out)
{
	call->header = (struct ib_uverbs_cmd_hdr){
		.command = verb->number, .in_words = (sizeof(call->header) + in) / 4,
		.out_words = out / 4,
	};
	return write(fd, call, sizeof(call->header) + in) < 0 ? errno : 0;
}

static int try_call(const char *name, uint32_t *response)
{
	uint32_t unused[64];
	struct call call;
	size_t i;

	for (i = 0; strcmp(verbs[i].name, name); i++)
		;
	fill(&verbs[i], &call, response ? response : unused);
	return send_call(&verbs[i], &call, verbs[i].size + verbs[i].input,
			 verbs[i].core + verbs[i].driver);
}

/* One that is as it should be: returns the handle, of one that makes something. */
static uint32_t good_call(const char *name, uint32_t *response)
{
	uint32_t unused[64];
	int err;

	response = response ? response : unused;
	err = try_call(name, response);
	require(!err, "%s: %s", name, strerror(err));
	return response[0];
}

static int end_object(enum type type, uint32_t handle)
{
	switch (type) {
	case CQ: return raw_destroy_cq(fd, handle);
	case QP: return raw_destroy_qp(fd, handle);
	case SRQ: return raw_destroy_srq(fd, handle);
	case AH: return raw_destroy_ah(fd, handle);
	case MR: return raw_dereg_mr(fd, handle);
	case MW: return raw_dealloc_mw(fd, handle);
	case PD: return raw_dealloc_pd(fd, handle);
	default: return 0;
	}
}

static void make_all(void)
{
	handles[PD] = good_call("alloc_pd", NULL);
	handles[MR] = good_call("reg_mr", NULL);
	handles[MW] = good_call("alloc_mw", NULL);
	handles[CQ] = good_call("create_cq", NULL);
	handles[QP] = good_call("create_qp", NULL);
	handles[SRQ] = good_call("create_srq", NULL);
	handles[AH] = good_call("create_ah", NULL);
}

/* What nobody knows of would keep these from going. */
static void end_all(void)
{
	static const enum type order[] = { AH, QP, SRQ, CQ, MW, MR, PD };
	size_t i;
	int err;

	for (i = 0; i < ARRAY_SIZE(order); i++) {
		err = end_object(order[i], handles[order[i]]);
		require(!err, "destroying an object of type %d: %s", order[i], strerror(err));
	}
}

static void open_device(void)
{
	name_ends_from_environment();
	open_ends();
	fd = ends[0].context->cmd_fd;
	memory = mmap(NULL, MEMORY, BOTH, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	require(memory != MAP_FAILED, "mmap: %s", strerror(errno));
}

/* ---- mappings ---------------------------------------------------------- */

static void refused_mmap(int file, uint64_t offset, size_t size, int flags, const char *what)
{
	void *map = mmap(NULL, size, BOTH, flags, file, offset);

	require(map == MAP_FAILED, "offset 0x%llx, %zu bytes: %s was mapped",
		(unsigned long long)offset, size, what);
	expect_clear(what, errno);
}

/* All around an offset and its length, but that. */
static void refused_around(uint64_t offset, size_t size)
{
	refused_mmap(fd, offset, size, MAP_PRIVATE, "a copy");
	refused_mmap(fd, offset, size + PAGE, MAP_SHARED, "a page more");
	refused_mmap(fd, offset, 2 * size, MAP_SHARED, "twice as much");
	refused_mmap(fd, offset, 1 << 30, MAP_SHARED, "much more");
	if (size > PAGE)
		refused_mmap(fd, offset, size - PAGE, MAP_SHARED, "a page less");
	if (size > PAGE)
		refused_mmap(fd, offset + PAGE, size - PAGE, MAP_SHARED, "the second page");
	refused_mmap(fd, offset + (1ULL << 44), size, MAP_SHARED, "an offset of 33 bits of pages");
	refused_mmap(fd, offset + (1ULL << 62), size, MAP_SHARED, "an offset far away");
}

#define OFFSETS 200

/* Nothing is behind any offset but those of the rings that are not mapped yet. */
static void refused_everywhere(int file, const struct mminfo *maps, unsigned int count)
{
	uint64_t offset;
	unsigned int i;
	bool known;

	for (offset = 0; offset < OFFSETS * PAGE; offset += PAGE) {
		for (known = false, i = 0; i < count; i++)
			known |= offset == maps[i].offset;
		if (!known)
			refused_mmap(file, offset, PAGE, MAP_SHARED, "what is not there");
	}
	for (i = 0; i < count; i++)
		require(maps[i].offset < OFFSETS * PAGE, "offsets are elsewhere");
}

/* Another process, which has the same file open on its own. */
static void refused_to_others(const struct mminfo *maps, unsigned int count)
{
	int status, other;
	char path[128];
	unsigned int i;
	pid_t pid = fork();

	require_sys(pid);
	if (!pid) {
		/* Without a context at first, and with one that has nothing. */
		snprintf(path, sizeof(path), "/dev/infiniband/%s",
			 ends[0].context->device->dev_name);
		other = open(path, O_RDWR);
		require_sys(other);
		for (i = 0; i < count; i++)
			refused_mmap(other, maps[i].offset, maps[i].size, MAP_SHARED, "no context");
		end_open(&ends[0], FAMILY_ANY);
		for (i = 0; i < count; i++)
			refused_mmap(ends[0].context->cmd_fd, maps[i].offset, maps[i].size,
				     MAP_SHARED, "another process's ring");
		_exit(0);
	}
	require(waitpid(pid, &status, 0) == pid && status == 0, "the other process failed");
}

static void touch_all(uint8_t *map, size_t size)
{
	size_t at;

	for (at = 0; at < size; at += 64)
		((volatile uint8_t *)map)[at] ^= 0xff;
}

/* Takes the mapping to pieces in a child, which may die of it, by SIGBUS. */
static void dismantle(uint8_t *map, size_t size)
{
	uint8_t *moved;
	int status;
	pid_t pid = fork();

	require_sys(pid);
	if (!pid) {
		touch_all(map, size);
		moved = mremap(map, size, size + PAGE, MREMAP_MAYMOVE);
		require(moved == MAP_FAILED, "the mapping grew");
		moved = mremap(map, 0, size, MREMAP_MAYMOVE);
		note("once more: %s", moved == MAP_FAILED ? strerror(errno) : "mapped");
		if (moved != MAP_FAILED)
			touch_all(moved, size);
		mprotect(map, size, PROT_READ | PROT_EXEC);
		mprotect(map, size, BOTH);
		moved = mremap(map, size, PAGE, 0);
		mlock(map, PAGE);
		madvise(map, PAGE, MADV_HUGEPAGE);
		madvise(map, PAGE, MADV_COLD);
		madvise(map, PAGE, MADV_PAGEOUT);
		touch_all(map, PAGE);
		madvise(map, PAGE, MADV_DONTNEED);
		touch_all(map, PAGE);
		_exit(0);
	}
	require(waitpid(pid, &status, 0) == pid, "waitpid: %s", strerror(errno));
	require(status == 0 || (WIFSIGNALED(status) && WTERMSIG(status) == SIGBUS),
		"the child ended with status 0x%x", status);
}

/* A ring is mapped once, as a whole. */
static void map_once(const struct mminfo *map, bool executable)
{
	int protection = BOTH | (executable ? PROT_EXEC : 0);
	uint8_t *bytes;

	refused_around(map->offset, map->size);
	bytes = mmap(NULL, map->size, protection, MAP_SHARED, fd, map->offset);
	require(bytes != MAP_FAILED, "a ring of %u bytes: %s", map->size, strerror(errno));
	refused_around(map->offset, map->size);
	refused_mmap(fd, map->offset, map->size, MAP_SHARED, "it once more");
	dismantle(bytes, map->size);
	require_sys(munmap(bytes, map->size));
	refused_mmap(fd, map->offset, map->size, MAP_SHARED, "what was unmapped");
}

static struct mminfo map_at(const uint32_t *response, size_t at)
{
	struct mminfo map;

	memcpy(&map, (const uint8_t *)response + at, sizeof(map));
	return map;
}

TEST(mappings)
{
	uint32_t cq[64], qp[64], srq[64];
	struct mminfo maps[4] = { 0 };
	unsigned int i;

	open_device();
	refused_everywhere(fd, maps, 0);
	handles[PD] = good_call("alloc_pd", NULL);
	handles[CQ] = good_call("create_cq", cq);
	maps[0] = map_at(cq, 8);
	maps[1] = map_at((handles[QP] = good_call("create_qp", qp), qp), 32);
	maps[2] = map_at(qp, 48);
	handles[SRQ] = good_call("create_srq", srq);
	maps[3] = map_at(srq, 16);
	refused_everywhere(fd, maps, ARRAY_SIZE(maps));
	refused_to_others(maps, ARRAY_SIZE(maps));
	for (i = 0; i < ARRAY_SIZE(maps); i++)
		map_once(&maps[i], i % 2);
	refused_to_others(maps, ARRAY_SIZE(maps));
	require_ok(raw_destroy_qp(fd, handles[QP]));
	require_ok(raw_destroy_srq(fd, handles[SRQ]));
	require_ok(raw_destroy_cq(fd, handles[CQ]));
	refused_everywhere(fd, maps, 0);
	require_ok(raw_dealloc_pd(fd, handles[PD]));
}

/* What was not mapped goes with its object, and so does the ring that a larger one replaces. */
TEST(mappings_end)
{
	struct mminfo map, larger, none = {};
	uint32_t cq[64];
	unsigned int i;
	uint8_t *bytes;

	open_device();
	for (i = 0; i < 50; i++) {
		handles[CQ] = good_call("create_cq", cq);
		map = map_at(cq, 8);
		require_ok(raw_resize_cq(fd, handles[CQ], 1000, &larger));
		require(larger.offset != map.offset, "the same offset for another ring");
		refused_mmap(fd, map.offset, map.size, MAP_SHARED, "the ring before");
		bytes = MAP_FAILED;
		if (i % 2)
			bytes = mmap(NULL, larger.size, BOTH, MAP_SHARED, fd, larger.offset);
		require(i % 2 == 0 || bytes != MAP_FAILED, "mmap: %s", strerror(errno));
		require_ok(raw_destroy_cq(fd, handles[CQ]));
		refused_mmap(fd, larger.offset, larger.size, MAP_SHARED, "a ring that is gone");
		if (bytes != MAP_FAILED)
			touch_all(bytes, larger.size);
		/* Every other one stays mapped. */
		if (bytes != MAP_FAILED && i % 4 == 1)
			require_sys(munmap(bytes, larger.size));
	}
	refused_everywhere(fd, &none, 0);
}

/* ---- lengths ----------------------------------------------------------- */

#define ROOM 1024
#define UNTOUCHED 0xa5

static void check_room(const char *what, const uint8_t *room, size_t from)
{
	size_t i;

	for (i = from; i < ROOM; i++)
		require(room[i] == UNTOUCHED, "%s wrote at byte %zu of a response of %zu", what, i,
			from);
}

/* One call with these lengths; what it makes is destroyed. */
static bool call_with(const struct verb *verb, size_t in, size_t out, uint8_t filler)
{
	uint8_t room[ROOM];
	struct call call;
	uint32_t handle;
	char what[100];
	int err;

	memset(room, UNTOUCHED, sizeof(room));
	fill(verb, &call, room);
	if (in > verb->size + verb->input)
		memset((uint8_t *)call.words + verb->size + verb->input, filler,
		       in - verb->size - verb->input);
	snprintf(what, sizeof(what), "%s with %zu bytes in, %zu out", verb->name, in, out);
	err = send_call(verb, &call, in, out);
	expect_clear(what, err);
	check_room(what, room, responds(verb) ? out : 0);
	if (err || verb->makes == NONE)
		return !err;
	memcpy(&handle, room, sizeof(handle));
	err = end_object(verb->makes, handle);
	require(!err, "%s made what cannot be destroyed: %s", what, strerror(err));
	return true;
}

static void lengths_of(const struct verb *verb)
{
	size_t in = verb->size + verb->input, out = verb->core + verb->driver, i, o;
	unsigned int worked = 0;

	require(call_with(verb, in, out, 0), "%s fails", verb->name);
	for (i = 0; i <= in + 40; i += 4)
		worked += call_with(verb, i, out, 0);
	for (o = 0; o <= out + 40; o += 4)
		worked += call_with(verb, in, o, 0);
	for (i = 0; i <= in + 40; i += 4)
		for (o = 0; o <= out + 8; o += 4)
			worked += call_with(verb, i, o, 0xff);
	note("%s: %u of these lengths do", verb->name, worked);
}

/* The driver knows of no input: any but zeroes is refused, as it would mean something. */
static void refuses_input(const struct verb *verb)
{
	if (verb->input || !verb->driver)
		return;
	require(!call_with(verb, verb->size + 8, verb->core + verb->driver, 0xff),
		"%s takes what the driver does not know", verb->name);
}

static bool works_alone(const struct verb *verb)
{
	return verb->ends == NONE && verb->fill != mcast && verb->fill != poll_cq &&
	       verb->fill != recv_requests && verb->fill != srq_requests && verb->fill != send_requests;
}

TEST(lengths_by_write)
{
	size_t i;

	open_device();
	make_all();
	for (i = 0; i < ARRAY_SIZE(verbs); i++) {
		if (!works_alone(&verbs[i]))
			continue;
		lengths_of(&verbs[i]);
		refuses_input(&verbs[i]);
	}
	end_all();
}

/* ---- pointers ---------------------------------------------------------- */

TEST(pointers)
{
	uint8_t *pages = mmap(NULL, 4 * PAGE, BOTH, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	uint64_t places[] = {
		0, 1, 4096, 0x7fffffffffff, 0x800000000000, 0xffff888000000000,
		0xffffffff81000000, UINT64_MAX - 7, UINT64_MAX, (uintptr_t)pages + PAGE - 4,
		(uintptr_t)pages + PAGE - 20, (uintptr_t)pages + PAGE, (uintptr_t)pages + 3 * PAGE - 8,
	};
	unsigned int refused = 0;
	size_t i, place, size;
	struct call call;
	bool has_room;
	int err;

	require(pages != MAP_FAILED, "mmap: %s", strerror(errno));
	require_sys(mprotect(pages + PAGE, PAGE, PROT_READ));
	/* No hole, which somebody else may get; and what is behind is somebody's. */
	require_sys(mprotect(pages + 2 * PAGE, 2 * PAGE, PROT_NONE));
	open_device();
	make_all();
	for (i = 0; i < ARRAY_SIZE(verbs); i++) {
		if (!works_alone(&verbs[i]))
			continue;
		for (place = 0; place < ARRAY_SIZE(places); place++) {
			fill(&verbs[i], &call, NULL);
			if (responds(&verbs[i]))
				call.response = places[place];
			if (verbs[i].fill == modify_srq)
				memcpy(call.modify_srq.driver_data, &places[place], 8);
			err = send_call(&verbs[i], &call, verbs[i].size + verbs[i].input,
					verbs[i].core + verbs[i].driver);
			expect_clear(verbs[i].name, err);
			refused += err == EFAULT;
			size = verbs[i].fill == modify_srq ? sizeof(srq_map) :
							     verbs[i].core + verbs[i].driver;
			has_room = !size || (places[place] >= (uintptr_t)pages &&
					     places[place] + size <= (uintptr_t)pages + PAGE);
			require(err || has_room, "%s responded to 0x%llx", verbs[i].name,
				(unsigned long long)places[place]);
			if (!err && verbs[i].makes)
				require_ok(end_object(verbs[i].makes, *(uint32_t *)places[place]));
		}
	}
	note("%u times EFAULT", refused);
	require(refused > 100, "%u refusals are too few", refused);
	/* What was made and could not be told of is gone: nothing holds on to these. */
	end_all();
}

/* ---- handles ----------------------------------------------------------- */

/* Each command with each object of another type, and with what is no object. */
TEST(handles_of_other_types)
{
	static const uint32_t none[] = { 100, 1000, 0x7fffffff, 0x80000000, UINT32_MAX };
	uint32_t right[TYPES], wrong;
	unsigned int type, other, refused = 0;
	uint32_t response[64];
	size_t i;
	int err;

	open_device();
	make_all();
	memcpy(right, handles, sizeof(right));
	for (type = PD; type < TYPES; type++) {
		for (other = PD; other < TYPES + ARRAY_SIZE(none); other++) {
			if (other == type)
				continue;
			wrong = other < TYPES ? right[other] : none[other - TYPES];
			memcpy(handles, right, sizeof(handles));
			handles[type] = wrong;
			for (i = 0; i < ARRAY_SIZE(verbs); i++) {
				struct call before, after;

				fill(&verbs[i], &after, response);
				handles[type] = right[type];
				fill(&verbs[i], &before, response);
				handles[type] = wrong;
				/* Only those that name it. */
				if (!memcmp(&before, &after, sizeof(before)))
					continue;
				/* Without this flag of it a rereg names no PD. */
				if (verbs[i].fill == rereg_mr && type == PD)
					continue;
				err = try_call(verbs[i].name, response);
				require(err, "%s of an object of type %u did with one of type %u",
					verbs[i].name, type, other);
				expect_clear(verbs[i].name, err);
				refused++;
			}
		}
	}
	memcpy(handles, right, sizeof(handles));
	note("%u refusals", refused);
	require(refused > 200, "too few");
	end_all();
}

/* The handles of another process are numbers that mean nothing, or our own objects. */
TEST(handles_of_others)
{
	int to_child[2], to_parent[2], status;
	struct ib_uverbs_query_qp_resp found;
	uint32_t theirs[TYPES];
	unsigned int type;
	uint8_t byte;
	size_t i;
	pid_t pid;

	require_sys(pipe(to_child));
	require_sys(pipe(to_parent));
	pid = fork();
	require_sys(pid);
	open_device();
	if (!pid) {
		make_all();
		require(write(to_parent[1], handles, sizeof(handles)) == sizeof(handles), "pipe");
		require(read(to_child[0], &byte, 1) == 1, "pipe");
		good_call("query_qp", (uint32_t *)&found);
		require(found.qp_state == IBV_QPS_RESET, "its state has changed");
		end_all();
		_exit(0);
	}
	require(read(to_parent[0], theirs, sizeof(theirs)) == sizeof(theirs), "pipe");
	for (type = PD; type < TYPES; type++) {
		/* The PD of ends[0] is the one object here, and maybe a handle of the child's. */
		if (theirs[type] == ends[0].pd->handle)
			continue;
		require(end_object(type, theirs[type]), "an object of another process was destroyed");
	}
	memcpy(handles, theirs, sizeof(handles));
	handles[PD] = ends[0].pd->handle;
	for (i = 0; i < ARRAY_SIZE(verbs); i++) {
		uint32_t response[64];
		int err = try_call(verbs[i].name, response);

		expect_clear(verbs[i].name, err);
		if (!err && verbs[i].makes)
			require_ok(end_object(verbs[i].makes, response[0]));
	}
	require(write(to_child[1], "", 1) == 1, "pipe");
	require(waitpid(pid, &status, 0) == pid && status == 0, "the other process was disturbed");
}

/* ---- the other interface ----------------------------------------------- */

#define MAX_IOCTL_ATTRS 20

struct method {
	struct ib_uverbs_ioctl_hdr header;
	struct ib_uverbs_attr attrs[MAX_IOCTL_ATTRS];
};

static struct ib_uverbs_attr *add(struct method *method, uint16_t id, uint16_t len, uint64_t data)
{
	struct ib_uverbs_attr *attr = &method->attrs[method->header.num_attrs++];

	*attr = (struct ib_uverbs_attr){
		.attr_id = id, .len = len, .flags = UVERBS_ATTR_F_MANDATORY, .data = data,
	};
	return attr;
}

static int run_method(struct method *method)
{
	method->header.length = sizeof(method->header) +
				method->header.num_attrs * sizeof(method->attrs[0]);
	return ioctl(fd, RDMA_VERBS_IOCTL, &method->header) ? errno : 0;
}

static struct method method_of(uint16_t object, uint16_t id)
{
	return (struct method){
		.header = { .object_id = object, .method_id = id, .driver_id = RDMA_DRIVER_RXE },
	};
}

/* Where they respond to, with room for what is not expected. */
#define REPLY ((uintptr_t)memory + MEMORY / 2)

static struct method cq_method(void)
{
	struct method method = method_of(UVERBS_OBJECT_CQ, UVERBS_METHOD_CQ_CREATE);

	add(&method, UVERBS_ATTR_CREATE_CQ_HANDLE, 0, 0);
	add(&method, UVERBS_ATTR_CREATE_CQ_CQE, 4, 10);
	add(&method, UVERBS_ATTR_CREATE_CQ_USER_HANDLE, 8, 0);
	add(&method, UVERBS_ATTR_CREATE_CQ_COMP_VECTOR, 4, 0);
	add(&method, UVERBS_ATTR_CREATE_CQ_RESP_CQE, 4, REPLY);
	return method;
}

static struct method srq_method(void)
{
	struct method method = method_of(UVERBS_OBJECT_SRQ, UVERBS_METHOD_SRQ_CREATE);

	add(&method, UVERBS_ATTR_CREATE_SRQ_HANDLE, 0, 0);
	add(&method, UVERBS_ATTR_CREATE_SRQ_PD_HANDLE, 0, handles[PD]);
	add(&method, UVERBS_ATTR_CREATE_SRQ_USER_HANDLE, 8, 0);
	add(&method, UVERBS_ATTR_CREATE_SRQ_MAX_WR, 4, 10);
	add(&method, UVERBS_ATTR_CREATE_SRQ_MAX_SGE, 4, 2);
	add(&method, UVERBS_ATTR_CREATE_SRQ_LIMIT, 4, 0);
	add(&method, UVERBS_ATTR_CREATE_SRQ_TYPE, 8, IB_UVERBS_SRQT_BASIC);
	add(&method, UVERBS_ATTR_CREATE_SRQ_RESP_MAX_WR, 4, REPLY);
	add(&method, UVERBS_ATTR_CREATE_SRQ_RESP_MAX_SGE, 4, REPLY);
	return method;
}

static struct method qp_method(void)
{
	static const struct ib_uverbs_qp_cap cap = {
		.max_send_wr = 4, .max_recv_wr = 4, .max_send_sge = 1, .max_recv_sge = 1,
	};
	struct method method = method_of(UVERBS_OBJECT_QP, UVERBS_METHOD_QP_CREATE);

	add(&method, UVERBS_ATTR_CREATE_QP_HANDLE, 0, 0);
	add(&method, UVERBS_ATTR_CREATE_QP_PD_HANDLE, 0, handles[PD]);
	add(&method, UVERBS_ATTR_CREATE_QP_SEND_CQ_HANDLE, 0, handles[CQ]);
	add(&method, UVERBS_ATTR_CREATE_QP_RECV_CQ_HANDLE, 0, handles[CQ]);
	add(&method, UVERBS_ATTR_CREATE_QP_USER_HANDLE, 8, 0);
	add(&method, UVERBS_ATTR_CREATE_QP_CAP, sizeof(cap), (uintptr_t)&cap);
	add(&method, UVERBS_ATTR_CREATE_QP_TYPE, 8, IB_UVERBS_QPT_RC);
	add(&method, UVERBS_ATTR_CREATE_QP_RESP_CAP, sizeof(cap), REPLY);
	add(&method, UVERBS_ATTR_CREATE_QP_RESP_QP_NUM, 4, REPLY);
	return method;
}

/* Of newer headers. */
#define METHOD_REG_MR (UVERBS_METHOD_REG_DMABUF_MR + 1)
enum {
	REG_MR_HANDLE, REG_MR_PD_HANDLE, REG_MR_DMA_HANDLE, REG_MR_IOVA, REG_MR_ADDR, REG_MR_LENGTH,
	REG_MR_ACCESS_FLAGS, REG_MR_FD, REG_MR_FD_OFFSET, REG_MR_RESP_LKEY, REG_MR_RESP_RKEY,
};

static struct method reg_mr_method(void)
{
	struct method method = method_of(UVERBS_OBJECT_MR, METHOD_REG_MR);

	add(&method, REG_MR_HANDLE, 0, 0);
	add(&method, REG_MR_PD_HANDLE, 0, handles[PD]);
	add(&method, REG_MR_IOVA, 8, (uintptr_t)memory);
	add(&method, REG_MR_ADDR, 8, (uintptr_t)memory);
	add(&method, REG_MR_LENGTH, 8, MEMORY);
	add(&method, REG_MR_ACCESS_FLAGS, 4, IBV_ACCESS_LOCAL_WRITE);
	add(&method, REG_MR_RESP_LKEY, 4, REPLY);
	add(&method, REG_MR_RESP_RKEY, 4, REPLY);
	return method;
}

static struct method advise_method(void)
{
	static struct ibv_sge sge;
	struct method method = method_of(UVERBS_OBJECT_MR, UVERBS_METHOD_ADVISE_MR);

	sge = (struct ibv_sge){ .addr = (uintptr_t)memory, .length = MEMORY, .lkey = handles[MR] };
	add(&method, UVERBS_ATTR_ADVISE_MR_PD_HANDLE, 0, handles[PD]);
	add(&method, UVERBS_ATTR_ADVISE_MR_ADVICE, 8, IB_UVERBS_ADVISE_MR_ADVICE_PREFETCH);
	add(&method, UVERBS_ATTR_ADVISE_MR_FLAGS, 4, 1);
	add(&method, UVERBS_ATTR_ADVISE_MR_SGE_LIST, sizeof(sge), (uintptr_t)&sge);
	return method;
}

static const struct maker {
	const char *name;
	struct method (*make)(void);
	enum type makes;
	size_t driver;			/* bytes of the response */
} makers[] = {
	{ "a CQ", cq_method, CQ, 16 }, { "an SRQ", srq_method, SRQ, 24 },
	{ "a QP", qp_method, QP, 32 }, { "an MR", reg_mr_method, MR, 0 },
	{ "advice", advise_method, NONE, 0 },
};

static bool run_maker(const struct maker *maker, struct method *method, const char *what)
{
	int err = run_method(method);

	expect_clear(what, err);
	if (err)
		return false;
	if (maker->makes)
		require_ok(end_object(maker->makes, method->attrs[0].data));
	return true;
}

/* What the driver is given and gives, of every length: those of up to eight bytes are in place. */
TEST(lengths_by_ioctl)
{
	static const uint8_t zeroes[64], ones[64] = { [0 ... 63] = 0xff };
	const uint8_t *input;
	struct method method;
	uint8_t room[ROOM];
	unsigned int worked;
	size_t i, in, out;
	char what[100];

	open_device();
	make_all();
	for (i = 0; i < ARRAY_SIZE(makers); i++) {
		if (!makers[i].makes)
			continue;
		method = makers[i].make();
		worked = 0;
		require(makers[i].driver || run_maker(&makers[i], &method, makers[i].name),
			"%s is not made", makers[i].name);
		for (in = 0; in <= 48; in++) {
			for (out = 0; out <= makers[i].driver + 8; out++) {
				input = in % 3 ? zeroes : ones;
				snprintf(what, sizeof(what), "%s: %zu in, %zu out", makers[i].name, in,
					 out);
				memset(room, UNTOUCHED, sizeof(room));
				method = makers[i].make();
				add(&method, UVERBS_ATTR_UHW_IN, in,
				    in > 8 ? (uintptr_t)input : *(uint64_t *)input)->flags = 0;
				add(&method, UVERBS_ATTR_UHW_OUT, out, (uintptr_t)room)->flags = 0;
				worked += run_maker(&makers[i], &method, what);
				check_room(what, room, out);
			}
		}
		note("%s: %u of these lengths do", makers[i].name, worked);
		require(!makers[i].driver || worked, "%s is never made", makers[i].name);
	}
	end_all();
}

/* ---- random commands --------------------------------------------------- */

#define HANDLES 512

static struct rng rng;
static enum type type_of[HANDLES];
static unsigned int done[ARRAY_SIZE(verbs)], tried[ARRAY_SIZE(verbs)];

/* Where a queue pair was taken last. */
static enum ibv_qp_state state_of[HANDLES];

static uint32_t some_handle(enum type type)
{
	uint32_t handle, tries;

	for (tries = 0; tries < 2000; tries++) {
		handle = rng_below(&rng, HANDLES);
		if (type_of[handle] == type)
			return handle;
	}
	return rng_below(&rng, HANDLES);
}

static void choose_handles(void)
{
	unsigned int type;

	for (type = PD; type < TYPES; type++)
		handles[type] = rng_one_in(&rng, 30) ? wild_number(&rng) :
				rng_one_in(&rng, 20) ? rng_below(&rng, HANDLES) : some_handle(type);
}

/* The step that most come after, with what it needs; or any. */
static void vary_modify(struct ib_uverbs_modify_qp *modify)
{
	static const struct { enum ibv_qp_state to; uint32_t mask; } steps[] = {
		[IBV_QPS_RESET] = { IBV_QPS_INIT, IBV_QP_PKEY_INDEX | IBV_QP_PORT |
						  IBV_QP_ACCESS_FLAGS },
		[IBV_QPS_INIT] = { IBV_QPS_RTR, IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN |
						IBV_QP_RQ_PSN | IBV_QP_MAX_DEST_RD_ATOMIC |
						IBV_QP_MIN_RNR_TIMER },
		[IBV_QPS_RTR] = { IBV_QPS_RTS, IBV_QP_SQ_PSN | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT |
					       IBV_QP_RNR_RETRY | IBV_QP_MAX_QP_RD_ATOMIC },
		[IBV_QPS_RTS] = { IBV_QPS_SQD, 0 },
		[IBV_QPS_SQD] = { IBV_QPS_ERR, 0 },
		[IBV_QPS_SQE] = { IBV_QPS_ERR, 0 },
		[IBV_QPS_ERR] = { IBV_QPS_RESET, 0 },
	};
	uint32_t handle = modify->qp_handle % HANDLES;

	modify->qp_state = steps[state_of[handle]].to;
	modify->attr_mask = IBV_QP_STATE | steps[state_of[handle]].mask;
	if (rng_one_in(&rng, 4)) {
		modify->qp_state = rng_below(&rng, 8);
		modify->attr_mask ^= rng_next(&rng) & rng_next(&rng) & 0x1fffff;
	}
	modify->port_num = modify->dest.port_num = PORT;
	modify->path_mtu = IBV_MTU_1024;
	modify->dest.is_global = modify->dest.hop_limit = 1;
	modify->dest.sgid_index = ends[0].gid_index;
	memcpy(modify->dest.dgid, &ends[1].gid, 16);
}

/* What the templates leave as it is in the first place. */
static void vary(const struct verb *verb, struct call *call)
{
	static const uint8_t types[] = {
		IBV_QPT_RC, IBV_QPT_RC, IBV_QPT_RC, IBV_QPT_UC, IBV_QPT_UD, IBV_QPT_RAW_PACKET,
		IBV_QPT_XRC_SEND, 0, 1,
	};

	if (verb->fill == modify_qp) {
		vary_modify(&call->modify_qp);
	} else if (verb->fill == create_qp) {
		call->create_qp.qp_type = types[rng_below(&rng, ARRAY_SIZE(types))];
		call->create_qp.is_srq = rng_one_in(&rng, 3);
		call->create_qp.srq_handle = handles[SRQ];
	} else if (verb->fill == rereg_mr) {
		call->rereg_mr.flags = rng_below(&rng, 16);
		call->rereg_mr.start = call->rereg_mr.hca_va = (uintptr_t)memory;
		call->rereg_mr.length = MEMORY / 2;
	} else if (verb->fill == reg_mr) {
		call->reg_mr.access_flags = rng_next(&rng) & rng_next(&rng) & 0x1ff;
	}
}

/* A few words become anything. */
static void spoil(struct call *call, size_t size)
{
	size_t words = size / 4, at;
	unsigned int count;

	for (count = 1 + rng_below(&rng, 3); words && count; count--) {
		at = rng_below(&rng, words);
		/* The response goes to where it may. */
		if (at < 2 && size > 8)
			continue;
		call->words[at] = rng_one_in(&rng, 3) ? call->words[at] ^ 1U << rng_below(&rng, 32) :
							wild_number(&rng);
	}
}

static void spoil_lengths(size_t *in, size_t *out)
{
	if (rng_one_in(&rng, 2))
		*in = 4 * rng_below(&rng, 100);
	if (rng_one_in(&rng, 2))
		*out = 4 * rng_below(&rng, 100);
}

/* Rings of a million slots are for other tests: they take seconds to be cleared. */
static bool is_too_large(const struct verb *verb, const struct call *call)
{
	const uint32_t most = 5000, limit = 1 << 20;
	uint32_t sizes[2] = {};
	int i;

	if (verb->fill == create_qp)
		memcpy(sizes, &call->create_qp.max_send_wr, sizeof(sizes));
	else if (verb->fill == create_srq)
		sizes[0] = call->create_srq.max_wr;
	else if (verb->fill == modify_srq)
		sizes[0] = call->modify_srq.max_wr;
	for (i = 0; i < 2; i++)
		if (sizes[i] > most && sizes[i] <= limit)
			return true;
	return false;
}

static void forget(uint32_t handle)
{
	if (handle < HANDLES)
		type_of[handle] = NONE;
}

/*
 * Where commands respond to: far from all that is this program's own, as some are told to respond
 * elsewhere, which is mostly not far from there.
 */
static uint32_t *response_room(void)
{
	static uint32_t *room;
	const size_t size = 2 << 20;
	void *at;

	if (room)
		return room;
	at = mmap((void *)(1UL << 36), size, PROT_READ | PROT_WRITE,
		  MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE, -1, 0);
	require(at != MAP_FAILED, "mmap: %s", strerror(errno));
	room = (uint32_t *)at + size / 2 / sizeof(*room);
	return room;
}

static void random_command(void)
{
	size_t index = rng_below(&rng, ARRAY_SIZE(verbs));
	const struct verb *verb = &verbs[index];
	size_t in = verb->size + verb->input, out = verb->core + verb->driver;
	uint32_t *response = response_room(), handle;
	struct call call;
	int err;

	/* There are to be more and more. */
	if (verb->ends && rng_one_in(&rng, 2))
		return;
	choose_handles();
	fill(verb, &call, response);
	vary(verb, &call);
	if (rng_one_in(&rng, 3))
		spoil(&call, in);
	if (rng_one_in(&rng, 12))
		spoil_lengths(&in, &out);
	if (responds(verb) && rng_one_in(&rng, 50))
		call.response = 0x800000000000 | wild_number(&rng);
	if (is_too_large(verb, &call))
		return;
	err = send_call(verb, &call, in, out);
	expect_clear(verb->name, err);
	tried[index]++;
	if (err)
		return;
	done[index]++;
	/* It may have responded elsewhere. */
	if (responds(verb) && call.response != (uintptr_t)response)
		return;
	if (verb->fill == modify_qp)
		state_of[call.modify_qp.qp_handle % HANDLES] = call.modify_qp.qp_state % 7;
	if (verb->makes && response[0] < HANDLES) {
		type_of[response[0]] = verb->makes;
		state_of[response[0]] = IBV_QPS_RESET;
	} else if (verb->makes)
		require_ok(end_object(verb->makes, response[0]));
	if (verb->ends) {
		handle = verb->size == 4 ? call.words[0] : call.destroy.qp_handle;
		forget(handle);
	}
}

/* Whether a command has succeeded; those that few objects take need not. */
static bool did(size_t verb)
{
	void (*fill)(struct call *call) = verbs[verb].fill;

	return done[verb] || fill == recv_requests || fill == srq_requests || fill == poll_cq ||
	       fill == mcast || fill == send_requests;
}

static bool all_did(void)
{
	size_t i;

	for (i = 0; i < ARRAY_SIZE(verbs); i++)
		if (!did(i))
			return false;
	return true;
}

TEST(random_commands)
{
	const unsigned int least = 1500, most = 30000;
	unsigned int count;
	int64_t end;
	size_t i;

	open_device();
	rng.state = random_seed();
	end = now_ns() + chance_ns();
	for (count = 0; now_ns() < end || count < least || (!all_did() && count < most); count++)
		random_command();
	for (i = 0; i < ARRAY_SIZE(verbs); i++)
		note("%s: %u of %u did", verbs[i].name, done[i], tried[i]);
	for (i = 0; i < ARRAY_SIZE(verbs); i++)
		require(did(i), "%s never did", verbs[i].name);
	/* The kernel takes the rest. */
}

/* ---- random methods ---------------------------------------------------- */

static uint64_t some_data(uint8_t *room)
{
	switch (rng_below(&rng, 5)) {
	case 0: return (uintptr_t)room;
	case 1: return rng_below(&rng, 32);
	case 2: return (uintptr_t)memory;
	default: return wild_number(&rng);
	}
}

static void spoil_method(struct method *method, uint8_t *room)
{
	struct ib_uverbs_attr *attr = &method->attrs[rng_below(&rng, method->header.num_attrs)];

	switch (rng_below(&rng, 8)) {
	case 0: attr->attr_id = rng_one_in(&rng, 2) ? rng_below(&rng, 20) : wild_number(&rng); break;
	case 1: attr->len = rng_one_in(&rng, 2) ? rng_below(&rng, 70) : wild_number(&rng); break;
	case 2: attr->flags = wild_number(&rng); break;
	case 3: attr->attr_data.reserved = wild_number(&rng); break;
	case 4: *attr = method->attrs[method->header.num_attrs - 1]; break;
	case 5: method->header.num_attrs = rng_below(&rng, MAX_IOCTL_ATTRS); break;
	default: attr->data = some_data(room);
	}
}

static void any_method(struct method *method, uint8_t *room)
{
	static const uint16_t lengths[] = { 0, 1, 4, 8, 16, 24, 64 };
	unsigned int count = rng_below(&rng, 12);

	*method = method_of(rng_below(&rng, 22), rng_below(&rng, 9));
	if (rng_one_in(&rng, 30))
		method->header.object_id = wild_number(&rng);
	while (count--)
		add(method, rng_one_in(&rng, 8) ? UVERBS_ATTR_UHW_IN + rng_below(&rng, 2) :
						  method->header.num_attrs,
		    lengths[rng_below(&rng, ARRAY_SIZE(lengths))], some_data(room))
			->flags = rng_below(&rng, 2);
}

/* One that has what it needs, unless some of that was destroyed: then there is more. */
static const struct maker *good_method(struct method *method, uint8_t *room)
{
	const struct maker *maker = &makers[rng_below(&rng, ARRAY_SIZE(makers))];

	*method = maker->make();
	if (rng_one_in(&rng, 2))
		add(method, UVERBS_ATTR_UHW_OUT, 32, (uintptr_t)room)->flags = 0;
	return maker;
}

TEST(random_methods)
{
	unsigned int worked = 0, made = 0, count = 0;
	const struct maker *maker;
	struct method method;
	bool is_good;
	uint8_t *room;
	int64_t end;
	int err;

	open_device();
	room = memory + MEMORY * 3 / 4;
	rng.state = random_seed();
	make_all();
	for (end = now_ns() + chance_ns(); now_ns() < end; count++) {
		maker = NULL;
		is_good = rng_one_in(&rng, 4);
		if (rng_one_in(&rng, 3)) {
			any_method(&method, room);
		} else {
			maker = good_method(&method, room);
			if (!is_good)
				spoil_method(&method, room);
		}
		if (!method.header.num_attrs)
			continue;
		err = run_method(&method);
		expect_clear(maker ? maker->name : "a random method", err);
		worked += !err;
		if (!maker)
			continue;
		if (err && is_good && err != EOPNOTSUPP && maker->makes)
			make_all();
		if (err || !maker->makes)
			continue;
		made++;
		/* Unless the attributes were turned around. */
		end_object(maker->makes, method.attrs[0].data);
	}
	note("%u of %u did, %u of them made something", worked, count, made);
	require(made > 20 && count > worked, "that is another test");
}

TEST_HARNESS_MAIN
