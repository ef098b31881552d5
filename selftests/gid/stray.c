// SPDX-License-Identifier: GPL-2.0
/*
 * A sender that outlives the network namespace of its GID:
 *
 *	stray NAMESPACE/DEVICE GID-INDEX PEER
 *
 * Sends a datagram to the peer, an IPv6 address, and waits for a line of input. Then it sends
 * some more, which must complete, although they lead nowhere.
 */
#include <arpa/inet.h>
#include <fcntl.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "rc.h"
#include "ud.h"

#define QKEY 0x11223344
#define QPN 0x123
#define COUNT 8

static const struct ibv_qp_cap cap = { .max_send_wr = 4, .max_recv_wr = 1, .max_send_sge = 1 };

static void send_one(struct rc *ud, struct ibv_ah *ah, struct buffer *buffer)
{
	struct ibv_sge sge = buffer_sge(buffer, 0, 64);

	require_ok(ud_post(ud, ah, QPN, QKEY, 1, IBV_SEND_SIGNALED, &sge));
	expect_wc(ud->scq, 1, IBV_WC_SUCCESS, SOON_MS);
}

int main(int argc, char **argv)
{
	int home = open("/proc/self/ns/net", O_RDONLY | O_CLOEXEC), i;
	struct buffer buffer;
	struct end from, to;
	struct ibv_ah *ah;
	struct rc ud;

	require(argc == 4, "usage: stray NAMESPACE/DEVICE GID-INDEX PEER");
	require_sys(home);
	end_name(&from, argv[1]);
	from.gid_index = atoi(argv[2]);
	end_open(&from, FAMILY_ANY);
	to = from;
	require(inet_pton(AF_INET6, argv[3], to.gid.raw) == 1, "%s is no address", argv[3]);
	ud_create(&ud, &from, &cap, 4);
	ud_start(&ud, QKEY);
	ah = ah_create(&from, &to);
	/* It must not keep the namespace. */
	require_sys(setns(home, CLONE_NEWNET));
	close(home);
	buffer_create(&buffer, &from, 64, 0);
	send_one(&ud, ah, &buffer);
	puts("sent");
	fflush(stdout);
	require(getchar() == '\n', "no line");
	for (i = 0; i < COUNT; i++)
		send_one(&ud, ah, &buffer);
	require_ok(ibv_destroy_ah(ah));
	return 0;
}
