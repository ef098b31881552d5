/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Tests of kernel verbs: queue pairs that the kernel owns, connected by hand.
 *
 * A test gets a pair of ends, each with a queue pair and a buffer, on two devices or
 * on the same one.  It returns 0, or says by fail() what is wrong.
 */
#ifndef KVERBS_TEST_H
#define KVERBS_TEST_H

#include <linux/completion.h>
#include <rdma/ib_verbs.h>

/* Tests use parts of it in pages, which have up to 64 KiB, and in bytes. */
#define BUFFER_BYTES (64 * PAGE_SIZE)
#define QKEY 0x11223344
#define QUEUE_DEPTH 32
#define MAX_SGES 4
#define INLINE_BYTES 64
#define MAX_PAGES 17
#define ALL_ACCESS                                                                                 \
	(IB_ACCESS_LOCAL_WRITE | IB_ACCESS_REMOTE_WRITE | IB_ACCESS_REMOTE_READ |                  \
	 IB_ACCESS_REMOTE_ATOMIC)

/* One end of a pair. */
struct end {
	struct ib_device *dev;
	struct ib_pd *pd;
	struct ib_cq *cq;
	struct ib_qp *qp;
	struct ib_srq *srq;
	const struct ib_gid_attr *gid;
	u8 mac[ETH_ALEN];
	enum ib_poll_context context;
	u8 *buffer;
	u64 dma;
	/* Events of the queue pair, a bit for each, and the last of them. */
	unsigned long events;
	struct completion event;
};

struct pair {
	struct end a, b;
};

/* A work request that is waited for. */
struct request {
	struct ib_cqe cqe;
	struct ib_wc wc;
	struct end *end;
	atomic_t completions;
	struct completion done;
	/* Called as it completes, where it completes. */
	void (*then)(struct request *request);
};

/* A region that work requests register. */
struct region {
	struct end *end;
	struct ib_mr *mr;
	/* Pages of the end's buffer, and what of them. */
	u32 first, pages, offset, length;
};

/* What a pair is to be like. */
struct wish {
	enum ib_qp_type type;
	bool shared_receives;
	/* Leave the queue pairs in RESET. */
	bool unconnected;
	u32 depth;
};

struct test {
	const char *name;
	int (*run)(struct pair *pair);
	struct wish wish;
};

extern const struct test datagram_tests[];
extern const struct test connected_tests[];
extern const struct test gaps_tests[];

/* Says why a test fails, and is -EINVAL. */
int __printf(3, 4) fail_at(const char *file, int line, const char *format, ...);
#define fail(...) fail_at(__FILE_NAME__, __LINE__, __VA_ARGS__)

/* Fails the test at hand unless the condition holds. */
#define expect(condition)                                                                          \
	do {                                                                                       \
		if (!(condition))                                                                  \
			return fail("not so: %s", #condition);                                     \
	} while (0)

/* Fails it unless two numbers are equal. */
#define expect_eq(is, should)                                                                      \
	do {                                                                                       \
		long long is_ = (is), should_ = (should);                                          \
		if (is_ != should_)                                                                \
			return fail("%s is %lld, not %lld", #is, is_, should_);                    \
	} while (0)

/* Fails it when a step has failed, which has said why. */
#define check(step)                                                                                \
	do {                                                                                       \
		int error_ = (step);                                                               \
		if (error_)                                                                        \
			return error_ < 0 ? error_ : -EINVAL;                                      \
	} while (0)

int end_open(struct end *end, struct ib_device *dev, enum ib_poll_context context,
	     const struct wish *wish);
/* As end_open(), in a protection domain that it is given. */
int end_open_in(struct end *end, struct ib_device *dev, enum ib_poll_context context,
		const struct wish *wish, struct ib_pd *pd);
void end_close(struct end *end);
int end_modify(struct end *end, enum ib_qp_state state, const struct end *peer);
int pair_connect(struct pair *pair);
int address_of(const struct end *end, const struct end *peer, struct rdma_ah_attr *attr);

void request_init(struct request *request, struct end *end);
/* Until it has completed; fails if it does not. */
int request_wait(struct request *request);
int request_wait_status(struct request *request, enum ib_wc_status status);
/* That it has completed once, and does not again. */
int request_once(struct request *request);
/* That it has not completed. */
int request_wait_none(struct request *request);
bool event_seen(struct end *end, enum ib_event_type type);

struct ib_sge sge_of(const struct end *end, u32 offset, u32 length);
int post_recv(struct request *request, u32 offset, u32 length);
int post_send(struct request *request, u32 offset, u32 length);
void fill(u8 *bytes, u32 length, u32 seed);
bool filled(const u8 *bytes, u32 length, u32 seed);

static inline u8 pattern(u32 i, u32 seed)
{
	return i * 7 + (i >> 8) * 13 + seed * 31;
}

int region_open(struct region *region, struct end *end, struct ib_pd *pd);
void region_close(struct region *region);
int region_lay_out(struct region *region, u32 first, u32 offset, u32 length);
u8 *region_byte(const struct region *region, u32 at);
void region_fill(struct region *region, u32 seed);
bool region_filled(const struct region *region, u32 from, u32 length, u32 seed);
int region_post(struct region *region, struct request *request, int access);
int region_register(struct region *region, int access);
int invalidate(struct end *end, u32 rkey, enum ib_wc_status status);
int rdma_post(struct request *request, enum ib_wr_opcode opcode, u32 offset, u32 length,
	      u64 remote_addr, u32 rkey);
int rdma(struct end *end, enum ib_wr_opcode opcode, u32 offset, u32 length, u64 remote_addr,
	 u32 rkey, enum ib_wc_status status);

#endif
