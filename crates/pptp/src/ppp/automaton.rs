//! The option negotiation automaton's table, without timers and packets (RFC 1661, section 4).

/// A state (RFC 1661, section 4.2).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum State {
    /// The layer below is down, and this layer is not to be opened.
    Initial,
    /// The layer below is down, and this layer is to be opened.
    Starting,
    /// The layer below is up, and this layer is not to be opened.
    Closed,
    /// Like `Closed`, but a request from the peer opens the layer.
    Stopped,
    /// The layer is closing at our request.
    Closing,
    /// The layer is closing at the peer's request.
    Stopping,
    /// We have sent a request.
    ReqSent,
    /// The peer has acknowledged our request.
    AckRcvd,
    /// We have acknowledged the peer's request.
    AckSent,
    /// The layer is open.
    Opened,
}

/// An event (RFC 1661, section 4.3), with its RFC name in brackets.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Event {
    /// The layer below is up.
    Up,
    /// The layer below is down.
    Down,
    /// The layer is to be opened.
    Open,
    /// The layer is to be closed.
    Close,
    /// A timer ran out, and tries are left (TO+).
    Timeout,
    /// A timer ran out after the last try (TO-).
    GiveUp,
    /// A Configure-Request that we can accept (RCR+).
    GoodRequest,
    /// A Configure-Request that we cannot accept (RCR-).
    BadRequest,
    /// Configure-Ack (RCA).
    Ack,
    /// Configure-Nak or Configure-Reject (RCN).
    Nak,
    /// Terminate-Request (RTR).
    TerminateRequest,
    /// Terminate-Ack (RTA).
    TerminateAck,
    /// An unknown code (RUC).
    UnknownCode,
    /// A reject of a dispensable feature (RXJ+).
    HarmlessReject,
    /// A reject of an indispensable feature (RXJ-).
    FatalReject,
    /// An echo, or another packet for an open layer (RXR).
    Echo,
}

/// A set of actions, performed in the order of the constants (RFC 1661, section 4.4).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Actions(u16);

impl Actions {
    /// No action.
    pub const NONE: Self = Self(0);
    /// This layer is down (tld).
    pub const DOWN: Self = Self(1);
    /// Initialise the restart counter (irc).
    pub const INIT_COUNTER: Self = Self(2);
    /// The restart counter is zero (zrc).
    pub const ZERO_COUNTER: Self = Self(4);
    /// Send Configure-Request (scr).
    pub const SEND_REQUEST: Self = Self(8);
    /// Send Configure-Ack (sca).
    pub const SEND_ACK: Self = Self(16);
    /// Send Configure-Nak or Configure-Reject (scn).
    pub const SEND_NAK: Self = Self(32);
    /// Send Terminate-Request (str).
    pub const SEND_TERMINATE: Self = Self(64);
    /// Send Terminate-Ack (sta).
    pub const SEND_TERMINATE_ACK: Self = Self(128);
    /// Send Code-Reject (scj).
    pub const SEND_CODE_REJECT: Self = Self(256);
    /// Answer an echo (ser).
    pub const SEND_ECHO: Self = Self(512);
    /// This layer is up (tlu).
    pub const UP: Self = Self(1024);
    /// The layer below is needed (tls).
    pub const STARTED: Self = Self(2048);
    /// The layer below is no longer needed (tlf).
    pub const FINISHED: Self = Self(4096);

    /// Whether the set contains all of `other`.
    #[must_use]
    pub const fn has(self, other: Self) -> bool {
        self.0 & other.0 == other.0
    }

    const fn and(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }
}

