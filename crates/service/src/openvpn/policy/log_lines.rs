//! The lines of the log: from which `verb` on they are written, how bad they are, and which of them
//! `mute` takes for the same.

use std::net::SocketAddr;

use super::super::management::LogFlag;

/// A line of the log, without time and prefix.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(crate) struct Line {
    /// Written from this `verb` on.
    pub verb: u8,
    /// Lines of one kind in a row count for `mute`; 0 is never muted.
    pub kind: u32,
    /// How bad it is.
    pub flag: LogFlag,
    /// Text of the line.
    pub text: String,
}

impl Line {
    /// Line for `verb 1` and above; never muted, as in stock OpenVPN.
    pub(crate) fn info(text: impl Into<String>) -> Self {
        Self {
            kind: 0,
            ..Self::of(1, LogFlag::Info, text)
        }
    }

    /// Warning, written at every `verb`.
    pub(crate) fn warning(text: impl Into<String>) -> Self {
        Self::of(0, LogFlag::Warning, text)
    }

    /// Error after which the daemon goes on, written at every `verb`.
    pub(crate) fn fault(text: impl Into<String>) -> Self {
        Self::of(0, LogFlag::NonFatal, text)
    }

    /// Error that ends the daemon, written at every `verb`.
    pub(crate) fn fatal(text: impl Into<String>) -> Self {
        Self::of(0, LogFlag::Fatal, text)
    }

    /// Line written from this `verb` on: 2 or more.
    pub(crate) fn detail(verb: u8, text: impl Into<String>) -> Self {
        let flag = if verb > 5 {
            LogFlag::Debug
        } else {
            LogFlag::Detail
        };
        Self::of(verb, flag, text)
    }

    fn of(verb: u8, flag: LogFlag, text: impl Into<String>) -> Self {
        let text = text.into();
        Self {
            verb,
            kind: kind_of(&text),
            flag,
            text,
        }
    }

    /// The number that `machine-readable-output` puts in front.
    pub(crate) const fn bits(&self) -> u32 {
        let flag = match self.flag {
            LogFlag::Info | LogFlag::Detail => 0,
            LogFlag::Fatal => 1 << 4,
            LogFlag::NonFatal => 1 << 5,
            LogFlag::Warning => 1 << 6,
            LogFlag::Debug => 1 << 7,
        };
        (self.verb & 15) as u32 | flag
    }
}

/// An outer address: `[AF_INET]192.0.2.1:1194`, `[AF_INET6]2001:db8::1:1194`.
pub(crate) fn outer(addr: SocketAddr) -> String {
    let family = if addr.is_ipv4() {
        "AF_INET"
    } else {
        "AF_INET6"
    };
    format!("[{family}]{}:{}", addr.ip(), addr.port())
}

/// Lines that differ only in their numbers are of one kind: addresses, ports, counts. (FNV-1a.)
fn kind_of(text: &str) -> u32 {
    text.bytes()
        .filter(|byte| !byte.is_ascii_digit())
        .fold(0x811c_9dc5, |hash: u32, byte| {
            (hash ^ u32::from(byte)).wrapping_mul(0x0100_0193)
        })
        .max(1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_make_no_other_kind() {
        let kind = |text: &str| Line::warning(text).kind;
        assert_eq!(
            kind("[AF_INET]192.0.2.1:1194 sent rubbish"),
            kind("[AF_INET]198.51.100.77:5 sent rubbish")
        );
        assert_ne!(kind("sent rubbish"), kind("sent nothing"));
        assert_ne!(kind("7"), 0);
        assert_eq!(Line::info("x").kind, 0);
    }

    #[test]
    fn bits_are_those_of_stock() {
        assert_eq!(Line::info("x").bits(), 1);
        assert_eq!(Line::warning("x").bits(), 0x40);
        assert_eq!(Line::fault("x").bits(), 0x20);
        assert_eq!(Line::fatal("x").bits(), 0x10);
        assert_eq!(Line::detail(7, "x").bits(), 0x87);
    }
}
