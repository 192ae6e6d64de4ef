//! What the two processes say to each other: the front asks, the one with privileges answers, one at a time.
//!
//! A message is its length, four bytes in the network's order, and a document of JSON. The front reads what strangers send,
//! so what it asks is checked as theirs is.

use std::io::{self, Read, Write};

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::sample::Sample;

/// Longest question, in bytes: the text of a day is the longest.
const QUESTION_MAX: usize = 512 << 10;

/// Longest answer, in bytes: 10,000 peers take about 6 MiB.
const ANSWER_MAX: usize = 64 << 20;

/// What the front asks for.
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Question {
    /// How everything stands.
    Sample,
    /// The text of the day that was kept before this start.
    Day,
    /// This is the text of the day now.
    Keep(String),
    /// The servers at home and their clients.
    Servers,
    /// Change a client.
    Change(Change),
}

/// A change of a client of a server at home.
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize)]
pub struct Change {
    /// The server's name.
    pub server: String,
    /// The client's name.
    pub name: String,
    /// What is to be done.
    #[serde(flatten)]
    pub what: What,
}

/// What is to be done with a client.
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize)]
#[serde(tag = "do", rename_all = "snake_case")]
pub enum What {
    /// Make it.
    Add {
        /// It sends only what goes to networks at home.
        #[serde(default)]
        lan_only: bool,
    },
    /// Keep it out.
    Revoke,
    /// Call it otherwise.
    Rename {
        /// The new name.
        to: String,
    },
}

/// The process with privileges.
pub trait Source {
    /// How everything stands.
    fn sample(&mut self) -> Sample;
    /// The text of the day that was kept.
    fn day(&mut self) -> String;
    /// Keeps the text of the day.
    fn keep(&mut self, day: String);
    /// The servers at home.
    fn servers(&mut self) -> Value;
    /// Changes a client.
    ///
    /// # Errors
    /// Why not, in words.
    fn change(&mut self, change: &Change) -> Result<Value, String>;
}

/// Answers what the other end asks, until it has no more questions.
///
/// # Errors
/// It is gone, or asks what is no question.
pub fn answer(mut stream: impl Read + Write, source: &mut impl Source) -> io::Result<()> {
    while let Some(question) = read(&mut stream, QUESTION_MAX)? {
        match question {
            Question::Sample => write(&mut stream, &source.sample()),
            Question::Day => write(&mut stream, &source.day()),
            Question::Keep(day) => {
                source.keep(day);
                write(&mut stream, &())
            }
            Question::Servers => write(&mut stream, &source.servers()),
            Question::Change(change) => write(&mut stream, &source.change(&change)),
        }?;
    }
    Ok(())
}

/// Asks, and waits for the answer.
///
/// # Errors
/// The other end is gone.
pub fn ask<T: DeserializeOwned>(
    stream: &mut (impl Read + Write),
    question: &Question,
) -> io::Result<T> {
    write(stream, question)?;
    let gone = || io::Error::from(io::ErrorKind::UnexpectedEof);
    read(stream, ANSWER_MAX)?.ok_or_else(gone)
}

fn write(stream: &mut impl Write, value: &impl Serialize) -> io::Result<()> {
    let mut message = vec![0; 4];
    serde_json::to_writer(&mut message, value)?;
    let length = u32::try_from(message.len() - 4).map_err(io::Error::other)?;
    message[..4].copy_from_slice(&length.to_be_bytes());
    stream.write_all(&message)
}

/// Reads a message; none where there is no more.
fn read<T: DeserializeOwned>(stream: &mut impl Read, most: usize) -> io::Result<Option<T>> {
    let mut length = [0; 4];
    match stream.read_exact(&mut length) {
        Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => return Ok(None),
        other => other?,
    }
    let length = u32::from_be_bytes(length) as usize;
    if length > most {
        return Err(io::Error::new(
            io::ErrorKind::InvalidData,
            "a message that is too long",
        ));
    }
    let mut message = Vec::new();
    stream.take(length as u64).read_to_end(&mut message)?;
    Ok(Some(serde_json::from_slice(&message)?))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;
    use std::os::unix::net::UnixStream;

    #[derive(Default)]
    struct Double {
        kept: String,
    }

    impl Source for Double {
        fn sample(&mut self) -> Sample {
            Sample {
                trouble: Some("none".to_owned()),
                ..Sample::default()
            }
        }
        fn day(&mut self) -> String {
            self.kept.clone()
        }
        fn keep(&mut self, day: String) {
            self.kept = day;
        }
        fn servers(&mut self) -> Value {
            json!([])
        }
        fn change(&mut self, change: &Change) -> Result<Value, String> {
            Err(format!("{}: {:?}", change.name, change.what))
        }
    }

    #[test]
    fn questions_are_answered_in_their_order() {
        let (mut front, back) = UnixStream::pair().unwrap();
        let back = std::thread::spawn(move || answer(back, &mut Double::default()));
        let sample: Sample = ask(&mut front, &Question::Sample).unwrap();
        assert_eq!(sample.trouble.as_deref(), Some("none"));
        let (): () = ask(&mut front, &Question::Keep("day".to_owned())).unwrap();
        let day: String = ask(&mut front, &Question::Day).unwrap();
        assert_eq!(day, "day");
        let change = json!({"server": "home", "name": "phone", "do": "rename", "to": "x"});
        let change = serde_json::from_value(change).unwrap();
        let said: Result<Value, String> = ask(&mut front, &Question::Change(change)).unwrap();
        assert_eq!(said, Err("phone: Rename { to: \"x\" }".to_owned()));
        drop(front);
        back.join().unwrap().unwrap();
    }

    #[test]
    fn what_is_no_question_ends_it() {
        for message in [
            &b"\xff\xff\xff\xff"[..],
            b"\0\0\0\x02{}",
            b"\0\0\0\x09\"nothing\"",
        ] {
            let (mut front, back) = UnixStream::pair().unwrap();
            front.write_all(message).unwrap();
            drop(front);
            assert!(answer(back, &mut Double::default()).is_err(), "{message:?}");
        }
    }
}
