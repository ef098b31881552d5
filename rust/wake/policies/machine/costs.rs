// SPDX-License-Identifier: GPL-2.0

//! The costs of operations on machines of several kinds.

/// A machine. Times are in nanoseconds, those of a byte in picoseconds.
#[derive(Clone, Copy)]
pub(crate) struct Costs {
    pub(crate) name: &'static str,
    /// CPUs of a host.
    pub(crate) cpus: usize,
    /// The link to the peer on another host of the kind. Without it a CPU receives its own packets.
    pub(crate) wire: Option<Wire>,
    /// A request is written to the queue.
    pub(crate) post: u64,
    pub(crate) doorbell: u64,
    /// A completion is seen.
    pub(crate) poll: u64,
    /// An event is fetched, and the next one asked for.
    pub(crate) event: u64,
    /// The interrupting CPU's time.
    pub(crate) interrupt: u64,
    /// The time from an interrupt until a softirq begins on that CPU.
    pub(crate) delivery: u64,
    /// The time from the softirq until a worker or a process begins.
    pub(crate) wake: u64,
    /// Between two that take turns on a CPU.
    pub(crate) switch: u64,
    /// Softirqs begin on a CPU.
    pub(crate) softirq: u64,
    /// A half is locked, and looked at.
    pub(crate) run: u64,
    /// A packet is made.
    pub(crate) send: u64,
    /// It is looked up, checked and placed.
    pub(crate) receive: u64,
    /// The layers of the network, once for each train.
    pub(crate) train: u64,
    /// A packet is steered and taken from the backlog.
    pub(crate) aside: u64,
    pub(crate) acknowledge: u64,
    pub(crate) acknowledged: u64,
    /// A byte is copied, with its CRC, at each end.
    pub(crate) send_byte: u64,
    pub(crate) receive_byte: u64,
}

/// The link between two hosts.
#[derive(Clone, Copy)]
pub(crate) struct Wire {
    pub(crate) latency: u64,
    pub(crate) byte: u64,
    /// A frame for the card's driver, on each end.
    pub(crate) frame: u64,
}

/// A virtual machine without hardware support.
pub(crate) const EMULATOR: Costs = Costs {
    name: "emulator",
    cpus: 2,
    wire: None,
    post: 300,
    doorbell: 2_000,
    poll: 300,
    event: 6_000,
    interrupt: 3_000,
    delivery: 14_000,
    wake: 3_000,
    switch: 2_500,
    softirq: 600,
    run: 500,
    send: 3_000,
    receive: 3_000,
    train: 1_000,
    aside: 600,
    acknowledge: 600,
    acknowledged: 1_000,
    send_byte: 1_400,
    receive_byte: 1_500,
};

/// A guest with hardware support: leaving it is expensive, and another CPU sleeps outside of it.
pub(crate) const GUEST: Costs = Costs {
    name: "guest",
    cpus: 4,
    post: 50,
    doorbell: 200,
    poll: 50,
    event: 1_200,
    interrupt: 1_500,
    delivery: 3_000,
    wake: 1_500,
    switch: 1_000,
    softirq: 250,
    run: 100,
    send: 450,
    receive: 450,
    train: 600,
    aside: 150,
    acknowledge: 150,
    acknowledged: 250,
    send_byte: 250,
    receive_byte: 300,
    ..EMULATOR
};

/// A server with both ends on it.
pub(crate) const SERVER: Costs = Costs {
    name: "server",
    cpus: 8,
    post: 30,
    doorbell: 120,
    poll: 30,
    event: 700,
    interrupt: 150,
    delivery: 700,
    wake: 800,
    switch: 600,
    softirq: 150,
    run: 70,
    send: 300,
    receive: 300,
    train: 450,
    aside: 100,
    acknowledge: 100,
    acknowledged: 150,
    send_byte: 150,
    receive_byte: 180,
    ..EMULATOR
};

/// Two large servers with cards of 100 Gb/s. A hash of the queue pair selects the receive queue.
pub(crate) const CARDS: Costs = Costs {
    name: "cards",
    cpus: 64,
    wire: Some(Wire {
        latency: 1_500,
        byte: 80,
        frame: 120,
    }),
    delivery: 1_200,
    wake: 1_200,
    ..SERVER
};

impl Costs {
    pub(crate) const fn with_cpus(self, cpus: usize) -> Self {
        Self { cpus, ..self }
    }
}
