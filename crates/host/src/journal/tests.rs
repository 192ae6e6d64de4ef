use super::*;

fn rule(priority: u32) -> Step {
    Step::MainRule {
        v6: true,
        priority,
        passes: 0,
    }
}

fn open(scratch: &tempfile::TempDir, ifname: &str) -> Result<(Journal, Left), JournalError> {
    Journal::open(&Directory::lock(scratch.path()).unwrap(), ifname)
}

fn abandoned(scratch: &tempfile::TempDir) -> Vec<String> {
    Directory::lock(scratch.path()).unwrap().abandoned(None)
}

/// Writes a journal that no process holds.
fn write(scratch: &tempfile::TempDir, ifname: &str, origin: &Origin, step: &Step) -> PathBuf {
    let path = path_of(scratch.path(), ifname);
    let lines = [
        serde_json::to_string(origin).unwrap(),
        serde_json::to_string(step).unwrap(),
    ];
    fs::write(&path, lines.join("\n") + "\n").unwrap();
    fs::set_permissions(&path, Permissions::from_mode(0o600)).unwrap();
    path
}

#[test]
fn steps_survive_the_process_and_a_torn_line() {
    let scratch = tempfile::tempdir().unwrap();
    let (mut journal, left) = open(&scratch, "wg0").unwrap();
    assert_eq!(left, Left::default());
    assert!(journal.others().is_empty());
    journal.set_interface(12);
    journal.record(&rule(7)).unwrap();
    (&*journal.file).write_all(b"{\"MainRu").unwrap();
    drop(journal);
    let (mut journal, left) = open(&scratch, "wg0").unwrap();
    assert_eq!((left.steps, left.interface), (vec![rule(7)], 12));
    journal.clear().unwrap();
    drop(journal);
    let (journal, left) = open(&scratch, "wg0").unwrap();
    assert!(left.steps.is_empty());
    journal.remove().unwrap();
    assert_eq!(journals(Some(scratch.path())), [""; 0].map(PathBuf::from));
}

#[test]
fn a_living_daemons_journal_is_not_touched() {
    let scratch = tempfile::tempdir().unwrap();
    let (mut held, _) = open(&scratch, "wg0").unwrap();
    held.record(&rule(1)).unwrap();
    let second = open(&scratch, "wg0");
    assert!(matches!(second, Err(JournalError::Running { .. })));
    let (other, _) = open(&scratch, "wg1").unwrap();
    assert!(other.others()[0].alive);
    assert!(abandoned(&scratch).is_empty());
    drop(held);
    assert!(!other.others()[0].alive, "it is dead, and its steps count");
    assert_eq!(other.others()[0].steps, [rule(1)]);
    assert_eq!(abandoned(&scratch), ["wg0"]);
}

#[test]
fn journals_of_other_namespaces_are_not_ours_to_undo() {
    let scratch = tempfile::tempdir().unwrap();
    let (held, _) = open(&scratch, "tun0").unwrap();
    let elsewhere = Origin {
        namespace: 1,
        cookie: 1,
        ..Origin::here(3)
    };
    let path = write(&scratch, "tun1", &elsewhere, &rule(7));
    let other = scratch.path().join("tun1@1.undo");
    fs::rename(path, &other).unwrap();
    write(&scratch, "tun2", &Origin::here(4), &rule(8));
    assert_eq!(abandoned(&scratch), ["tun2"]);
    assert!(other.exists());
    let others = held.others();
    assert_eq!((others.len(), &*others[0].ifname), (1, "tun2"));
}

