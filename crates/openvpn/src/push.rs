//! The options that a server pushes to its clients in `PUSH_REPLY`.
//!
//! A server is trusted with addresses, routes and timers of the tunnel, and with nothing else on the client's machine:
//! the options that it may push are a closed list, every number has bounds, and errors name each refused option.

mod option;
mod reply;

pub use option::{
    Compression, DnsOptions, DnsServer, DnsTransport, Dnssec, Ifconfig, IfconfigV6, Place,
    PushedDns, Redirect, Refusal, Route, Topology,
};
pub use reply::{Assembler, MAX_OPTIONS, PushError, PushReply};

/// The effect on an option that a filter matches.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FilterAction {
    /// Takes the option, whatever later filters say.
    Accept,
    /// Leaves the option out.
    Ignore,
    /// Gives up the connection.
    Reject,
}

/// `pull-filter` and `route-nopull`: what a client lets a server push. Filters in their order; the first one that
/// matches decides.
#[derive(Clone, Debug, Default)]
pub struct PullFilter {
    /// The action for options that begin with the text.
    pub rules: Vec<(FilterAction, String)>,
    /// `route-nopull`: no routes, no redirection, no name servers.
    pub no_routes: bool,
}

impl PullFilter {
    /// Decides about an option, given as its words with one blank between them: quotes, backslashes and further blanks
    /// that the server wrote are gone.
    #[must_use]
    pub fn decide(&self, option: &str) -> FilterAction {
        self.rules
            .iter()
            .find(|(_, prefix)| option.starts_with(&**prefix))
            .map_or(FilterAction::Accept, |(action, _)| *action)
    }
}

/// Room for options in one message: stock reads 1,024 bytes and keeps some of it for the options at the end.
const BUNDLE: usize = 1024;
/// Bytes of `PUSH_REPLY` and of the NUL.
const FRAME: usize = "PUSH_REPLY".len() + 1;
/// Bytes of `,push-continuation 2`.
const CONTINUATION: usize = ",push-continuation 2".len();

/// The options that the daemon has pushed to a client. The session adds the negotiated ones: the peer id, the cipher,
/// the protocol's flags, the token.
#[derive(Clone, Debug, Default)]
pub struct PushOptions {
    /// The options, each as it would stand in a file.
    pub options: Vec<String>,
    /// The MTU of the server's interface in bytes, for clients that can set theirs.
    pub tun_mtu: Option<u32>,
    /// The `peer-id` to push to clients whose data packets can carry it.
    pub peer_id: Option<u32>,
}

/// The texts behind `PUSH_REPLY,` of one message each. At least one, which may be empty.
///
/// Options that no message has room for, or that have a comma or control character in them, are left out with a
/// warning: the client could only misread them.
#[must_use]
pub fn bundles(options: &[String]) -> Vec<String> {
    let mut bundles = vec![String::new()];
    for option in options {
        let room = BUNDLE - FRAME - CONTINUATION;
        if option.len() + 1 > room || option.contains(|it: char| it == ',' || it.is_control()) {
            log::warn!(
                "not pushed, because it is too long or has a comma in it: {}",
                loggable(option)
            );
            continue;
        }
        // Always some: `bundles` is never empty.
        let Some(last) = bundles.last_mut() else {
            break;
        };
        if last.len() + 1 + option.len() > room {
            bundles.push(option.clone());
            continue;
        }
        if !last.is_empty() {
            last.push(',');
        }
        last.push_str(option);
    }
    if let Some((last, others)) = bundles.split_last_mut()
        && !others.is_empty()
    {
        last.push_str(",push-continuation 1");
        for other in others {
            other.push_str(",push-continuation 2");
        }
    }
    bundles
}

/// The option as it may stand in a log: tokens are secret, and a server can push anything of any length.
pub(crate) fn loggable(option: &str) -> String {
    // Quotes and backslashes cannot hide a name, since they are removed as a parser would.
    let name: String = option
        .trim_start()
        .chars()
        .filter(|it| !matches!(it, '"' | '\'' | '\\'))
        .take_while(|it| !it.is_ascii_whitespace())
        .collect();
    if name.starts_with("auth-token") && name != "auth-token-user" {
        return "auth-token [...]".to_owned();
    }
    let mut text: String = option.chars().take(256).collect();
    if text.len() < option.len() {
        text.push('…');
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::message::Message;
    use crate::push::Assembler;

    #[test]
    fn the_first_match_decides() {
        let filter = PullFilter {
            rules: vec![
                (FilterAction::Accept, "route 10.".to_owned()),
                (FilterAction::Ignore, "route ".to_owned()),
                (FilterAction::Reject, "redirect-gateway".to_owned()),
            ],
            no_routes: false,
        };
        assert_eq!(
            filter.decide("route 10.1.0.0 255.255.0.0"),
            FilterAction::Accept
        );
        assert_eq!(filter.decide("route 192.168.0.0"), FilterAction::Ignore);
        assert_eq!(filter.decide("redirect-gateway def1"), FilterAction::Reject);
        assert_eq!(
            filter.decide("route-gateway 10.0.0.1"),
            FilterAction::Accept
        );
    }

    #[test]
    fn one_message_where_one_is_enough() {
        assert_eq!(bundles(&[]), [""]);
        let options = ["ping 10".to_owned(), "topology subnet".to_owned()];
        assert_eq!(bundles(&options), ["ping 10,topology subnet"]);
    }

    #[test]
    fn what_is_split_comes_together_again() {
        let options: Vec<String> = (0..200)
            .map(|it| format!("route 10.{it}.0.0 255.255.0.0"))
            .collect();
        let bundles = bundles(&options);
        assert!(bundles.len() > 5);
        let mut assembler = Assembler::default();
        let mut whole = None;
        for bundle in &bundles {
            assert!(whole.is_none(), "the last part comes last");
            assert!(Message::PushReply(bundle.clone()).emit().len() <= BUNDLE);
            whole = assembler.add(bundle).unwrap();
        }
        assert_eq!(*whole.unwrap(), options.join(","));
    }

    #[test]
    fn what_cannot_be_read_is_not_sent() {
        let options = ["echo a,b".to_owned(), "x".repeat(1024), "ping 1".to_owned()];
        assert_eq!(bundles(&options), ["ping 1"]);
    }
}
