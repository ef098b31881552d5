/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Verbs of memory regions that the provider of rdma-core lacks, as commands to the
 * kernel, and memory that is registered in ways which rc.h does not have.
 */
#ifndef FERROCE_VERBS_H
#define FERROCE_VERBS_H

#include <fcntl.h>
#include <linux/udmabuf.h>
#include <rdma/ib_user_ioctl_cmds.h>
#include <rdma/ib_user_ioctl_verbs.h>
#include <rdma/rdma_user_ioctl_cmds.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <unistd.h>

#include "rc.h"

#define REMOTE (IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_WRITE | \
		IBV_ACCESS_REMOTE_ATOMIC)

#define MAX_ATTRS 9

struct command {
	struct ib_uverbs_ioctl_hdr header;
	struct ib_uverbs_attr attrs[MAX_ATTRS];
};

static inline struct ib_uverbs_attr *command_add(struct command *command, uint16_t id, uint16_t len,
						 uint64_t data)
{
	struct ib_uverbs_attr *attr = &command->attrs[command->header.num_attrs++];

	*attr = (struct ib_uverbs_attr){
		.attr_id = id, .len = len, .flags = UVERBS_ATTR_F_MANDATORY, .data = data,
	};
	return attr;
}

/* Returns an errno. */
static inline int command_run(struct command *command, struct ibv_context *context)
{
	command->header.length = sizeof(command->header) +
				 command->header.num_attrs * sizeof(command->attrs[0]);
	return ioctl(context->cmd_fd, RDMA_VERBS_IOCTL, &command->header) ? errno : 0;
}

/* ibv_advise_mr() */
static inline int advise(struct ibv_pd *pd, uint64_t advice, uint32_t flags,
			 const struct ibv_sge *sges, unsigned int count)
{
	struct command command = {
		.header = { .object_id = UVERBS_OBJECT_MR, .method_id = UVERBS_METHOD_ADVISE_MR,
			    .driver_id = RDMA_DRIVER_RXE },
	};

	command_add(&command, UVERBS_ATTR_ADVISE_MR_PD_HANDLE, 0, pd->handle);
	command_add(&command, UVERBS_ATTR_ADVISE_MR_ADVICE, 8, advice);
	command_add(&command, UVERBS_ATTR_ADVISE_MR_FLAGS, 4, flags);
	command_add(&command, UVERBS_ATTR_ADVISE_MR_SGE_LIST, count * sizeof(*sges),
		    (uintptr_t)sges);
	return command_run(&command, pd->context);
}

/* A kernel with PREEMPT_RT has none. */
static inline bool has_transparent_huge_pages(void)
{
	return !access("/sys/kernel/mm/transparent_hugepage", F_OK);
}

/* The size of a huge page: as much as a whole table of pages maps.  It follows the size of a page. */
static inline size_t huge_page_size(void)
{
	return PAGE / sizeof(uint64_t) * PAGE;
}

/* Has these bytes be transparent huge pages. */
static inline void make_huge_pages(void *bytes, size_t size)
{
	if (!has_transparent_huge_pages())
		skip("this kernel has no transparent huge pages");
	require_sys(madvise(bytes, size, MADV_HUGEPAGE));
}

/* A dma-buf that udmabuf makes of a file in memory, whose bytes it maps; its descriptor. */
static inline int make_dmabuf(size_t size, uint8_t **bytes)
{
	struct udmabuf_create create = { .size = size };
	int device = open("/dev/udmabuf", O_RDWR | O_CLOEXEC), file, buffer;

	if (device < 0)
		skip("no /dev/udmabuf: %s", strerror(errno));
	file = memfd_create("dmabuf", MFD_ALLOW_SEALING | MFD_CLOEXEC);
	require_sys(file);
	require_sys(ftruncate(file, size));
	require_sys(fcntl(file, F_ADD_SEALS, F_SEAL_SHRINK));
	create.memfd = file;
	*bytes = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
	require(*bytes != MAP_FAILED, "mmap: %s", strerror(errno));
	buffer = ioctl(device, UDMABUF_CREATE, &create);
	require_sys(buffer);
	close(device);
	close(file);
	return buffer;
}

/* A region that librxe knows nothing of. */
struct raw_mr {
	uint32_t handle, lkey, rkey;
};

