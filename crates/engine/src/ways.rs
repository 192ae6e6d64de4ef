//! Ways: the lines and addresses over which the packets of one peer go, and the choice among them for each packet.

use crate::gathered::{ALIVE, ALIVE_FOR_SHARES};
use crate::peer_line::PeerLines;
use lines::balance::{FlowTable, PacketShare};
use lines::inner::Reader;
use netio::udp::Endpoint;
use plane::{LINES_MAX, LineId, LineMode, LineSet};
use std::sync::{Mutex, PoisonError};

/// A line and a peer's address on it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Way {
    pub(crate) line: LineId,
    pub(crate) endpoint: Endpoint,
}

/// How a peer's packets are spread over several lines. A peer that uses one line has no plan.
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
        /// The shares. The worker that fills batches uses them; control copies them when the mode changes.
        packets: Box<Mutex<Packets>>,
    },
}

/// Shares packets among lines, and among the addresses of one line.
#[derive(Clone, Debug, Default)]
pub(crate) struct Packets {
    lines: PacketShare,
    /// Shares packets among one line's addresses, which are numbered by their order in the list of ways.
    addresses: PacketShare,
    count: usize,
}

impl Packets {
    /// The way of a packet over the next line; `None` if that line has no way.
    fn next(&mut self, ways: &[Way], bytes: usize) -> Option<Way> {
        let line = self.lines.next(bytes)?;
        self.on(line, ways, bytes)
    }

    /// The way of a packet over `line`, if that line has one.
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

impl Plan {
    /// The plan of a mode; `None` for a single line. Flows keep their lines of the plan `before` where possible.
    pub(crate) fn new(mode: LineMode, before: Option<&Self>) -> Option<Self> {
        let lines = mode.lines();
        Some(match mode {
            LineMode::Single => return None,
            LineMode::Duplicate(_) => Self::Duplicate(lines),
            LineMode::Critical(_) => Self::Critical(lines),
            LineMode::Balance(shares) => {
                let mut flows = match before {
                    Some(Self::Balance { flows, .. }) => flows.clone(),
                    _ => Box::default(),
                };
                flows.share(&shares);
                Self::Balance { lines, flows }
            }
            LineMode::BalancePackets(shares) => {
                let mut packets = match before {
                    Some(Self::BalancePackets { packets, .. }) => locked(packets).clone(),
                    _ => Packets::default(),
                };
                packets.lines.share(&shares);
                Self::BalancePackets {
                    lines,
                    packets: Box::new(Mutex::new(packets)),
                }
            }
        })
    }

    /// Collects the ways of a peer. With `Critical`, the first way belongs to the line in use, if it has any. Returns
    /// whether there are ways to choose from; if not, packets take the line in use.
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
            // Sorting keeps a connection on its way when another address becomes first.
            ways.sort_unstable_by_key(|way| {
                let source = way.endpoint.source.map(|source| source.ip);
                (way.line, way.endpoint.addr, source)
            });
        }
        !ways.is_empty()
    }

    /// The only line that a packet may take; `None` if it may take any. `used` is the line in use.
    pub(crate) fn line_of(
        &self,
        ways: &[Way],
        reader: &Reader,
        packet: &[u8],
        used: LineId,
    ) -> Option<LineId> {
        if let Self::BalancePackets { .. } = self {
            // An unreadable packet takes the line in use too.
            let any = reader.read(packet).is_some_and(|it| !it.critical());
            return (!any).then_some(used);
        }
        let chosen = self.choose(ways, reader, packet, (true, None));
        Some(chosen.map_or(used, |(way, _)| way.line))
    }

    /// Whether a line carries a large part of the packets, so that retransmissions add little load.
    pub(crate) fn is_large(&self, line: LineId) -> bool {
        match self {
            Self::BalancePackets { packets, .. } => locked(packets).lines.is_large(line),
            _ => true,
        }
    }

    /// The way of a packet and the ways of its copies; `None` means the line in use, without copies. `inner` is false
    /// for control's messages. `by` is the line whose turn it is, instead of the line with the least traffic.
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
                // The addresses of a line share its flows.
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

/// Adds the ways of one line, unless the line has a stream: copies cannot take streams.
fn add(peer: &PeerLines, line: LineId, within: u64, ways: &mut Vec<Way>) {
    if let Some(known) = peer.get(line)
        && known.stream.load().is_none()
    {
        known
            .addresses
            .alive(within, |endpoint, _| ways.push(Way { line, endpoint }));
    }
}
