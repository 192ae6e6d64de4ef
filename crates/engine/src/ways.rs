//! Ways: the lines and addresses over which the packets of one peer go, and the choice among them for each packet.

use crate::gathered::{ALIVE, ALIVE_FOR_SHARES};
use crate::peer_line::PeerLines;
use lines::inner::Reader;
use lines::scheduler::{FlowTable, PacketShare};
use netio::udp::Endpoint;
use plane::{LINES_MAX, LineId, LineMode, LineSet};
use std::sync::{Mutex, PoisonError};

/// One line, and an address that it leads to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Way {
    pub(crate) line: LineId,
    pub(crate) endpoint: Endpoint,
}

/// How a peer's packets are spread over several lines. A peer that uses one line has none.
#[derive(Debug)]
pub(crate) enum Plan {
    Duplicate(LineSet),
    Critical(LineSet),
    Balance {
        lines: LineSet,
        flows: Box<FlowTable>,
    },
    BalancePackets {
        lines: LineSet,
        /// The worker that fills batches uses it; control copies it when the mode changes.
        packets: Box<Mutex<Packets>>,
    },
}

/// Packets in turn among lines, and among the addresses of one line.
#[derive(Clone, Debug, Default)]
pub(crate) struct Packets {
    lines: PacketShare,
    /// By position.
    addresses: PacketShare,
    count: usize,
}

impl Packets {
    /// The way of a packet, if the line that is next has one.
    fn next(&mut self, ways: &[Way], bytes: usize) -> Option<Way> {
        let line = self.lines.next(bytes)?;
        self.on(line, ways, bytes)
    }

    /// The way of a packet by a line, if it has one.
    fn on(&mut self, line: LineId, ways: &[Way], bytes: usize) -> Option<Way> {
        let same = || ways.iter().filter(|way| way.line == line);
        let count = same().count().min(LINES_MAX);
        if count < 2 {
            return same().next().copied();
        }
        if self.count != count {
            self.count = count;
            self.addresses
                .share(&std::array::from_fn(|at| u64::from(at < count)));
        }
        let turn = self.addresses.next(bytes)?;
        same().nth(turn.index()).copied()
    }
}

/// The lines that have a share.
fn sharing(shares: &[u64; LINES_MAX]) -> LineSet {
    let numbered = (0..).map(LineId).zip(shares);
    let lines = numbered.filter(|(_, share)| **share > 0);
    lines.map(|(line, _)| line).collect()
}

impl Plan {
    /// The plan of a mode; `None` for one line only. Flows stay where they were before where they can.
    pub(crate) fn new(mode: LineMode, before: Option<&Self>) -> Option<Self> {
        Some(match mode {
            LineMode::Single => return None,
            LineMode::Duplicate(lines) => Self::Duplicate(lines),
            LineMode::Critical(lines) => Self::Critical(lines),
            LineMode::Balance(shares) => {
                let mut flows = match before {
                    Some(Self::Balance { flows, .. }) => flows.clone(),
                    _ => Box::default(),
                };
                flows.share(&shares);
                let lines = sharing(&shares);
                Self::Balance { lines, flows }
            }
            LineMode::BalancePackets(shares) => {
                let mut packets = match before {
                    Some(Self::BalancePackets { packets, .. }) => locked(packets).clone(),
                    _ => Packets::default(),
                };
                packets.lines.share(&shares);
                Self::BalancePackets {
                    lines: sharing(&shares),
                    packets: Box::new(Mutex::new(packets)),
                }
            }
        })
    }

    /// Collects the ways of a peer. Of `Critical` the first is that of the line in use, if that has any. Returns whether
    /// there are ways to choose from; else packets go by the line in use.
    pub(crate) fn collect(&self, peer: &PeerLines, ways: &mut Vec<Way>) -> bool {
        ways.clear();
        let used = peer.used_id();
        let (lines, first) = match self {
            Self::Duplicate(lines) => (*lines, lines.contains(used)),
            Self::Critical(lines) => {
                if peer.used().stream.load().is_some() {
                    return false;
                }
                (*lines, true)
            }
            Self::Balance { lines, .. } | Self::BalancePackets { lines, .. } => (*lines, false),
        };
        let shares = matches!(self, Self::Balance { .. } | Self::BalancePackets { .. });
        let within = if shares { ALIVE_FOR_SHARES } else { ALIVE };
        if first {
            add(peer, used, within, ways);
        }
        for line in lines.filter(|line| !(first && *line == used)) {
            add(peer, line, within, ways);
        }
        if shares {
            // A connection keeps its way although another address has become the first.
            ways.sort_unstable_by_key(|way| {
                let source = way.endpoint.source.map(|source| source.ip);
                (way.line, way.endpoint.addr, source)
            });
        }
        !ways.is_empty()
    }

    /// The line by which a packet goes and no other; `used` is that which is in use.
    pub(crate) fn line_of(
        &self,
        ways: &[Way],
        reader: &Reader,
        packet: &[u8],
        used: LineId,
    ) -> Option<LineId> {
        if let Self::BalancePackets { .. } = self {
            // A packet that cannot be read goes by the line in use as well.
            let any = reader.read(packet).is_some_and(|it| !it.critical());
            return (!any).then_some(used);
        }
        let chosen = self.choose(ways, reader, packet, (true, None));
        Some(chosen.map_or(used, |(way, _)| way.line))
    }

    /// Whether a line carries a large part of the packets, so that what is sent once more is little for it.
    pub(crate) fn is_large(&self, line: LineId) -> bool {
        match self {
            Self::BalancePackets { packets, .. } => locked(packets).lines.is_large(line),
            _ => true,
        }
    }

    /// The way of a packet, and those of its copies. `None`: the line in use, without copies. `inner`: it is none of control's.
    /// `by`: where packets are shared out, the line whose turn it is, in place of that which had the least.
    pub(crate) fn choose<'a>(
        &self,
        ways: &'a [Way],
        reader: &Reader,
        packet: &[u8],
        (inner, by): (bool, Option<LineId>),
    ) -> Option<(Way, &'a [Way])> {
        let (first, others) = ways.split_first()?;
        match self {
            Self::Duplicate(_) => Some((*first, others)),
            Self::Critical(_) => {
                let critical = !inner || reader.read(packet).is_some_and(|it| it.critical());
                critical.then_some((*first, others))
            }
            Self::Balance { flows, .. } => {
                let flow = reader.read(packet).filter(|_| inner)?.flow;
                let line = flows.line(flow)?;
                let same = || ways.iter().filter(|way| way.line == line);
                // Addresses of one line share its flows.
                let turn = flow as usize % same().count().max(1);
                same().nth(turn).map(|way| (*way, &[][..]))
            }
            Self::BalancePackets { packets, .. } => {
                let inner = reader.read(packet).filter(|_| inner)?;
                if inner.critical() {
                    return None;
                }
                let mut packets = locked(packets);
                let way = by.and_then(|line| packets.on(line, ways, packet.len()));
                let way = way.or_else(|| packets.next(ways, packet.len()))?;
                Some((way, &[]))
            }
        }
    }
}

fn locked(packets: &Mutex<Packets>) -> std::sync::MutexGuard<'_, Packets> {
    packets.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Adds the ways of one line, where copies can go: not those of streams.
fn add(peer: &PeerLines, line: LineId, within: u64, ways: &mut Vec<Way>) {
    if let Some(known) = peer.get(line)
        && known.stream.load().is_none()
    {
        known
            .addresses
            .alive(within, |endpoint, _| ways.push(Way { line, endpoint }));
    }
}
