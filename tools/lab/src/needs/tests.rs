//! Each test starts this program again, with the environment to test.

use std::env;
use std::fs;
use std::path::PathBuf;
use std::process::{Command, Output};

use super::*;

#[test]
#[ignore = "runs in a process of its own, by other tests"]
fn needs_what_is_not_there() {
    assert_eq!(require(Ok::<_, Missing<'_>>(1)), Some(1));
    if require_that(false, "there is no\n  unicorn: plant one") {
        unreachable!("it is not there");
    }
}

#[test]
#[ignore = "runs in a process of its own, by other tests"]
fn meets_something() {
    met("unicorn 1.2");
}

/// A file that is deleted when the value is dropped.
struct List(PathBuf);

impl List {
    fn new(name: &str) -> Self {
        let name = format!("millrace-require-{}-{name}", std::process::id());
        Self(env::temp_dir().join(name))
    }
}

impl Drop for List {
    fn drop(&mut self) {
        let _ = fs::remove_file(&self.0);
    }
}

fn again(test: &str, list: &List, require: Option<&str>) -> Output {
    let mut command = Command::new(env::current_exe().unwrap());
    command
        .args(["--exact", "--include-ignored", "--test-threads=2"])
        .arg(format!("needs::tests::{test}"))
        .env(LIST, &list.0)
        .env_remove(REQUIRE);
    if let Some(value) = require {
        command.env(REQUIRE, value);
    }
    command.output().unwrap()
}

#[test]
fn what_is_missing_is_listed_with_the_test_that_needs_it() {
    let list = List::new("listed");
    let output = again("needs_what_is_not_there", &list, None);
    assert!(output.status.success(), "{output:?}");
    assert_eq!(
        fs::read_to_string(&list.0).unwrap(),
        "lab: needs::tests::needs_what_is_not_there: there is no unicorn: plant one\n"
    );
    let output = again("meets_something", &list, None);
    assert!(output.status.success(), "{output:?}");
    assert!(
        fs::read_to_string(&list.0)
            .unwrap()
            .ends_with("\nlab: needs::tests::meets_something: met unicorn 1.2\n")
    );
}

#[test]
fn what_is_missing_fails_where_everything_is_required() {
    let list = List::new("required");
    let output = again("needs_what_is_not_there", &list, Some("all"));
    assert!(!output.status.success(), "{output:?}");
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(said.contains("unicorn: plant one"), "{said}");
    assert!(list.0.exists(), "it is listed as well");
}
