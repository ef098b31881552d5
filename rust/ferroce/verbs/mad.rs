// SPDX-License-Identifier: GPL-2.0

//! Management datagrams that a port answers by itself.

use roce::pma::{self, PortCounters, MAD_BYTES};

use crate::device::Device;
use crate::stats::Counter;

/// Returns the response to `request`; none if it does not ask for counters.
pub(super) fn process(device: &Device, request: &[u8; MAD_BYTES]) -> Option<[u8; MAD_BYTES]> {
    pma::answer(request, || counters(device))
}

fn counters(device: &Device) -> PortCounters {
    let get = |counter| device.total(counter);
    PortCounters {
        link_downed: get(Counter::LinkDowned),
        rcv_errors: [Counter::BadIcrc, Counter::BadHeader, Counter::BadOpcode]
            .map(get)
            .into_iter()
            .fold(0, u64::saturating_add),
        rcv_constraint_errors: get(Counter::BadPkey),
        xmit_discards: get(Counter::SendError),
        xmit_bytes: get(Counter::SentBytes),
        rcv_bytes: get(Counter::ReceivedBytes),
        xmit_packets: get(Counter::SentPackets),
        rcv_packets: get(Counter::ReceivedPackets),
        multicast_xmit_packets: get(Counter::SentMulticast),
        multicast_rcv_packets: get(Counter::ReceivedMulticast),
    }
}