/// The kernel chooses the names of some interfaces, so `down` goes by the profile.
#[test]
fn journals_are_found_by_the_profile() {
    let scratch = tempfile::tempdir().unwrap();
    for (ifname, profile) in [
        ("tun0", Some("office")),
        ("tun1", Some("home")),
        ("tun2", None),
    ] {
        let origin = Origin {
            profile: profile.map(str::to_owned),
            ..Origin::here(4)
        };
        write(&scratch, ifname, &origin, &rule(8));
    }
    let directory = Directory::lock(scratch.path()).unwrap();
    let of = |profile: &str| directory.abandoned(Some(profile));
    assert_eq!(
        (of("office"), of("other")),
        (vec!["tun0".to_owned()], vec![])
    );
    assert_eq!(directory.abandoned(None).len(), 3);
    // Version 0.2 named no profile.
    let line = serde_json::json!({"namespace": 1, "cookie": 2, "boot": "b", "interface": 3});
    assert_eq!(
        serde_json::from_value::<Origin>(line).unwrap().profile,
        None
    );
}

#[test]
fn journals_of_another_boot_or_of_a_namespace_that_is_gone_are_discarded() {
    let here = Origin::here(3);
    let boot = Origin {
        boot: "another".to_owned(),
        ..Origin::here(3)
    };
    // The kernel reused the namespace's inode number.
    let cookie = Origin {
        cookie: here.cookie + 1,
        ..Origin::here(3)
    };
    for stale in [boot, cookie] {
        let scratch = tempfile::tempdir().unwrap();
        let path = write(&scratch, "wg0", &stale, &rule(7));
        let (other, _) = open(&scratch, "wg1").unwrap();
        assert!(other.others().is_empty());
        drop(other);
        let (_journal, left) = open(&scratch, "wg0").unwrap();
        assert_eq!(left, Left::default());
        drop(_journal);
        assert!(abandoned(&scratch).is_empty());
        assert!(!path.exists());
    }
}

#[test]
fn what_was_not_done_is_taken_back() {
    let scratch = tempfile::tempdir().unwrap();
    let (mut journal, _) = open(&scratch, "wg0").unwrap();
    journal.record(&rule(1)).unwrap();
    let mark = journal.record(&rule(2)).unwrap();
    journal.retract(mark).unwrap();
    journal.record(&rule(3)).unwrap();
    drop(journal);
    let (_, left) = open(&scratch, "wg0").unwrap();
    assert_eq!(left.steps, [rule(1), rule(3)]);
}

#[test]
fn a_journal_names_no_setting_but_ours() {
    let scratch = tempfile::tempdir().unwrap();
    for key in [
        "../../etc/passwd",
        "/etc/passwd",
        "kernel/core_pattern",
        "net/ipv6/conf/../../../../etc/accept_ra",
        "net/ipv6/conf/../accept_ra",
    ] {
        let step = Step::Sysctl {
            key: key.to_owned(),
            value: "1".to_owned(),
            before: "0".to_owned(),
        };
        write(&scratch, "wg0", &Origin::here(3), &step);
        let (_, left) = open(&scratch, "wg0").unwrap();
        assert!(left.steps.is_empty(), "{key}");
    }
}

#[test]
fn what_others_can_write_to_is_not_believed() {
    let scratch = tempfile::tempdir().unwrap();
    let path = write(&scratch, "wg0", &Origin::here(3), &rule(7));
    fs::set_permissions(&path, Permissions::from_mode(0o666)).unwrap();
    assert!(matches!(
        open(&scratch, "wg0"),
        Err(JournalError::File { .. })
    ));
    assert!(abandoned(&scratch).is_empty());
    // A directory that we own gets the right mode.
    let directory = scratch.path().join("run");
    fs::create_dir(&directory).unwrap();
    fs::set_permissions(&directory, Permissions::from_mode(0o777)).unwrap();
    Directory::lock(&directory).unwrap();
    let mode = fs::metadata(&directory).unwrap().permissions().mode();
    assert_eq!(mode & 0o7777, 0o755);
    // A link is refused.
    let link = scratch.path().join("link");
    std::os::unix::fs::symlink(&directory, &link).unwrap();
    assert!(Directory::lock(&link).is_err());
}
