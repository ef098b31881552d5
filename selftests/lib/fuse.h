/* SPDX-License-Identifier: GPL-2.0 */
/*
 * A file system of one's own (FUSE), that keeps who reads it waiting for as long as it likes.  It
 * speaks to the kernel without a library, and runs in a process of its own.
 */
#ifndef FERROCE_FUSE_H
#define FERROCE_FUSE_H

#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#define FUSE_NEVER -1

/* Shared with the server. */
struct fuse_shared {
	atomic_int delay_ms;	/* before the READ of a file's first bytes is answered, or FUSE_NEVER */
	atomic_uint reads;	/* that came */
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
