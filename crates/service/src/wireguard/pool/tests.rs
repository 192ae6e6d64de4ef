use super::*;
use config::permissions::Permissions;
use config::wgquick;

/// A tunnel whose pool has the servers `a`, `b` and so on, each with its own key and address.
fn tunnel(choose: &str, count: u8) -> Tunnel {
    let server = |at: u8| {
        let name = match at {
            0..26 => char::from(b'a' + at).to_string(),
            _ => format!("server{at}"),
        };
        let key = Key32::new([at + 1; 32]).to_base64();
        format!("#! Server = {name} 192.0.2.{at}:1 {}\n", key.as_str())
    };
    let servers: String = (0..count).map(server).collect();
    let key = Key32::new([9; 32]).to_base64();
    let text = format!(
        "#! [Pool]\n#! Use = *\n#! Choose = {choose}\n{servers}[Interface]\nPrivateKey = {0}\n[Peer]\nPublicKey = {0}\n\
        Endpoint = 192.0.2.99:1\nAllowedIPs = 0.0.0.0/0\n",
        key.as_str()
    );
    let import = wgquick::parse(&text, "a.conf", Permissions::NONE);
    import.into_tunnel().unwrap().0
}

struct Bench {
    rotation: Rotation,
    start: Instant,
    now: Instant,
}

impl Bench {
    fn new(choose: &str, count: u8, seed: u64) -> Self {
        let now = Instant::now();
        let mut rotation = Rotation::new(&tunnel(choose, count), seed, None, now).unwrap();
        rotation.begin(|_| true);
        Self {
            rotation,
            start: now,
            now,
        }
    }

    fn called(&self) -> String {
        self.rotation.called().map(|it| it.name.as_str()).collect()
    }

    /// Is silent after these seconds; returns the servers that are called then.
    fn silent(&mut self, seconds: u64) -> Option<String> {
        self.silent_but(seconds, |_| true)
    }

    fn silent_but(&mut self, seconds: u64, has_route: fn(&Server) -> bool) -> Option<String> {
        self.now += Duration::from_secs(seconds);
        let changed = self.rotation.silent(self.now, has_route);
        changed.then(|| self.called())
    }

    fn answered(&mut self, name: &str) -> bool {
        let server = self.rotation.called().find(|it| it.name == name);
        let key = server.unwrap().public_key.clone().unwrap();
        self.rotation.answered(&key)
    }
}

#[test]
fn the_next_server_is_called_after_five_seconds_and_stays_where_it_answers() {
    let mut bench = Bench::new("order", 3, 0);
    assert_eq!(bench.called(), "a");
    assert_eq!(bench.silent(4), None);
    assert_eq!(
        bench.rotation.due(),
        Some(bench.start + Duration::from_secs(5))
    );
    assert_eq!(bench.silent(1).as_deref(), Some("b"));
    assert!(!bench.answered("b"), "it is alone");
    assert_eq!(bench.rotation.due(), None);
    // Hours later it fails; the first, which failed before, comes last.
    assert_eq!(bench.silent(10_000).as_deref(), Some("c"));
    assert_eq!(bench.silent(5).as_deref(), Some("a"));
    let failures = bench.rotation.failures();
    let failed: String = failures.iter().map(|(name, _)| name.as_str()).collect();
    assert_eq!(failed, "cba");
    bench.answered("a");
    assert_eq!(bench.rotation.failures().len(), 2);
}

#[test]
fn silent_servers_get_more_time_in_each_round() {
    let mut bench = Bench::new("order", 2, 0);
    let mut waits = Vec::new();
    let mut since = bench.now;
    while waits.len() < 14 {
        if bench.silent(1).is_some() {
            waits.push((bench.now - since).as_secs());
            since = bench.now;
        }
    }
    assert_eq!(
        waits,
        [5, 5, 10, 10, 20, 20, 40, 40, 60, 60, 60, 60, 60, 60]
    );
    let called = bench.called();
    bench.answered(&called);
    assert_eq!(bench.rotation.rounds(), 0);
    assert!(bench.silent(5).is_some(), "the rounds are forgotten");
}

