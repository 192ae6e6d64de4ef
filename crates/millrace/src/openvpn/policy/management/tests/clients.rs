//! Deciding on clients.

use super::super::super::environment::Environment;
use super::super::*;
use super::{Conversation, server};

#[test]
fn clients_are_decided_on() {
    let mut talk = Conversation::new(server());
    let mut environment = Environment::default();
    environment.set("common_name", "a");
    environment.set("password", "p");
    environment.set("X509_0_O", "o");
    let event = ClientEvent::Connect { client: 3, key: 1 };
    talk.port.client(event, &environment, "IV_VER=2.6\n", 4);
    assert_eq!(
        talk.heard(),
        ">CLIENT:CONNECT,3,1\n>CLIENT:ENV,n_clients=4\n>CLIENT:ENV,X509_0_O=o\n\
         >CLIENT:ENV,common_name=a\n>CLIENT:ENV,password=p\n>CLIENT:ENV,END\n"
    );
    talk.ask("env-filter 2");
    talk.port.client(event, &environment, "IV_VER=2.6\n", 4);
    assert_eq!(
        talk.heard(),
        ">CLIENT:CONNECT,3,1\n>CLIENT:ENV,IV_VER=2.6\n>CLIENT:ENV,password=p\n>CLIENT:ENV,END\n"
    );
    assert_eq!(talk.ask("client-auth 3 1"), "");
    assert_eq!(talk.ask("push \"route x\""), "");
    let action = talk.act("END");
    let settings = vec!["push \"route x\"".to_owned()];
    assert_eq!(
        action,
        Action::Client {
            client: 3,
            key: 1,
            outcome: ClientOutcome::Auth { settings },
        }
    );
    talk.port.reply_done(true);
    assert_eq!(talk.heard(), "SUCCESS: client-auth command succeeded\n");
    let Action::Client { outcome, .. } = talk.act("client-deny 3 1 \"no way\" sorry") else {
        panic!("not decided")
    };
    let client_reason = Some("sorry".to_owned());
    let reason = "no way".to_owned();
    assert_eq!(
        outcome,
        ClientOutcome::Deny {
            reason,
            client_reason
        }
    );
    talk.port.reply_done(false);
    assert_eq!(talk.heard(), "ERROR: client-deny command failed\n");
    assert_eq!(
        talk.act("client-kill 3"),
        Action::ClientKill {
            client: 3,
            message: None
        }
    );
    talk.port.reply_done(true);
    talk.heard();
    talk.ask("client-auth 1 1");
    let flood = "x\n".repeat(300);
    assert_eq!(talk.send(&flood), None);
    assert!(
        talk.heard()
            .starts_with("ERROR: the block has too many lines")
    );
}
