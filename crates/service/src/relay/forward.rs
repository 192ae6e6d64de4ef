//! Forwards datagrams through a relay, without allocating memory.

use super::Link;
use host::strangers;
use lines::relay::{Change, Piece, Refused, Table, pieces};
use netio::udp::{Family, ReceivedTrain, RecvScratch, SendScratch, TRAIN_ROOM, Train, UdpSocket};
use plane::Endpoint;
use std::fmt;
use std::io;
use std::net::SocketAddr;
use std::time::Instant;

/// The longest expected datagram, in bytes; a longer one costs a separate system call.
const STRIDE: usize = 2048;

/// Maximum number of datagrams of one system call, where they come one by one.
const DATAGRAMS: usize = TRAIN_ROOM / STRIDE;

/// Maximum number of pieces received in one call: a train has at most 128 datagrams (Linux 6.9 and later).
const PIECES: usize = 128;

/// Maximum number of reads of one socket in a row, so that other sockets have their turn.
const READS: usize = 8;

pub(super) struct Forwarder {
    pub(super) table: Table,
    /// The sockets towards the clients.
    listen: Link,
    /// The sockets towards the target, one pair for each client.
    pub(super) links: Vec<Link>,
    /// The target's address, once known.
    pub(super) target: Option<SocketAddr>,
    memory: Vec<u8>,
    received: Vec<ReceivedTrain>,
    trains: Vec<Train>,
    recv: RecvScratch,
    send: SendScratch,
    /// Datagrams from a sender other than the target.
    not_target: u64,
    /// Datagrams that the kernel did not send, or that arrived truncated.
    unsent: u64,
    /// Datagrams that came while the target's address was unknown.
    untargeted: u64,
}

fn family(addr: SocketAddr) -> Family {
    match addr {
        SocketAddr::V4(_) => Family::V4,
        SocketAddr::V6(_) => Family::V6,
    }
}

/// Number of datagrams of `segment` bytes in `bytes`.
fn count(bytes: usize, segment: u32) -> u32 {
    (bytes as u32).div_ceil(segment.max(1))
}

impl Forwarder {
    pub(super) fn new(table: Table, listen: Link) -> Self {
        Self {
            table,
            listen,
            links: Vec::new(),
            target: None,
            memory: vec![0; TRAIN_ROOM],
            received: Vec::with_capacity(DATAGRAMS),
            trains: Vec::with_capacity(PIECES),
            recv: RecvScratch::new(),
            send: SendScratch::new(),
            not_target: 0,
            unsent: 0,
            untargeted: 0,
        }
    }

    pub(super) fn next_deadline(&self) -> Option<Instant> {
        self.table.next_deadline()
    }

    pub(super) fn expire(&mut self, now: Instant) {
        if self.next_deadline().is_some_and(|at| at <= now) {
            self.table.expire(now, |name, from| {
                log::info!("client {name} is silent; it was at {from}");
            });
        }
    }

    /// Forwards datagrams that wait in a socket for clients.
    pub(super) fn serve_clients(&mut self, at: usize) {
        for _ in 0..READS {
            let Some(socket) = self.listen.sockets().nth(at) else {
                return;
            };
            let read = read(socket, &mut self.recv, &mut self.memory, &mut self.received);
            match read {
                Some(lost) => self.unsent += lost,
                None => return,
            }
            self.send_on();
        }
    }

    /// Sends datagrams received from clients to the target.
    fn send_on(&mut self) {
        let now = Instant::now();
        let received = std::mem::take(&mut self.received);
        let memory = std::mem::take(&mut self.memory);
        self.send.begin_batch();
        let mut whose = None;
        for train in &received {
            let start = train.start as usize;
            let bytes = &memory[start..start + train.len as usize];
            for piece in pieces(bytes, train.segment as usize) {
                let range = match piece {
                    Piece::Forward(range) => range,
                    Piece::Hello(range) => {
                        let from = Endpoint {
                            addr: train.from,
                            source: train.local,
                        };
                        let heard = self.table.hello(&bytes[range], from, now);
                        tell(&self.table, heard, train.from);
                        continue;
                    }
                };
                let datagrams = count(range.len(), train.segment);
                let passes = self
                    .table
                    .outbound(train.from, datagrams, train.segment, now);
                let Some((number, taken)) = passes.filter(|it| it.1 > 0) else {
                    continue;
                };
                let Some(target) = self.target else {
                    self.untargeted += u64::from(taken);
                    continue;
                };
                if whose != Some(number) {
                    self.flush(whose, &memory);
                    whose = Some(number);
                }
                self.trains.push(Train {
                    start: train.start + range.start as u32,
                    len: (range.len() as u32).min(taken * train.segment),
                    segment: train.segment,
                    endpoint: Endpoint::new(target),
                    ecn: train.ecn,
                });
            }
        }
        self.flush(whose, &memory);
        (self.received, self.memory) = (received, memory);
    }