#[test]
fn servers_without_a_route_are_passed_over() {
    let mut bench = Bench::new("order", 4, 0);
    assert_eq!(bench.silent_but(5, |_| false), None, "no network");
    assert_eq!(bench.called(), "a");
    assert!(
        bench.rotation.failures().is_empty(),
        "nobody can tell whether it answers"
    );
    assert_eq!(
        bench.silent_but(5, |it| it.name == "c").as_deref(),
        Some("c")
    );
    let failures = bench.rotation.failures();
    assert_eq!(failures.len(), 1, "{failures:?}");
    assert_eq!(failures[0].0, "a");

    // The next 5 seconds begin with the last look.
    let failures = |bench: &Bench| bench.rotation.failures().len();
    let mut bench = Bench::new("order", 2, 0);
    assert_eq!(bench.silent_but(5, |it| it.name == "a"), None, "no other");
    assert_eq!(
        (bench.silent(4), bench.silent(1)),
        (None, Some("b".to_owned()))
    );

    // Hours without any route: the server in use gets its time as soon as it can be reached.
    let mut bench = Bench::new("order", 2, 0);
    bench.answered("a");
    assert_eq!(bench.silent_but(20, |_| false), None);
    assert_eq!(bench.silent_but(7200, |_| false), None);
    assert_eq!(bench.silent(1).as_deref(), Some("a"), "it is called again");
    assert_eq!((bench.silent(4), failures(&bench)), (None, 0));
    assert_eq!(bench.silent(1).as_deref(), Some("b"));
    bench.answered("b");
    assert_eq!(
        (failures(&bench), bench.silent(10).as_deref()),
        (1, Some("a"))
    );
    assert_eq!(bench.silent_but(10, |_| false), None);
    assert_eq!(
        bench.silent_but(10, |it| it.name == "b").as_deref(),
        Some("b")
    );
    let mut bench = Bench::new("fastest", 2, 0);
    assert_eq!(bench.silent_but(5, |_| false), None, "all are called");

    // Until servers are called, they are chosen by their routes.
    let mut bench = Bench::new("order", 3, 0);
    assert!(!bench.rotation.begin(|_| false));
    assert!(bench.rotation.begin(|it| it.name == "b"));
    assert!(!bench.rotation.begin(|it| it.name == "b"));
    assert_eq!(bench.called(), "b");
    assert!(bench.rotation.failures().is_empty());
    assert!(bench.rotation.begin(|it| it.name != "b"));
    assert_eq!(bench.called(), "c");
    assert_eq!(bench.silent(5).as_deref(), Some("a"));
    assert!(!bench.rotation.begin(|it| it.name == "b"), "it was called");
    let mut bench = Bench::new("fastest", 10, 0);
    bench.rotation.begin(|it| "cgi".contains(&it.name));
    let mut called: Vec<char> = bench.called().chars().collect();
    called.sort_unstable();
    assert_eq!(called, ['c', 'g', 'i']);
}

/// However many servers have no route, the one that has one is called at last.
#[test]
fn many_servers_without_a_route_are_passed_over() {
    let mut bench = Bench::new("order", 200, 0);
    let only = |it: &Server| it.endpoint.to_string() == "192.0.2.150:1";
    let looks = std::cell::Cell::new(0);
    let mut changed = (1..10).map(|_| {
        bench.now += Duration::from_secs(60);
        looks.set(0);
        bench.rotation.silent(bench.now, |it| {
            looks.set(looks.get() + 1);
            only(it)
        })
    });
    assert!(changed.any(|it| it) && looks.get() <= LOOKS + 1);
    assert!(only(bench.rotation.called().next().unwrap()));

    // At the start, one IP version has no route at all.
    let mut pooled = tunnel("order", 200);
    for server in &mut pooled.pool.as_mut().unwrap().servers[..150] {
        server.endpoint = "[2001:db8::1]:1".parse().unwrap();
    }
    let mut rotation = Rotation::new(&pooled, 0, None, bench.now).unwrap();
    let is_v4 = |it: &Server| it.endpoint.socket_addr().unwrap().is_ipv4();
    assert!(rotation.begin(is_v4));
    assert!(is_v4(rotation.called().next().unwrap()));
}