/// The effect of an event: the table of RFC 1661, section 4.1. `None` where the table has a dash: the event cannot
/// occur in that state, and is ignored if it does.
///
/// The restart option (`r` in the table) is not used: opening an open layer does nothing. The passive option (`p`) is
/// not used either. Callers must drop a second Ack or Nak for the same request (`x`) as a copy.
#[must_use]
// Each entry of the table has its own arm, row by row, for reading side by side with the RFC.
#[allow(clippy::match_same_arms)]
pub const fn step(state: State, event: Event) -> Option<(Actions, State)> {
    use Actions as A;
    use State::{
        AckRcvd, AckSent, Closed, Closing, Initial, Opened, ReqSent, Starting, Stopped, Stopping,
    };
    let restart = A::INIT_COUNTER.and(A::SEND_REQUEST);
    let terminate = A::INIT_COUNTER.and(A::SEND_TERMINATE);
    Some(match (event, state) {
        (Event::Up, Initial) => (A::NONE, Closed),
        (Event::Up, Starting) => (restart, ReqSent),
        (Event::Up, _) => return None,

        (Event::Down, Initial | Starting) => return None,
        (Event::Down, Closed) => (A::NONE, Initial),
        (Event::Down, Stopped) => (A::STARTED, Starting),
        (Event::Down, Closing) => (A::NONE, Initial),
        (Event::Down, Stopping | ReqSent | AckRcvd | AckSent) => (A::NONE, Starting),
        (Event::Down, Opened) => (A::DOWN, Starting),

        (Event::Open, Initial) => (A::STARTED, Starting),
        (Event::Open, Closed) => (restart, ReqSent),
        (Event::Open, Closing) => (A::NONE, Stopping),
        (Event::Open, same) => (A::NONE, same),

        (Event::Close, Initial) => (A::NONE, Initial),
        (Event::Close, Starting) => (A::FINISHED, Initial),
        (Event::Close, Closed | Stopped) => (A::NONE, Closed),
        (Event::Close, Closing | Stopping) => (A::NONE, Closing),
        (Event::Close, ReqSent | AckRcvd | AckSent) => (terminate, Closing),
        (Event::Close, Opened) => (A::DOWN.and(terminate), Closing),

        (Event::Timeout, Closing) => (A::SEND_TERMINATE, Closing),
        (Event::Timeout, Stopping) => (A::SEND_TERMINATE, Stopping),
        (Event::Timeout, ReqSent | AckRcvd) => (A::SEND_REQUEST, ReqSent),
        (Event::Timeout, AckSent) => (A::SEND_REQUEST, AckSent),
        (Event::Timeout, _) => return None,

        (Event::GiveUp, Closing) => (A::FINISHED, Closed),
        (Event::GiveUp, Stopping | ReqSent | AckRcvd | AckSent) => (A::FINISHED, Stopped),
        (Event::GiveUp, _) => return None,

        // The layer below is down, so no other event can occur.
        (_, Initial | Starting) => return None,

        (Event::GoodRequest, Closed) => (A::SEND_TERMINATE_ACK, Closed),
        (Event::GoodRequest, Stopped) => (restart.and(A::SEND_ACK), AckSent),
        (Event::GoodRequest, ReqSent | AckSent) => (A::SEND_ACK, AckSent),
        (Event::GoodRequest, AckRcvd) => (A::SEND_ACK.and(A::UP), Opened),
        (Event::GoodRequest, Opened) => {
            let actions = A::DOWN.and(A::SEND_REQUEST).and(A::SEND_ACK);
            (actions, AckSent)
        }

        (Event::BadRequest, Closed) => (A::SEND_TERMINATE_ACK, Closed),
        (Event::BadRequest, Stopped) => (restart.and(A::SEND_NAK), ReqSent),
        (Event::BadRequest, ReqSent | AckSent) => (A::SEND_NAK, ReqSent),
        (Event::BadRequest, AckRcvd) => (A::SEND_NAK, AckRcvd),
        (Event::BadRequest, Opened) => {
            let actions = A::DOWN.and(A::SEND_REQUEST).and(A::SEND_NAK);
            (actions, ReqSent)
        }

        (Event::Ack | Event::Nak, Closed) => (A::SEND_TERMINATE_ACK, Closed),
        (Event::Ack | Event::Nak, Stopped) => (A::SEND_TERMINATE_ACK, Stopped),
        (Event::Ack | Event::Nak, AckRcvd) => (A::SEND_REQUEST, ReqSent),
        (Event::Ack | Event::Nak, Opened) => (A::DOWN.and(A::SEND_REQUEST), ReqSent),
        (Event::Ack, ReqSent) => (A::INIT_COUNTER, AckRcvd),
        (Event::Ack, AckSent) => (A::INIT_COUNTER.and(A::UP), Opened),
        (Event::Nak, ReqSent) => (restart, ReqSent),
        (Event::Nak, AckSent) => (restart, AckSent),

        (Event::TerminateRequest, ReqSent | AckRcvd | AckSent) => (A::SEND_TERMINATE_ACK, ReqSent),
        (Event::TerminateRequest, Opened) => {
            let actions = A::DOWN.and(A::ZERO_COUNTER).and(A::SEND_TERMINATE_ACK);
            (actions, Stopping)
        }
        (Event::TerminateRequest, same) => (A::SEND_TERMINATE_ACK, same),

        (Event::TerminateAck, Closing) => (A::FINISHED, Closed),
        (Event::TerminateAck, Stopping) => (A::FINISHED, Stopped),
        (Event::TerminateAck, AckRcvd) => (A::NONE, ReqSent),
        (Event::TerminateAck, Opened) => (A::DOWN.and(A::SEND_REQUEST), ReqSent),

        (Event::UnknownCode, same) => (A::SEND_CODE_REJECT, same),

        (Event::HarmlessReject, AckRcvd) => (A::NONE, ReqSent),

        (Event::FatalReject, Closed | Closing) => (A::FINISHED, Closed),
        (Event::FatalReject, Opened) => (A::DOWN.and(terminate), Stopping),
        (Event::FatalReject, _) => (A::FINISHED, Stopped),

        (Event::Echo, Opened) => (A::SEND_ECHO, Opened),

        (
            Event::GoodRequest
            | Event::BadRequest
            | Event::Ack
            | Event::Nak
            | Event::TerminateAck
            | Event::HarmlessReject
            | Event::Echo,
            same,
        ) => (A::NONE, same),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The table of RFC 1661, section 4.1, as it is printed there.
    const TABLE: &str = "
        Up    2        irc,scr/6 -     -             -     -     -           -           -           -
        Down  -        -        0      tls/1         0     1     1           1           1           tld/1
        Open  tls/1    1        irc,scr/6 3          5     5     6           7           8           9
        Close 0        tlf/0    2      2             4     4     irc,str/4   irc,str/4   irc,str/4   tld,irc,str/4
        TO+   -        -        -      -             str/4 str/5 scr/6       scr/6       scr/8       -
        TO-   -        -        -      -             tlf/2 tlf/3 tlf/3       tlf/3       tlf/3       -
        RCR+  -        -        sta/2  irc,scr,sca/8 4     5     sca/8       sca,tlu/9   sca/8       tld,scr,sca/8
        RCR-  -        -        sta/2  irc,scr,scn/6 4     5     scn/6       scn/7       scn/6       tld,scr,scn/6
        RCA   -        -        sta/2  sta/3         4     5     irc/7       scr/6       irc,tlu/9   tld,scr/6
        RCN   -        -        sta/2  sta/3         4     5     irc,scr/6   scr/6       irc,scr/8   tld,scr/6
        RTR   -        -        sta/2  sta/3         sta/4 sta/5 sta/6       sta/6       sta/6       tld,zrc,sta/5
        RTA   -        -        2      3             tlf/2 tlf/3 6           6           8           tld,scr/6
        RUC   -        -        scj/2  scj/3         scj/4 scj/5 scj/6       scj/7       scj/8       scj/9
        RXJ+  -        -        2      3             4     5     6           6           8           9
        RXJ-  -        -        tlf/2  tlf/3         tlf/2 tlf/3 tlf/3       tlf/3       tlf/3       tld,irc,str/5
        RXR   -        -        2      3             4     5     6           7           8           ser/9
    ";

    const STATES: [State; 10] = [
        State::Initial,
        State::Starting,
        State::Closed,
        State::Stopped,
        State::Closing,
        State::Stopping,
        State::ReqSent,
        State::AckRcvd,
        State::AckSent,
        State::Opened,
    ];

    fn event(name: &str) -> Event {
        match name {
            "Up" => Event::Up,
            "Down" => Event::Down,
            "Open" => Event::Open,
            "Close" => Event::Close,
            "TO+" => Event::Timeout,
            "TO-" => Event::GiveUp,
            "RCR+" => Event::GoodRequest,
            "RCR-" => Event::BadRequest,
            "RCA" => Event::Ack,
            "RCN" => Event::Nak,
            "RTR" => Event::TerminateRequest,
            "RTA" => Event::TerminateAck,
            "RUC" => Event::UnknownCode,
            "RXJ+" => Event::HarmlessReject,
            "RXJ-" => Event::FatalReject,
            "RXR" => Event::Echo,
            other => panic!("{other}"),
        }
    }

    fn action(name: &str) -> Actions {
        match name {
            "tld" => Actions::DOWN,
            "irc" => Actions::INIT_COUNTER,
            "zrc" => Actions::ZERO_COUNTER,
            "scr" => Actions::SEND_REQUEST,
            "sca" => Actions::SEND_ACK,
            "scn" => Actions::SEND_NAK,
            "str" => Actions::SEND_TERMINATE,
            "sta" => Actions::SEND_TERMINATE_ACK,
            "scj" => Actions::SEND_CODE_REJECT,
            "ser" => Actions::SEND_ECHO,
            "tlu" => Actions::UP,
            "tls" => Actions::STARTED,
            "tlf" => Actions::FINISHED,
            other => panic!("{other}"),
        }
    }

    #[test]
    fn every_entry_is_that_of_the_rfc() {
        let mut entries = 0;
        for row in TABLE.lines().filter(|row| !row.trim().is_empty()) {
            let mut cells = row.split_whitespace();
            let event = event(cells.next().unwrap());
            for (state, cell) in STATES.into_iter().zip(cells) {
                let expected = (cell != "-").then(|| {
                    let (actions, next) = cell.rsplit_once('/').unwrap_or(("", cell));
                    let names = actions.split(',').filter(|name| !name.is_empty());
                    let set = names.fold(Actions::NONE, |set, name| set.and(action(name)));
                    (set, STATES[next.parse::<usize>().unwrap()])
                });
                assert_eq!(step(state, event), expected, "{event:?} in {state:?}");
                entries += 1;
            }
        }
        assert_eq!(entries, 160);
    }
}
