//! A server that is reached over TCP, over one of several uplinks (lines).
//!
//! A connection cannot change its line: another line needs another connection and a new session. So one line is used at
//! a time, and its state costs no traffic. The host reports its device, the kernel reports unacknowledged data
//! (`TCP_USER_TIMEOUT`), and each attempt shows whether it reaches the server.
//!
//! Of the other lines, only those preferred to the one in use are tested, to find out when to go back. The client opens
//! a connection to the server and closes it at once. The server logs that as a client that changed its mind.

use super::connection::{Connection, End};
use super::{Machine, Phase};
use config::lines::{LineMode, Lines as Settings};
use config::openvpn::OpenVpn;
use lines::control::{LineFacts, LineReport};
use lines::health::{Fault, LineState, Reason};
use lines::scheduler::{LineSettings, Scheduler, SwitchReason};
use plane::LineId;
use plane::Now;
use std::time::{Duration, Instant};

use crate::openvpn::client::host::Cx;

/// Interval of tests on a preferred line: `TRY` while it fails (the server sees no attempts), `TRY_UP` while it works,
/// `TRY_METERED` if it costs money.
const TRY: Duration = Duration::from_secs(10);
const TRY_UP: Duration = Duration::from_secs(30);
const TRY_METERED: Duration = Duration::from_secs(600);

/// Interval between the two successful tests that a failed line needs.
const AGAIN: Duration = Duration::from_secs(5);

/// State of one line.
struct OfLine {
    state: LineState,
    reason: Option<Reason>,
    since: Option<Instant>,
    fault: Option<Fault>,
    ifindex: Option<u32>,
    /// When the line last failed to reach the server.
    failed: Option<Instant>,
    /// The line has passed one test since it failed.
    answered: bool,
    /// When the next test is due; set from the first connection on.
    next: Option<Instant>,
    round_trip: Option<Duration>,
}

/// The lines over which connections to the server are made.
pub(super) struct StreamLines {
    settings: Settings,
    lines: Vec<OfLine>,
    scheduler: Scheduler,
    /// The host has reported on the lines.
    known: bool,
    /// The line of the current or last connection.
    used: Option<LineId>,
    /// The line under test, and since when.
    trying: Option<(LineId, Instant)>,
    /// The device of the line in use was replaced.
    replaced: bool,
}

impl StreamLines {
    /// Returns `None` without lines or without a TCP server.
    pub(super) fn new(config: &OpenVpn) -> Option<Box<Self>> {
        let mut connections = config.connections.iter();
        let tcp = connections.any(|it| it.protocol.transport.is_tcp());
        if !tcp || config.lines.lines.is_empty() {
            return None;
        }
        let settings = config.lines.clone();
        let mut scheduler = Scheduler::of(&settings);
        for (id, line) in (0..).map(LineId).zip(&settings.lines) {
            let settings = LineSettings {
                stream: true,
                ..line.into()
            };
            scheduler.add(id, settings);
        }
        let line = |_| OfLine {
            state: LineState::Unknown,
            reason: None,
            since: None,
            fault: None,
            ifindex: None,
            failed: None,
            answered: false,
            next: None,
            round_trip: None,
        };
        Some(Box::new(Self {
            lines: settings.lines.iter().map(line).collect(),
            settings,
            scheduler,
            known: false,
            used: None,
            trying: None,
            replaced: false,
        }))
    }

    fn set(
        &mut self,
        line: LineId,
        state: LineState,
        reason: Reason,
        now: Instant,
    ) -> Option<String> {
        let of = self.lines.get_mut(line.index())?;
        if state == LineState::Down {
            of.answered = false;
        }
        let told = of.state != state;
        (of.state, of.reason) = (state, Some(reason));
        if told {
            of.since = Some(now);
        }
        let name = &self.settings.lines.get(line.index())?.name;
        told.then(|| format!("uplink {name} is {state}: {reason}"))
    }

