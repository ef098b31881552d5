# SPDX-License-Identifier: GPL-2.0
"""What is made of a profile: how much of a message's work is of which kind, and in which functions."""

import re

# The first that fits. CRCs are those of packets; what is copied or zeroed is mostly payload and
# memory for packets.
KINDS = (
    ("ICRC", None, r"crc32|kernel_fpu_|icrc"),
    ("copies", None, r"memcpy|memmove|copy_(to|from)_|skb_copy|rep_movs|rxe_mr_copy"),
    ("zeroing", None, r"memset|clear_page"),
    ("idle", None, r"safe_halt|default_idle|cpu_idle|do_idle"),
    ("the driver", r"^(ferroce|rdma_rxe)$", None),
    ("verbs of the kernel", r"^(ib_(core|uverbs|uverbs_support|cm|umad)|rdma_u?cm)$", None),
    ("the rest of the kernel", r"^(kernel|veth|sch_\w+|nf_\w+|udp_tunnel|ip6_udp_tunnel|x_tables)$", None),
    ("processes", None, None),
)


def kind_of(module, name):
    for kind, modules, names in KINDS:
        if (not modules or re.search(modules, module)) and (not names or re.search(names, name)):
            return kind
    raise AssertionError("the last one fits all")


def breakdown(each, shares, most=16):
    """Of samples by module and name, and what a message takes: how much of that is of each kind, and
    the functions that take most."""
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
    """A function of Rust's without type arguments and the trait that it is of; others as they are."""
    plain, depth, is_trait = "", 0, False
    # What is in the brackets that a name begins with is its type, in any other an argument.
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
    """How many times rdma_rxe's speed would be had at most, did all but that cost nothing: of the
    two drivers' profiles of one case."""
    left = sum(profiles["ferroce"]["kinds"][kind] for kind in kept)
    return profiles["rxe"]["each"] / left


def without(profiles, dropped=("the driver",)):
    """Likewise, did only that cost nothing."""
    return floor(profiles, [kind for kind in profiles["ferroce"]["kinds"] if kind not in dropped])
