//! Asks the privileged half of the page's server, as a compromised request reader could.

#![no_main]

use std::sync::LazyLock;
use std::time::Instant;

use libfuzzer_sys::fuzz_target;
use monitor::frame::{Frame, QUESTION_MAX};
use monitor::question::Question;
use monitor::rights::Rights;

/// Rights without a session.
static RIGHTS: LazyLock<Rights> = LazyLock::new(|| Rights::new(None));

fuzz_target!(|data: &[u8]| {
    let mut rest = data;
    while let Ok(Some(frame)) = Frame::read(&mut rest, QUESTION_MAX) {
        let Ok(question) = frame.parse::<Question>() else {
            return;
        };
        let again = Frame::new(frame.number, &question).unwrap();
        assert_eq!(again.parse::<Question>().unwrap(), question);
        let now = Instant::now();
        match question {
            Question::Known(it) => assert!(!RIGHTS.is_known(it.expose())),
            Question::Session(it) => assert!(!RIGHTS.has(it.expose(), now)),
            Question::AtHome { session, asked } => {
                let session = session.as_ref();
                assert!(RIGHTS.may_change(session, now).is_err());
                let _ = asked.is_bounded();
            }
            _ => {}
        }
    }
});
