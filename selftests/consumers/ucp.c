// SPDX-License-Identifier: GPL-2.0
/*
 * What UCX's upper layer makes of an RDMA device, with all data compared:
 *
 *	ucp [-a] [-l] [-p PORT] [-n ROUNDS] -s ADDRESS	waits there for its peer
 *	ucp [-a] [-l] [-p PORT] [-n ROUNDS] ADDRESS	and this is its peer
 *
 * Each round has each operation (tag, active message, stream, put, get) with messages of several sizes,
 * both ways at a time, and with -a atomics. The ends agree by a TCP connection. Their endpoints are made
 * from addresses that are exchanged there, or with -l by a listener of UCX, at the next port. Those that
 * UCX watches for failures of the peer have no atomics, so with -a they are not watched.
 *
 * Status 0 if all of it was as it should be, 1 if not or if the peer is gone.
 */
#include <arpa/inet.h>
#include <errno.h>
#include <netdb.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>
#include <ucp/api/ucp.h>
#include <unistd.h>

#define TAG 0x77
#define AM_ID 5
#define WINDOW_BYTES (1 << 21)
#define ADDS 50
/* No operation takes longer. */
#define DEADLINE_S 60

static const size_t sizes[] = { 1, 8, 100, 4096, 8191, 65536, 1 << 20 };

static bool serves, listens, has_atomics;
static const char *address, *port = "13400";

static ucp_context_h context;
static ucp_worker_h worker;
static ucp_ep_h ep;
static int control;

/* What the peer reads and writes, and what it has of that kind. */
static unsigned char *window;
static uint64_t remote;
static ucp_rkey_h rkey;
static unsigned char *out, *in;

static const char *doing = "connecting";
static bool is_ending;
static unsigned int doing_round;
static size_t doing_size;
static time_t deadline;

static void die(const char *format, ...)
{
	va_list args;

	va_start(args, format);
	fprintf(stderr, "%s, round %u, %zu bytes: ", doing, doing_round, doing_size);
	vfprintf(stderr, format, args);
	fputc('\n', stderr);
	va_end(args);
	exit(1);
}

static void check(ucs_status_t status, const char *what)
{
	if (status != UCS_OK)
		die("%s: %s", what, ucs_status_string(status));
}

static time_t now(void)
{
	struct timespec time;

	clock_gettime(CLOCK_MONOTONIC, &time);
	return time.tv_sec;
}

static void progress(void)
{
	if (now() > deadline)
		die("nothing happens");
	ucp_worker_progress(worker);
}

static void complete(ucs_status_ptr_t request, const char *what)
{
	ucs_status_t status;

	if (!request)
		return;
	if (UCS_PTR_IS_ERR(request))
		check(UCS_PTR_STATUS(request), what);
	while ((status = ucp_request_check_status(request)) == UCS_INPROGRESS)
		progress();
	ucp_request_free(request);
	check(status, what);
}

/* ---- the other connection ---------------------------------------------- */

static void say(const void *data, size_t length)
{
	if (send(control, data, length, MSG_NOSIGNAL) != (ssize_t)length)
		die("the peer is gone");
}

/* The peer may need us meanwhile. */
static void hear(void *data, size_t length)
{
	ssize_t got;

	while (length) {
		got = recv(control, data, length, MSG_DONTWAIT);
		if (got < 0 && (errno == EAGAIN || errno == EINTR)) {
			progress();
			continue;
		}
		if (got <= 0)
			die("the peer is gone");
		data = (char *)data + got;
		length -= got;
	}
}

static void barrier(void)
{
	char byte = 'b';

	say(&byte, 1);
	hear(&byte, 1);
}

/* Gives the peer some bytes and returns those that it gave. */
static void *exchange(const void *data, size_t length)
{
	size_t theirs;
	void *got;

	say(&length, sizeof(length));
	say(data, length);
	hear(&theirs, sizeof(theirs));
	if (theirs > 1 << 20)
		die("the peer says that it has %zu bytes", theirs);
	got = malloc(theirs);
	if (!got)
		die("no memory");
	hear(got, theirs);
	return got;
}

static struct addrinfo *find_address(const char *service)
{
	struct addrinfo hints = { .ai_socktype = SOCK_STREAM, .ai_flags = AI_NUMERICHOST };
	struct addrinfo *found;

	if (getaddrinfo(address, service, &hints, &found))
		die("no such address or port: %s %s", address, service);
	return found;
}

