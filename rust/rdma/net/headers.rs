// SPDX-License-Identifier: GPL-2.0

//! Sizes of the headers of datagrams.

/// Bytes of an IPv4 header without options.
pub(super) const IPV4_BYTES: usize = 20;
/// Bytes of an IPv6 header.
pub(super) const IPV6_BYTES: usize = 40;
/// Bytes of a UDP header.
pub(super) const UDP_BYTES: usize = 8;
