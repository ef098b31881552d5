// SPDX-License-Identifier: GPL-2.0
/*
 * Joins and leaves multicast groups, of IPv4 and IPv6 in turn, until the device is taken away.
 *
 *	joins DEVICE GROUP4 GROUP6
 */
#include <arpa/inet.h>
#include <stdio.h>

#include "../lib/ud.h"

#define QKEY 0x11111111

static union ibv_gid group_of(const char *text)
{
	char mapped[64];
	union ibv_gid gid;

	snprintf(mapped, sizeof(mapped), "%s%s", strchr(text, ':') ? "" : "::ffff:", text);
	require(inet_pton(AF_INET6, mapped, &gid) == 1, "%s is no address", text);
	return gid;
}

/* Returns false when the device has gone. */
static bool join_and_leave(struct ibv_qp *qp, const union ibv_gid *group)
{
	int err = ibv_attach_mcast(qp, group, 0);

	if (!err)
		err = ibv_detach_mcast(qp, group, 0);
	require(!err || err == EIO || err == ENODEV || err == EADDRNOTAVAIL, "%s", strerror(err));
	return !err;
}

int main(int argc, char **argv)
{
	const struct ibv_qp_cap cap = { .max_send_wr = 1, .max_recv_wr = 1, .max_send_sge = 1,
					.max_recv_sge = 1 };
	union ibv_gid groups[2];
	unsigned int rounds = 0;
	struct rc ud;

	require(argc == 4, "usage: joins DEVICE GROUP4 GROUP6");
	end_name(&ends[0], argv[1]);
	end_open(&ends[0], FAMILY_ANY);
	groups[0] = group_of(argv[2]);
	groups[1] = group_of(argv[3]);
	ud_create(&ud, &ends[0], &cap, 1);
	ud_start(&ud, QKEY);
	while (join_and_leave(ud.qp, &groups[rounds % 2])) {
		if (!rounds++)
			puts("joining");
		fflush(stdout);
	}
	printf("%u rounds\n", rounds);
	return 0;
}
