/* SPDX-License-Identifier: GPL-2.0 */
/*
 * A file system of one's own (FUSE), that keeps who reads it waiting for as long as it likes.  It
 * speaks to the kernel without a library.
 */
#ifndef FERROCE_FUSE_H
#define FERROCE_FUSE_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

/* ---- a server ---------------------------------------------------------- */

/* No READ is larger, and no WRITE. */
#define FUSE_MOST (128U << 10)
/* As many READs may wait for their answer; the kernel sends no more. */
#define FUSE_MOST_WAIT 8192

/* A READ that has come, until it is answered. */
struct fuse_read {
	uint64_t unique, file, offset;
	uint32_t size;
};

/* Who serves: all of it is called by fuse_serve(). */
struct fuse_server {
	int fd;				/* of fuse_mount() */
	uint64_t size;			/* of each file */
	bool reads_ahead;		/* the kernel may */
	uint64_t (*file_of)(const char *name);	/* each name is one of a file, as it numbers them */
	bool (*is_control)(uint64_t file);	/* nothing of it is cached; NULL: none is like that */
	/* Answers it, or has it answered later. */
	void (*read)(const struct fuse_server *server, const struct fuse_read *read);
	void (*write)(const struct fuse_server *server, uint64_t file, uint64_t offset,
		      const void *bytes, uint32_t size);
};

/* Mounts a file system, for everybody if `for_all`; negative without /dev/fuse. */
int fuse_mount(const char *directory, bool for_all);
/* Serves until it is mounted no more. */
void fuse_serve(const struct fuse_server *server);
void fuse_answer_read(const struct fuse_server *server, const struct fuse_read *read,
		      const void *bytes, size_t size);

/* ---- one whose server is a process of its own -------------------------- */

#define FUSE_NEVER -1

/* Shared with the server. */
struct fuse_shared {
	atomic_int delay_ms;	/* before the READ of a file's first bytes is answered, or FUSE_NEVER */
	size_t size;
	uint8_t bytes[];	/* what each file holds */
};

struct fuse {
	char dir[32];
	pid_t server;
	struct fuse_shared *shared;
	unsigned int files;
};

/* Mounts one whose files have so many bytes. */
void fuse_start(struct fuse *fuse, size_t size);
/* Opens a file of which nothing is cached. */
int fuse_open(struct fuse *fuse);
/* Ends the server: what waits for it fails. */
void fuse_kill(struct fuse *fuse);
/* The same, and takes everything down. */
void fuse_stop(struct fuse *fuse);

#endif