static void connect_control(void)
{
	struct addrinfo *where = find_address(port);
	int fd = socket(where->ai_family, SOCK_STREAM, 0), yes = 1;

	if (fd < 0)
		die("socket: %s", strerror(errno));
	if (!serves) {
		if (connect(fd, where->ai_addr, where->ai_addrlen))
			die("connect: %s", strerror(errno));
		control = fd;
	} else {
		setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &yes, sizeof(yes));
		if (bind(fd, where->ai_addr, where->ai_addrlen) || listen(fd, 1))
			die("bind: %s", strerror(errno));
		control = accept(fd, NULL, NULL);
		if (control < 0)
			die("accept: %s", strerror(errno));
		close(fd);
	}
	freeaddrinfo(where);
}

/* ---- endpoints --------------------------------------------------------- */

static void ep_failed(void *arg, ucp_ep_h failed, ucs_status_t status)
{
	(void)arg, (void)failed;
	/* The peer may be done earlier. */
	if (!is_ending)
		die("the endpoint failed: %s", ucs_status_string(status));
}

static void create_ep(ucp_ep_params_t *params)
{
	params->field_mask |= UCP_EP_PARAM_FIELD_ERR_HANDLER | UCP_EP_PARAM_FIELD_ERR_HANDLING_MODE;
	params->err_mode = has_atomics ? UCP_ERR_HANDLING_MODE_NONE : UCP_ERR_HANDLING_MODE_PEER;
	params->err_handler.cb = ep_failed;
	check(ucp_ep_create(worker, params, &ep), "ucp_ep_create");
}

static void connect_by_address(void)
{
	ucp_ep_params_t params = { .field_mask = UCP_EP_PARAM_FIELD_REMOTE_ADDRESS };
	ucp_address_t *ours, *theirs;
	size_t length;

	check(ucp_worker_get_address(worker, &ours, &length), "ucp_worker_get_address");
	theirs = exchange(ours, length);
	ucp_worker_release_address(worker, ours);
	params.address = theirs;
	create_ep(&params);
	free(theirs);
}

static ucp_conn_request_h asked;

static void is_asked(ucp_conn_request_h request, void *arg)
{
	(void)arg;
	asked = request;
}

static void connect_by_listener(void)
{
	ucp_listener_params_t at = {
		.field_mask = UCP_LISTENER_PARAM_FIELD_SOCK_ADDR | UCP_LISTENER_PARAM_FIELD_CONN_HANDLER,
		.conn_handler.cb = is_asked,
	};
	ucp_ep_params_t params = { 0 };
	struct addrinfo *where;
	ucp_listener_h listener;
	char next[12];

	snprintf(next, sizeof(next), "%d", atoi(port) + 1);
	where = find_address(next);
	if (serves) {
		at.sockaddr.addr = where->ai_addr;
		at.sockaddr.addrlen = where->ai_addrlen;
		check(ucp_listener_create(worker, &at, &listener), "ucp_listener_create");
		barrier();
		while (!asked)
			progress();
		params.field_mask = UCP_EP_PARAM_FIELD_CONN_REQUEST;
		params.conn_request = asked;
	} else {
		barrier();
		params.field_mask = UCP_EP_PARAM_FIELD_SOCK_ADDR | UCP_EP_PARAM_FIELD_FLAGS;
		params.flags = UCP_EP_PARAMS_FLAGS_CLIENT_SERVER;
		params.sockaddr.addr = where->ai_addr;
		params.sockaddr.addrlen = where->ai_addrlen;
	}
	create_ep(&params);
	freeaddrinfo(where);
}

static const ucp_request_param_t plain;

static void share_window(void)
{
	ucp_mem_map_params_t params = {
		.field_mask = UCP_MEM_MAP_PARAM_FIELD_ADDRESS | UCP_MEM_MAP_PARAM_FIELD_LENGTH,
		.length = WINDOW_BYTES,
	};
	void *packed, *theirs;
	uint64_t *base, ours;
	ucp_mem_h mapped;
	size_t length;

	if (posix_memalign((void **)&window, 4096, WINDOW_BYTES))
		die("no memory");
	params.address = window;
	check(ucp_mem_map(context, &params, &mapped), "ucp_mem_map");
	check(ucp_rkey_pack(context, mapped, &packed, &length), "ucp_rkey_pack");
	theirs = exchange(packed, length);
	check(ucp_ep_rkey_unpack(ep, theirs, &rkey), "ucp_ep_rkey_unpack");
	ucp_rkey_buffer_release(packed);
	free(theirs);
	ours = (uintptr_t)window;
	base = exchange(&ours, sizeof(ours));
	remote = *base;
	free(base);
}

