//! The server's half: a list of options becomes messages.

use super::loggable;

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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::message::Message;
    use crate::push::Assembler;

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