/* ibv_reg_dmabuf_mr() */
static inline int reg_dmabuf(struct ibv_pd *pd, int fd, uint64_t offset, uint64_t length,
			     uint64_t iova, uint32_t access, struct raw_mr *mr)
{
	struct command command = {
		.header = { .object_id = UVERBS_OBJECT_MR, .method_id = UVERBS_METHOD_REG_DMABUF_MR,
			    .driver_id = RDMA_DRIVER_RXE },
	};
	struct ib_uverbs_attr *handle;
	int err;

	handle = command_add(&command, UVERBS_ATTR_REG_DMABUF_MR_HANDLE, 0, 0);
	command_add(&command, UVERBS_ATTR_REG_DMABUF_MR_PD_HANDLE, 0, pd->handle);
	command_add(&command, UVERBS_ATTR_REG_DMABUF_MR_OFFSET, 8, offset);
	command_add(&command, UVERBS_ATTR_REG_DMABUF_MR_LENGTH, 8, length);
	command_add(&command, UVERBS_ATTR_REG_DMABUF_MR_IOVA, 8, iova);
	command_add(&command, UVERBS_ATTR_REG_DMABUF_MR_FD, 4, fd);
	command_add(&command, UVERBS_ATTR_REG_DMABUF_MR_ACCESS_FLAGS, 4, access);
	command_add(&command, UVERBS_ATTR_REG_DMABUF_MR_RESP_LKEY, 4, (uintptr_t)&mr->lkey);
	command_add(&command, UVERBS_ATTR_REG_DMABUF_MR_RESP_RKEY, 4, (uintptr_t)&mr->rkey);
	err = command_run(&command, pd->context);
	mr->handle = handle->data;
	return err;
}

static inline int dereg_raw(struct ibv_pd *pd, const struct raw_mr *mr)
{
	struct command command = {
		.header = { .object_id = UVERBS_OBJECT_MR, .method_id = UVERBS_METHOD_MR_DESTROY,
			    .driver_id = RDMA_DRIVER_RXE },
	};

	command_add(&command, UVERBS_ATTR_DESTROY_MR_HANDLE, 0, mr->handle);
	return command_run(&command, pd->context);
}

/* ---- counters ---------------------------------------------------------- */

/* The kernel takes what it read within these for what there is. */
#define COUNTERS_US 12000

/* A counter of the device. */
static inline uint64_t hw_counter(const struct end *end, const char *name)
{
	unsigned long long value;
	char path[200];
	FILE *file;

	usleep(COUNTERS_US);
	snprintf(path, sizeof(path), "/sys/class/infiniband/%s/ports/1/hw_counters/%s", end->dev, name);
	file = fopen(path, "r");
	require(file, "%s: %s", path, strerror(errno));
	require(fscanf(file, "%llu", &value) == 1, "%s has no number", path);
	fclose(file);
	return value;
}

/* ---- memory ------------------------------------------------------------ */

/* Fresh memory, of which nothing is there yet. */
static inline uint8_t *map_pages(size_t size)
{
	uint8_t *bytes = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	require(bytes != MAP_FAILED, "mmap: %s", strerror(errno));
	/* So that each page comes and goes on its own. */
	madvise(bytes, size, MADV_NOHUGEPAGE);
	return bytes;
}

static inline void register_at(struct buffer *buffer, struct end *end, uint8_t *bytes, size_t size,
			       int access)
{
	buffer->bytes = bytes;
	buffer->size = size;
	buffer->mr = ibv_reg_mr(end->pd, bytes, size, access);
	require(buffer->mr, "ibv_reg_mr: %s", strerror(errno));
}

/* A buffer that is paged in on demand. */
static inline void demand(struct buffer *buffer, struct end *end, size_t size, int access)
{
	register_at(buffer, end, map_pages(size), size, access | IBV_ACCESS_ON_DEMAND);
}

/* Takes the pages away; what they held is gone. */
static inline void drop_pages(void *bytes, size_t size)
{
	require_sys(madvise(bytes, size, MADV_DONTNEED));
}

/* How many pages are in memory. */
static inline size_t resident(void *bytes, size_t size)
{
	size_t count = size / PAGE, found = 0, i;
	unsigned char *map = xcalloc(count, 1);

	require_sys(mincore(bytes, size, map));
	for (i = 0; i < count; i++)
		found += map[i] & 1;
	free(map);
	return found;
}

#endif
