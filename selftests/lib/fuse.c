// SPDX-License-Identifier: GPL-2.0
#include <fcntl.h>
#include <linux/fuse.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <unistd.h>

#include "fuse.h"
#include "harness.h"

#define REQUEST_BYTES (256 << 10)
/* The nodes behind the root are the files, by their number. */
#define FIRST_FILE (FUSE_ROOT_ID + 1)
#define FOREVER_S 3600

/* ---- the server -------------------------------------------------------- */

struct server {
	int fd;
	struct fuse_shared *shared;
};

static void answer(const struct server *server, const struct fuse_in_header *in, int error,
		   const void *body, size_t size)
{
	struct fuse_out_header out = {
		.len = sizeof(out) + size, .error = -error, .unique = in->unique,
	};
	struct iovec parts[2] = { { &out, sizeof(out) }, { (void *)body, size } };

	/* Nobody may be there for it any more. */
	if (writev(server->fd, parts, size ? 2 : 1) < 0 && errno != ENOENT)
		_exit(1);
}

static struct fuse_attr attr_of(const struct server *server, uint64_t node)
{
	bool is_root = node == FUSE_ROOT_ID;

	return (struct fuse_attr){
		.ino = node, .size = is_root ? 0 : server->shared->size, .nlink = 1,
		.mode = is_root ? S_IFDIR | 0755 : S_IFREG | 0644, .blksize = 4096,
	};
}

static void answer_init(const struct server *server, const struct fuse_in_header *in)
{
	struct fuse_init_out out = {
		.major = FUSE_KERNEL_VERSION, .minor = 31, .max_readahead = 0,
		.max_background = 64, .congestion_threshold = 64, .max_write = 64 << 10,
		.time_gran = 1,
	};

	answer(server, in, 0, &out, sizeof(out));
}

static void answer_lookup(const struct server *server, const struct fuse_in_header *in,
			  const char *name)
{
	uint64_t node = FIRST_FILE + atoi(name);
	struct fuse_entry_out out = {
		.nodeid = node, .entry_valid = FOREVER_S, .attr_valid = FOREVER_S,
		.attr = attr_of(server, node),
	};

	answer(server, in, 0, &out, sizeof(out));
}

static void answer_attr(const struct server *server, const struct fuse_in_header *in)
{
	struct fuse_attr_out out = {
		.attr_valid = FOREVER_S, .attr = attr_of(server, in->nodeid),
	};

	answer(server, in, 0, &out, sizeof(out));
}

static size_t bytes_at(const struct server *server, uint64_t offset, uint32_t wanted)
{
	size_t size = server->shared->size;

	if (offset >= size)
		return 0;
	return size - offset < wanted ? size - offset : wanted;
}

static void answer_read(const struct server *server, const struct fuse_in_header *in,
			const struct fuse_read_in *read)
{
	int delay = atomic_load(&server->shared->delay_ms);

	atomic_fetch_add(&server->shared->reads, 1);
	if (delay == FUSE_NEVER)
		return;
	if (!read->offset)
		usleep(delay * 1000);
	answer(server, in, 0, server->shared->bytes + read->offset,
	       bytes_at(server, read->offset, read->size));
}

static void answer_write(const struct server *server, const struct fuse_in_header *in,
			 const struct fuse_write_in *write)
{
	struct fuse_write_out out = { .size = bytes_at(server, write->offset, write->size) };

	memcpy(server->shared->bytes + write->offset, write + 1, out.size);
	answer(server, in, 0, &out, sizeof(out));
}

static void serve_one(const struct server *server, const struct fuse_in_header *in)
{
	const void *body = in + 1;
	struct fuse_open_out open = { .open_flags = FOPEN_KEEP_CACHE };

	switch (in->opcode) {
	case FUSE_INIT: return answer_init(server, in);
	case FUSE_LOOKUP: return answer_lookup(server, in, body);
	case FUSE_GETATTR:
	case FUSE_SETATTR: return answer_attr(server, in);
	case FUSE_OPEN: return answer(server, in, 0, &open, sizeof(open));
	case FUSE_READ: return answer_read(server, in, body);
	case FUSE_WRITE: return answer_write(server, in, body);
	case FUSE_FLUSH:
	case FUSE_FSYNC:
	case FUSE_RELEASE: return answer(server, in, 0, NULL, 0);
	case FUSE_FORGET:
	case FUSE_BATCH_FORGET:
	case FUSE_INTERRUPT: return;
	default: return answer(server, in, ENOSYS, NULL, 0);
	}
}

static _Noreturn void serve(struct server server)
{
	void *request = xcalloc(1, REQUEST_BYTES);

	prctl(PR_SET_PDEATHSIG, SIGKILL);
	for (;;) {
		if (read(server.fd, request, REQUEST_BYTES) >= 0)
			serve_one(&server, request);
		else if (errno != EINTR && errno != EAGAIN && errno != ENOENT)
			_exit(0);
	}
}

/* ---- who mounts it ----------------------------------------------------- */

void fuse_start(struct fuse *fuse, size_t size)
{
	size_t all = sizeof(struct fuse_shared) + size;
	int fd = open("/dev/fuse", O_RDWR | O_CLOEXEC);
	char options[128];

	if (fd < 0)
		skip("no /dev/fuse: %s", strerror(errno));
	memset(fuse, 0, sizeof(*fuse));
	fuse->shared = mmap(NULL, all, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	require(fuse->shared != MAP_FAILED, "mmap: %s", strerror(errno));
	fuse->shared->size = size;
	strcpy(fuse->dir, "/tmp/fuse.XXXXXX");
	require(mkdtemp(fuse->dir), "%s: %s", fuse->dir, strerror(errno));
	snprintf(options, sizeof(options), "fd=%d,rootmode=40000,user_id=0,group_id=0", fd);
	require_sys(mount("fuse", fuse->dir, "fuse", 0, options));
	fuse->server = fork();
	require_sys(fuse->server);
	if (!fuse->server)
		serve((struct server){ .fd = fd, .shared = fuse->shared });
	close(fd);
}

int fuse_open(struct fuse *fuse)
{
	char path[64];
	int fd;

	snprintf(path, sizeof(path), "%s/%u", fuse->dir, fuse->files++);
	fd = open(path, O_RDWR | O_CLOEXEC);
	require(fd >= 0, "%s: %s", path, strerror(errno));
	return fd;
}

void fuse_kill(struct fuse *fuse)
{
	if (!fuse->server)
		return;
	require_sys(kill(fuse->server, SIGKILL));
	require_sys(waitpid(fuse->server, NULL, 0));
	fuse->server = 0;
}

void fuse_stop(struct fuse *fuse)
{
	fuse_kill(fuse);
	require_sys(umount2(fuse->dir, MNT_DETACH));
	require_sys(rmdir(fuse->dir));
	munmap(fuse->shared, sizeof(*fuse->shared) + fuse->shared->size);
}
