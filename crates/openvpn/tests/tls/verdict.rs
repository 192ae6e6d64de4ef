//! Control decides last whether to accept a server.

use openvpn::role::Role;
use openvpn::tls::{TlsError, TlsOptions, TlsSession, TlsSettings, TlsVersion};

use crate::{Pair, options, session};

pub(crate) fn asking(options: TlsOptions) -> TlsSession {
    let mut settings = TlsSettings::new(options).expect("good settings");
    settings.ask_for_verdicts();
    TlsSession::new(&settings).expect("a session")
}

/// A client that waits for the verdict, and its server, after all messages that need no verdict.
fn waiting(version: TlsVersion) -> Pair {
    let of = |role| TlsOptions {
        version_min: version,
        version_max: version,
        ..options("p256", role)
    };
    let mut pair = Pair {
        client: asking(of(Role::Client)),
        server: session(of(Role::Server)),
    };
    assert_eq!(pair.run(), (Ok(()), Ok(())));
    pair
}

const VERSIONS: [TlsVersion; 2] = [TlsVersion::V1_2, TlsVersion::V1_3];

#[test]
fn a_client_says_nothing_more_until_its_server_is_judged() {
    for version in VERSIONS {
        let mut pair = waiting(version);
        assert!(pair.client.is_handshaking() && pair.server.is_handshaking());
        assert!(pair.client.peer().is_none());
        let peer = pair.client.question().expect("a question");
        assert_eq!(peer.common_name, "server");
        assert!(pair.client.question().is_none(), "only one");
        assert!(pair.client.take_tls().is_empty());
        pair.client.judged(Ok(())).expect("accepted");
        pair.connect();
        assert_eq!(
            pair.server.peer().map(|it| it.common_name.as_str()),
            Some("client")
        );
    }
}

#[test]
fn a_server_that_is_refused_is_told_and_never_sees_our_certificate() {
    for version in VERSIONS {
        let mut pair = waiting(version);
        let subject = pair
            .client
            .question()
            .expect("a question")
            .subject()
            .to_owned();
        let Err(TlsError::Certificate(refused)) = pair.client.judged(Err("not today".into()))
        else {
            panic!("it was accepted");
        };
        assert_eq!(
            (refused.subject, refused.reason),
            (subject, "not today".to_owned())
        );
        let (_, server) = pair.run();
        assert!(
            matches!(&server, Err(TlsError::Alert { alert, .. }) if alert == "AccessDenied"),
            "{server:?}"
        );
        assert!(pair.server.peer().is_none());
        assert!(pair.client.take_tls().is_empty(), "nothing follows");
        assert!(pair.client.judged(Ok(())).is_ok(), "the question is closed");
        assert!(pair.client.take_tls().is_empty());
    }
}

#[test]
fn an_answer_without_a_question_changes_nothing() {
    let mut client = asking(options("p256", Role::Client));
    assert!(client.judged(Err("too early".into())).is_ok());
    let mut pair = Pair {
        client,
        server: session(options("p256", Role::Server)),
    };
    assert_eq!(pair.run(), (Ok(()), Ok(())));
    assert!(pair.client.question().is_some());
    pair.client.judged(Ok(())).expect("accepted");
    pair.connect();
}