static void flush(void)
{
	complete(ucp_ep_flush_nbx(ep, &plain), "ucp_ep_flush_nbx");
}

/* ---- operations -------------------------------------------------------- */

/* Of what an end sends in a round. */
static unsigned char byte_of(bool by_server, size_t at)
{
	return at * 7 + at / 251 + doing_round * 13 + doing_size + by_server * 101;
}

static void fill(unsigned char *data)
{
	for (size_t at = 0; at < doing_size; at++)
		data[at] = byte_of(serves, at);
}

static void compare(const unsigned char *data, bool by_server)
{
	for (size_t at = 0; at < doing_size; at++)
		if (data[at] != byte_of(by_server, at))
			die("byte %zu is %#x, not %#x", at, data[at], byte_of(by_server, at));
}

static void tag(void)
{
	ucs_status_ptr_t receive = ucp_tag_recv_nbx(worker, in, doing_size, TAG, UINT64_MAX, &plain);

	complete(ucp_tag_send_nbx(ep, out, doing_size, TAG, &plain), "ucp_tag_send_nbx");
	complete(receive, "ucp_tag_recv_nbx");
	compare(in, !serves);
}

static void stream(void)
{
	const ucp_request_param_t all = {
		.op_attr_mask = UCP_OP_ATTR_FIELD_FLAGS, .flags = UCP_STREAM_RECV_FLAG_WAITALL,
	};
	size_t length = 0;
	ucs_status_ptr_t receive = ucp_stream_recv_nbx(ep, in, doing_size, &length, &all);

	complete(ucp_stream_send_nbx(ep, out, doing_size, &plain), "ucp_stream_send_nbx");
	complete(receive, "ucp_stream_recv_nbx");
	compare(in, !serves);
}

/* The active message that has arrived: here, or still with the peer. */
static struct {
	bool here, is_offered;
	void *offer;
	size_t length;
} arrived;

static ucs_status_t am_arrived(void *arg, const void *header, size_t header_length, void *data,
			       size_t length, const ucp_am_recv_param_t *param)
{
	(void)arg, (void)header, (void)header_length;
	if (arrived.here)
		die("two active messages for one");
	if (length > WINDOW_BYTES)
		die("an active message of %zu bytes", length);
	arrived.here = true;
	arrived.length = length;
	arrived.is_offered = param->recv_attr & UCP_AM_RECV_ATTR_FLAG_RNDV;
	if (arrived.is_offered) {
		arrived.offer = data;
		return UCS_INPROGRESS;
	}
	memcpy(in, data, length);
	return UCS_OK;
}

static void am(void)
{
	ucs_status_ptr_t sending = ucp_am_send_nbx(ep, AM_ID, NULL, 0, out, doing_size, &plain);

	while (!arrived.here)
		progress();
	if (arrived.length != doing_size)
		die("%zu bytes came", arrived.length);
	if (arrived.is_offered)
		complete(ucp_am_recv_data_nbx(worker, arrived.offer, in, doing_size, &plain),
			 "ucp_am_recv_data_nbx");
	complete(sending, "ucp_am_send_nbx");
	compare(in, !serves);
	arrived.here = false;
}

static void put(void)
{
	complete(ucp_put_nbx(ep, out, doing_size, remote, rkey, &plain), "ucp_put_nbx");
	flush();
	barrier();
	compare(window, !serves);
}

static void get(void)
{
	fill(window);
	barrier();
	complete(ucp_get_nbx(ep, in, doing_size, remote, rkey, &plain), "ucp_get_nbx");
	compare(in, !serves);
}

static uint64_t atomic(ucp_atomic_op_t op, uint64_t operand, uint64_t reply)
{
	ucp_request_param_t param = {
		.op_attr_mask = UCP_OP_ATTR_FIELD_DATATYPE | UCP_OP_ATTR_FIELD_REPLY_BUFFER,
		.datatype = ucp_dt_make_contig(sizeof(operand)), .reply_buffer = &reply,
	};

	complete(ucp_atomic_op_nbx(ep, op, &operand, 1, remote, rkey, &param), "ucp_atomic_op_nbx");
	return reply;
}