#[test]
fn a_pool_of_one_stays_with_it() {
    for choose in ["order", "random", "fastest"] {
        let mut bench = Bench::new(choose, 1, 0);
        assert_eq!(bench.silent(100), None);
        assert!(!bench.answered("a"));
        assert_eq!(bench.called(), "a");
    }
}

#[test]
fn random_begins_anywhere() {
    let begins: std::collections::BTreeSet<String> = (0..100)
        .map(|seed| Bench::new("random", 4, seed).called())
        .collect();
    assert_eq!(begins.len(), 4, "{begins:?}");
}

#[test]
fn the_fastest_of_eight_is_kept() {
    let mut bench = Bench::new("fastest", 12, 1);
    let called = bench.called();
    assert_eq!(called.len(), 8, "{called}");
    let peers = bench.rotation.peers();
    let ranges: Vec<usize> = peers.iter().map(|it| it.allowed_ips.len()).collect();
    assert_eq!(ranges, [1, 0, 0, 0, 0, 0, 0, 0]);
    // Without an answer, the other four are called, with four of the first ones.
    let next = bench.silent(5).unwrap();
    assert_eq!(next.len(), 8);
    assert!(!called.contains(&next[..4]) && called.starts_with(&next[4..]));
    let winner = &next[2..3];
    assert!(bench.answered(winner), "the others are not needed");
    assert_eq!(bench.called(), winner);
    let peers = bench.rotation.peers();
    assert_eq!((peers.len(), peers[0].allowed_ips.len()), (1, 1));
    assert!(!bench.answered(winner));

    // A pool of few is called as a whole, again and again.
    let mut bench = Bench::new("fastest", 3, 1);
    assert_eq!(bench.called().len(), 3);
    assert_eq!(bench.silent(5).map(|it| it.len()), Some(3));
    assert_eq!(bench.silent(5), None);
    assert_eq!(bench.silent(5).map(|it| it.len()), Some(3));
    // After a failure the failed one is called with the others, but last.
    let winner = bench.called()[1..2].to_owned();
    bench.answered(&winner);
    let next = bench.silent(30).unwrap();
    assert!(next.len() == 3 && next.ends_with(&winner), "{next}");
}

#[test]
fn names_and_equal_keys_take_no_part_in_a_race() {
    let mut pooled = tunnel("fastest", 3);
    let servers = &mut pooled.pool.as_mut().unwrap().servers;
    for server in servers.iter_mut() {
        server.public_key = None;
    }
    let now = Instant::now();
    let called = |tunnel: &Tunnel| {
        let mut rotation = Rotation::new(tunnel, 1, None, now).unwrap();
        rotation.begin(|_| true);
        rotation.called().count()
    };
    assert_eq!(called(&pooled), 1);
    let mut pooled = tunnel("fastest", 3);
    let servers = &mut pooled.pool.as_mut().unwrap().servers;
    for server in servers.iter_mut() {
        server.endpoint = "a.example:1".parse().unwrap();
    }
    assert_eq!(called(&pooled), 1);
}

#[test]
fn a_reload_keeps_the_server_in_use() {
    let mut bench = Bench::new("order", 3, 0);
    bench.silent(5);
    assert_eq!(bench.called(), "b");
    let again = |tunnel: &Tunnel| {
        let mut rotation = Rotation::new(tunnel, 3, Some(&bench.rotation), bench.now).unwrap();
        rotation.begin(|_| true);
        let called = rotation.called().next().unwrap().name.clone();
        (called, rotation.failures().len())
    };
    assert_eq!(again(&tunnel("random", 3)), ("b".to_owned(), 1));
    let mut changed = tunnel("order", 3);
    changed.pool.as_mut().unwrap().wanted = vec!["c".to_owned()];
    assert_eq!(again(&changed), ("c".to_owned(), 0));
    changed.pool = None;
    assert!(Rotation::new(&changed, 3, Some(&bench.rotation), bench.now).is_none());
}