    /// Sends the datagrams gathered for the target, from this client's port.
    fn flush(&mut self, whose: Option<usize>, memory: &[u8]) {
        let link = whose.and_then(|number| self.links.get(number));
        let socket = link
            .zip(self.target)
            .and_then(|(link, to)| link.of(family(to)));
        self.unsent += match socket {
            Some(socket) => {
                let report = socket.send_trains(&mut self.send, memory, &self.trains);
                report.dropped
            }
            None => self.trains.iter().map(|it| u64::from(it.count())).sum(),
        };
        self.trains.clear();
    }

    /// Forwards answers that wait in a client's socket towards the target, the first or the second one.
    pub(super) fn serve_target(&mut self, number: usize, second: bool) {
        for _ in 0..READS {
            let link = self.links.get(number);
            let Some(socket) = link.and_then(|it| it.sockets().nth(usize::from(second))) else {
                return;
            };
            let read = read(socket, &mut self.recv, &mut self.memory, &mut self.received);
            match read {
                Some(lost) => self.unsent += lost,
                None => return,
            }
            self.send_back(number);
        }
    }

    /// Sends datagrams received from the target to a client.
    fn send_back(&mut self, number: usize) {
        let now = Instant::now();
        let mut to = None;
        for train in &self.received {
            let datagrams = count(train.len as usize, train.segment);
            if Some(train.from) != self.target {
                self.not_target += u64::from(datagrams);
                continue;
            }
            let passes = self.table.back(number, datagrams, train.segment, now);
            let Some((endpoint, taken)) = passes.filter(|it| it.1 > 0) else {
                continue;
            };
            to = Some(endpoint.addr);
            self.trains.push(Train {
                start: train.start,
                len: train.len.min(taken * train.segment),
                segment: train.segment,
                endpoint,
                ecn: train.ecn,
            });
        }
        if let Some(socket) = to.and_then(|to| self.listen.of(family(to))) {
            self.send.begin_batch();
            let report = socket.send_trains(&mut self.send, &self.memory, &self.trains);
            self.unsent += report.dropped;
            if report.source_gone {
                self.table.forget_source(number);
            }
        }
        self.trains.clear();
    }

    /// Counts of datagrams to the target and from it, of all clients.
    pub(super) fn moved(&self) -> (u64, u64) {
        let all = (0..self.table.len()).filter_map(|number| self.table.of(number));
        all.fold((0, 0), |(out, back), (_, counters)| {
            (out + counters.out.datagrams, back + counters.back.datagrams)
        })
    }

    /// Writes all counters to the log.
    pub(super) fn tell_counters(&self) {
        for number in 0..self.table.len() {
            let Some((place, counters)) = self.table.of(number) else {
                continue;
            };
            let name = self.table.name(number);
            let at = place.map_or_else(|| "not heard of late".to_owned(), |it| format!("at {it}"));
            let (out, back) = (counters.out, counters.back);
            log::info!(
                "client {name}: {at}; {} hellos; to the target {} datagrams, {} bytes, {} over the rate; \
                 back {} datagrams, {} bytes, {} over the rate",
                counters.hellos,
                out.datagrams,
                out.bytes,
                out.over_rate,
                back.datagrams,
                back.bytes,
                back.over_rate,
            );
        }
        let dropped = self.table.dropped();
        log::info!(
            "dropped: {} from strangers, {} for silent clients, {} from elsewhere than the target, {} before its address \
             was known, {} that could not be sent or received; hellos: {} of another form, {} of unknown keys, {} with a \
             wrong MAC, {} not newer than the last",
            dropped.strangers,
            dropped.silent,
            self.not_target,
            self.untargeted,
            self.unsent,
            dropped.hellos(Refused::Malformed),
            dropped.hellos(Refused::UnknownKey),
            dropped.hellos(Refused::WrongMac),
            dropped.hellos(Refused::OldStamp),
        );
    }
}

/// Reads waiting datagrams. Returns how many arrived truncated, or `None` if none wait.
fn read(
    socket: &UdpSocket,
    scratch: &mut RecvScratch,
    memory: &mut [u8],
    received: &mut Vec<ReceivedTrain>,
) -> Option<u64> {
    received.clear();
    let each = |train| received.push(train);
    match socket.recv_trains(scratch, memory, STRIDE, DATAGRAMS, each) {
        Ok(received) => Some(received.dropped),
        Err(error) => {
            if error.kind() != io::ErrorKind::WouldBlock {
                log::debug!("receiving: {error}");
            }
            None
        }
    }
}

/// Logs what a hello has changed. The number of lines is bounded: any sender can cause a debug line, and a client
/// with a key can cause a line with each hello by changing its port.
fn tell(table: &Table, heard: Result<(usize, Change), Refused>, from: SocketAddr) {
    let (number, change) = match heard {
        Ok(heard) => heard,
        Err(why) => {
            return strangers::log(log::Level::Debug, format_args!("hello from {from}: {why}"));
        }
    };
    let name = table.name(number);
    let info = |words: fmt::Arguments<'_>| strangers::log(log::Level::Info, words);
    match change {
        Change::None => {}
        Change::First => info(format_args!("client {name} is at {from}")),
        Change::Again => info(format_args!("client {name} is back, at {from}")),
        Change::Moved(before) => {
            info(format_args!(
                "client {name} has moved from {before} to {from}"
            ));
        }
    }
}