    /// Takes the host's report on the uplinks. Returns the changes, in words.
    fn read(&mut self, facts: &[Option<LineFacts>], now: Instant) -> Vec<String> {
        self.known = true;
        let mut told = Vec::new();
        for line in (0..self.lines.len() as u8).map(LineId) {
            let facts = facts.get(line.index()).copied().flatten();
            let fault = facts.map_or(Some(Fault::NoDevice), LineFacts::fault);
            let ifindex = facts.map(|it| it.ifindex);
            let Some(of) = self.lines.get_mut(line.index()) else {
                continue;
            };
            let before = std::mem::replace(&mut of.fault, fault);
            let other = std::mem::replace(&mut of.ifindex, ifindex) != ifindex;
            self.replaced |= other && self.used == Some(line);
            match (before, fault) {
                (_, Some(fault)) if before != Some(fault) => {
                    told.extend(self.set(line, LineState::Down, Reason::Fault(fault), now));
                }
                (Some(gone), None) => {
                    of.next = Some(now);
                    let reason = Reason::FaultGone(gone);
                    told.extend(self.set(line, LineState::Unknown, reason, now));
                }
                _ => {}
            }
        }
        told
    }

    /// Whether a connection can be tried over any line.
    fn has_line(&self) -> bool {
        self.known && self.lines.iter().any(|of| of.fault.is_none())
    }

    /// Whether there is another line that has not failed.
    fn has_other(&self) -> bool {
        let lines = (0..).map(LineId).zip(&self.lines);
        let mut others = lines.filter(|(line, _)| Some(*line) != self.used);
        self.settings.mode != LineMode::Single && others.any(|(_, of)| of.state != LineState::Down)
    }

    /// Chooses the line for the next connection.
    fn choose(&mut self, now: Instant) -> Option<LineId> {
        for (line, of) in (0..).map(LineId).zip(&self.lines) {
            self.scheduler.set_state(line, of.state, now);
        }
        let active = self.scheduler.active()?;
        let state = self.lines.get(active.index()).map(|of| of.state);
        let line = match state {
            // No line is known to work, so each has its turn.
            Some(LineState::Down) if self.settings.mode != LineMode::Single => {
                let lines = (0..).map(LineId).zip(&self.lines);
                let without = lines.filter(|(_, of)| of.fault.is_none());
                let oldest = without.min_by_key(|(_, of)| of.failed);
                oldest.map_or(active, |(line, _)| line)
            }
            _ => active,
        };
        for of in &mut self.lines {
            of.next.get_or_insert(now);
        }
        self.used = Some(line);
        self.replaced = false;
        self.used
    }

    /// Whether a line, if it worked, would be preferred to the one in use.
    fn is_better(&self, line: LineId) -> bool {
        self.used
            .is_some_and(|used| self.scheduler.prefers(line, used))
    }