/* What is swapped is in place of what was expected, and what is added is what was there before, each time. */
static void atomics(void)
{
	const uint64_t begin = 1ull << 40 | doing_round;
	uint64_t before = begin, held;

	memcpy(window, &begin, sizeof(begin));
	barrier();
	for (int i = 0; i < ADDS; i++, before += i)
		if ((held = atomic(UCP_ATOMIC_OP_ADD, i + 1, 0)) != before)
			die("%#lx was there, not %#lx", held, before);
	held = atomic(UCP_ATOMIC_OP_CSWAP, before + 1, 1);
	if (held != before)
		die("%#lx was there, not %#lx", held, before);
	held = atomic(UCP_ATOMIC_OP_CSWAP, before, ~begin);
	if (held != before)
		die("%#lx was there, not %#lx", held, before);
	flush();
	barrier();
	memcpy(&held, window, sizeof(held));
	if (held != ~begin)
		die("%#lx is here, not %#lx", held, ~begin);
}

static const struct operation {
	const char *name;
	void (*run)(void);
} operations[] = {
	{ "tag", tag }, { "active message", am }, { "stream", stream }, { "put", put }, { "get", get },
}, atomic_operations = { "atomics", atomics };

static void run(const struct operation *operation, size_t size)
{
	doing = operation->name;
	doing_size = size;
	deadline = now() + DEADLINE_S;
	fill(out);
	memset(in, 0, size);
	memset(window, 0, size);
	barrier();
	operation->run();
	barrier();
}

static void one_round(void)
{
	for (size_t i = 0; i < sizeof(operations) / sizeof(*operations); i++)
		for (size_t j = 0; j < sizeof(sizes) / sizeof(*sizes); j++)
			run(&operations[i], sizes[j]);
	if (has_atomics)
		run(&atomic_operations, sizeof(uint64_t));
}

static void start(void)
{
	const ucp_params_t params = {
		.field_mask = UCP_PARAM_FIELD_FEATURES,
		.features = UCP_FEATURE_TAG | UCP_FEATURE_AM | UCP_FEATURE_STREAM | UCP_FEATURE_RMA |
			UCP_FEATURE_AMO64,
	};
	const ucp_worker_params_t worker_params = {
		.field_mask = UCP_WORKER_PARAM_FIELD_THREAD_MODE, .thread_mode = UCS_THREAD_MODE_SINGLE,
	};
	const ucp_am_handler_param_t handler = {
		.field_mask = UCP_AM_HANDLER_PARAM_FIELD_ID | UCP_AM_HANDLER_PARAM_FIELD_CB,
		.id = AM_ID, .cb = am_arrived,
	};

	check(ucp_init(&params, NULL, &context), "ucp_init");
	check(ucp_worker_create(context, &worker_params, &worker), "ucp_worker_create");
	check(ucp_worker_set_am_recv_handler(worker, &handler), "ucp_worker_set_am_recv_handler");
}

/* Of a peer that goes away first, too. */
static void end(void)
{
	const ucp_request_param_t force = {
		.op_attr_mask = UCP_OP_ATTR_FIELD_FLAGS, .flags = UCP_EP_CLOSE_FLAG_FORCE,
	};

	doing = "ending";
	flush();
	is_ending = true;
	barrier();
	ucp_rkey_destroy(rkey);
	/* What is not watched cannot be closed by one end alone. */
	complete(ucp_ep_close_nbx(ep, has_atomics ? &plain : &force), "ucp_ep_close_nbx");
}

int main(int argc, char **argv)
{
	unsigned int rounds = 1;
	int option;

	while ((option = getopt(argc, argv, "alp:n:s")) != -1) {
		switch (option) {
		case 'a': has_atomics = true; break;
		case 'l': listens = true; break;
		case 'p': port = optarg; break;
		case 'n': rounds = strtoul(optarg, NULL, 0); break;
		case 's': serves = true; break;
		default: optind = argc;
		}
	}
	if (optind != argc - 1)
		die("usage: ucp [-a] [-l] [-p PORT] [-n ROUNDS] [-s] ADDRESS");
	address = argv[optind];
	deadline = now() + DEADLINE_S;
	start();
	connect_control();
	if (listens)
		connect_by_listener();
	else
		connect_by_address();
	out = malloc(WINDOW_BYTES);
	in = malloc(WINDOW_BYTES);
	if (!out || !in)
		die("no memory");
	/* A key goes by the lanes that its endpoint has when it is unpacked. */
	tag();
	flush();
	barrier();
	share_window();
	for (; doing_round < rounds; doing_round++)
		one_round();
	end();
	return 0;
}
