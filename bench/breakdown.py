# SPDX-License-Identifier: GPL-2.0
"""The analysis of a profile: the shares of a message's work by kind and by function."""

import re

# The first match counts. CRCs are those of packets; copied and zeroed bytes are mostly payload and
# memory for packets.
KINDS = (
    ("ICRC", None, r"crc32|kernel_fpu_|icrc"),
    ("copies", None, r"memcpy|memmove|copy_(to|from)_|skb_copy|rep_movs|rxe_mr_copy"),
    ("zeroing", None, r"memset|clear_page"),
    ("idle", None, r"safe_halt|default_idle|cpu_idle|do_idle"),
    ("the driver", r"^(ferroce|rdma_rxe)$", None),
    ("verbs of the kernel", r"^(ib_(core|uverbs|uverbs_support|cm|umad)|rdma_u?cm)$", None),
    ("users in the kernel", r"^(nvme\w*|brd|nfs\w*|sunrpc|rpcrdma|netfs|lockd|auth_rpcgss)$", None),
    ("the rest of the kernel", r"^(kernel|veth|sch_\w+|nf_\w+|udp_tunnel|ip6_udp_tunnel|x_tables)$", None),
    ("processes", None, None),
)


def kind_of(module, name):
    for kind, modules, names in KINDS:
        if (not modules or re.search(modules, module)) and (not names or re.search(names, name)):
            return kind
    raise AssertionError("the last one fits all")


def breakdown(each, shares, most=16):
    """The shares of each kind, and the largest functions, from samples by module and name and the
    cost of a message."""
    total = sum(shares.values())
    kinds = dict.fromkeys((kind for kind, _, _ in KINDS), 0)
    for (module, name), samples in shares.items():
        kinds[kind_of(module, name)] += samples
    largest = sorted(shares.items(), key=lambda item: -item[1])[:most]
    return {"each": round(each), "samples": total,
            "kinds": {kind: round(each * samples / total) for kind, samples in kinds.items()},
            "functions": [[module, name, round(each * samples / total)]
                          for (module, name), samples in largest]}


def plain_name(name):
    """A Rust function without type arguments and its trait; others unchanged."""
    plain, depth, is_trait = "", 0, False
    # Brackets at the start of a name have its type, other brackets an argument.
    kept = 1 if name.startswith("<") else 0
    for at, char in enumerate(name):
        if char == "<":
            depth += 1
        elif char == ">":
            depth -= 1
            if depth < kept:
                kept, is_trait = 0, False
        elif depth <= kept:
            is_trait = is_trait or name.startswith(" as ", at)
            plain += "" if is_trait else char
    return re.sub(r"(::)+", "::", plain).removesuffix("::")


def floor(profiles, kept=("ICRC", "copies")):
    """The largest possible speedup over rdma_rxe if all but this part cost nothing, from the two
    drivers' profiles of one case."""
    left = sum(profiles["ferroce"]["kinds"][kind] for kind in kept)
    return profiles["rxe"]["each"] / left


def without(profiles, dropped=("the driver",)):
    """The speedup over rdma_rxe if only this part cost nothing."""
    return floor(profiles, [kind for kind in profiles["ferroce"]["kinds"] if kind not in dropped])