    /// Lines worth testing, and when each test is due.
    fn trials(&self) -> impl Iterator<Item = (LineId, Instant)> + '_ {
        let lines = (0..).map(LineId).zip(&self.lines);
        lines
            .filter(|(line, of)| of.fault.is_none() && self.is_better(*line))
            .filter_map(|(line, of)| Some((line, of.next?)))
    }

    /// The next deadline while a connection lasts.
    fn due(&self) -> Option<Instant> {
        let trials = self.trials().filter(|_| self.trying.is_none());
        let trials = trials.map(|(_, at)| at);
        trials.chain(self.scheduler.next_deadline()).min()
    }

    fn every(&self, line: LineId) -> Duration {
        let of = self.lines.get(line.index());
        match self.scheduler.is_spared(line) {
            true => TRY_METERED,
            false if of.is_some_and(|of| of.state == LineState::Up) => TRY_UP,
            false => TRY,
        }
    }

    /// Returns the line to test now, and marks it as under test.
    fn trial(&mut self, now: Instant) -> Option<LineId> {
        if self.trying.is_some() {
            return None;
        }
        let mut trials = self.trials();
        let (line, _) = trials.find(|(_, at)| *at <= now)?;
        drop(trials);
        let every = self.every(line);
        if let Some(of) = self.lines.get_mut(line.index()) {
            of.next = Some(now + every);
        }
        self.trying = Some((line, now));
        Some(line)
    }

    /// Records that a line reached the server, with the time that took if known.
    fn reached(&mut self, line: LineId, took: Option<Duration>, now: Instant) -> Option<String> {
        let of = self.lines.get_mut(line.index())?;
        of.round_trip = took.or(of.round_trip);
        if of.fault.is_some() {
            return None;
        }
        if of.state == LineState::Down && self.used != Some(line) && !of.answered {
            of.answered = true;
            of.next = Some(now + AGAIN);
            return None;
        }
        let reason = match (of.state, of.since) {
            (LineState::Down, Some(since)) => {
                Reason::PacketsAgain(now.saturating_duration_since(since))
            }
            (LineState::Up, _) => of.reason.unwrap_or(Reason::FirstPacket),
            _ => Reason::FirstPacket,
        };
        self.set(line, LineState::Up, reason, now)
    }

    /// Records that a line failed to reach the server within this time.
    fn failed(&mut self, line: LineId, time: Duration, now: Instant) -> Option<String> {
        let words = self.set(line, LineState::Down, Reason::Silent(time), now);
        let every = self.every(line);
        let of = self.lines.get_mut(line.index())?;
        of.next = Some(now + every);
        of.failed = Some(now);
        words
    }

    /// Returns the reason to reconnect over another line, if there is one.
    fn leaves(&mut self, now: Instant) -> Option<String> {
        let mut switch = None;
        for (line, of) in (0..).map(LineId).zip(&self.lines) {
            switch = self.scheduler.set_state(line, of.state, now).or(switch);
        }
        let active = self.scheduler.active()?;
        let works = |line: LineId| {
            let of = self.lines.get(line.index());
            of.is_some_and(|of| of.state != LineState::Down)
        };
        let name = |line: LineId| {
            let line = self.settings.lines.get(line.index());
            line.map_or("?", |it| it.name.as_str())
        };
        if self.replaced && works(active) {
            return Some(format!("the device of uplink {} has changed", name(active)));
        }
        if self.used == Some(active) || !works(active) {
            return None;
        }
        // Without a recorded reason, the line in use failed.
        let reason = switch.map_or(SwitchReason::Failed, |it| it.reason);
        Some(format!("uplink {} is used now: {reason}", name(active)))
    }

    fn reports(&self) -> Vec<LineReport> {
        let all = (0..)
            .map(LineId)
            .zip(self.settings.lines.iter().zip(&self.lines));
        let report = all.map(|(line, (settings, of))| {
            let reason = match (of.reason, self.used == Some(line) || self.is_better(line)) {
                (Some(reason), _) => reason.to_string(),
                (None, true) => "no packet has arrived on it yet".to_owned(),
                (None, false) => "it is idle, and is tried when needed".to_owned(),
            };
            LineReport {
                line,
                name: settings.name.clone(),
                state: of.state.to_string(),
                reason,
                since: of.since,
                in_use: self.used == Some(line),
                round_trip: of.round_trip,
                jitter: None,
                loss: None,
                cap: None,
            }
        });
        report.collect()
    }
}

impl Machine<'_> {
    /// The line of the current TCP connection.
    pub(in crate::openvpn::client) fn stream_line(&self) -> Option<LineId> {
        self.connection()?.stream?;
        self.stream_lines.as_ref()?.used
    }

    pub(super) fn stream_reports(&self) -> Vec<LineReport> {
        let lines = self.stream_lines.as_ref();
        lines.map_or_else(Vec::new, |it| it.reports())
    }

    /// Whether a TCP connection must wait for a line.
    pub(super) fn waits_for_line(&self) -> bool {
        let lines = self.stream_lines.as_ref();
        lines.is_some_and(|it| !it.has_line())
    }

    /// Chooses the line for the next TCP connection; `None` without lines.
    pub(super) fn choose_line(&mut self, now: Now) -> Option<LineId> {
        self.stream_lines.as_mut()?.choose(now.monotonic)
    }

    /// Reads the host's state of the uplinks.
    pub(super) fn read_stream_lines(&mut self, cx: &mut Cx<'_>) {
        let Some(lines) = &mut self.stream_lines else {
            return;
        };
        for words in lines.read(&cx.host.line_facts(), cx.now.monotonic) {
            cx.info(words);
        }
        if matches!(self.phase, Phase::Await(..)) && !self.waits_for_line() {
            if let Phase::Await(candidate, login, _) =
                std::mem::replace(&mut self.phase, Phase::Idle)
            {
                self.dial(candidate, login, cx);
            }
        } else {
            self.follow_stream_lines(cx);
        }
    }

    /// When the lines of a TCP connection need attention.
    pub(super) fn stream_lines_due(&self) -> Option<Instant> {
        // An ended connection may have to wait for a script.
        self.connection()
            .filter(|it| it.stream.is_some() && it.end.is_none())?;
        self.stream_lines.as_ref()?.due()
    }

    /// Tests preferred lines, and leaves the line in use for a better one.
    pub(super) fn follow_stream_lines(&mut self, cx: &mut Cx<'_>) {
        let Some(lines) = &mut self.stream_lines else {
            return;
        };
        let Phase::Connection(it) = &mut self.phase else {
            return;
        };
        if it.stream.is_none() || it.end.is_some() {
            return;
        }
        if let Some(words) = lines.leaves(cx.now.monotonic) {
            return self.with_connection(cx, |_, it, _| {
                it.end.get_or_insert(End::OtherLine(words));
            });
        }
        if let Some(line) = lines.trial(cx.now.monotonic)
            && let Some(settings) = self.config.lines.lines.get(line.index())
        {
            let target = it.target.as_ref().clone().by_line(settings);
            cx.later(move |host| host.try_line(line, target));
        }
    }

    /// Handles the result of a test.
    pub(super) fn line_tried(&mut self, line: LineId, result: Result<(), String>, cx: &mut Cx<'_>) {
        let Some(lines) = &mut self.stream_lines else {
            return;
        };
        let Some((_, since)) = lines.trying.take_if(|(tried, _)| *tried == line) else {
            return;
        };
        let took = cx.now.monotonic.saturating_duration_since(since);
        let words = match result {
            Ok(()) => lines.reached(line, Some(took), cx.now.monotonic),
            Err(why) => {
                cx.debug(format!("tried an uplink: {why}"));
                lines.failed(line, took, cx.now.monotonic)
            }
        };
        if let Some(words) = words {
            cx.info(words);
        }
        self.follow_stream_lines(cx);
    }

    /// Records that the line in use reached the server.
    pub(super) fn line_reached(&mut self, cx: &mut Cx<'_>) {
        let Some(lines) = &mut self.stream_lines else {
            return;
        };
        let words = lines
            .used
            .and_then(|line| lines.reached(line, None, cx.now.monotonic));
        if let Some(words) = words {
            cx.info(words);
        }
    }

    /// Records that the line in use failed to reach the server within this time. Returns whether another may do better.
    pub(super) fn line_failed(&mut self, time: Duration, cx: &mut Cx<'_>) -> bool {
        let Some(lines) = &mut self.stream_lines else {
            return false;
        };
        let words = lines
            .used
            .and_then(|line| lines.failed(line, time, cx.now.monotonic));
        if let Some(words) = words {
            cx.info(words);
        }
        lines.has_other()
    }

    /// Counts the end of a TCP session against its line, if the line may be the cause.
    pub(super) fn blame_line(&mut self, it: &Connection, time: Duration, cx: &mut Cx<'_>) {
        if it.stream.is_some() {
            self.line_failed(time, cx);
        }
    }
}
