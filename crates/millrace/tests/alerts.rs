//! Alerts: a pulled cable reaches the owner's program and a web address, in spite of a faulty answer.

#![expect(clippy::unwrap_used, reason = "helpers of tests fail as tests do")]

use std::fs;
use std::io::{self, BufRead as _, BufReader, Read as _, Write as _};
use std::net::TcpListener;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;

use lab::acceptance::quick::make_executable;
use lab::acceptance::{
    A4, B4, Directory, PATIENCE, PORT_A, PORT_B, PROGRAM, TwoLines, reaches, ready, until,
};
use lab::peer::Keys;
use lab::{Host, Process, tools};
use nix::sys::signal::Signal;
use serde_json::Value;

const LINES: &str = "#! [Uplinks]\n#! Mode = failover\n#! Hold = 1\n\
    #! [Uplink]\n#! Name = dsl\n#! Interface = dsl\n\
    #! [Uplink]\n#! Name = lte\n#! Interface = lte\n#! Priority = 20\n";

/// A web server that notes the head and the body of each post. It answers the second one, and some paths, with an error.
struct Web {
    posts: Arc<Mutex<Vec<(String, Value)>>>,
    stop: Arc<AtomicBool>,
}

impl Web {
    fn start(host: &Host, port: u16) -> Self {
        let web = Self {
            posts: Arc::default(),
            stop: Arc::default(),
        };
        let (posts, stop) = (Arc::clone(&web.posts), Arc::clone(&web.stop));
        let listener = host.run(|| TcpListener::bind(("127.0.0.1", port)));
        let listener = listener.unwrap().unwrap();
        let serve = move || -> io::Result<()> {
            listener.set_nonblocking(true)?;
            while !stop.load(Ordering::Relaxed) {
                let Ok((stream, _)) = listener.accept() else {
                    thread::sleep(Duration::from_millis(5));
                    continue;
                };
                stream.set_nonblocking(false)?;
                stream.set_read_timeout(Some(PATIENCE))?;
                let mut reader = BufReader::new(stream);
                let (mut head, mut length) = (String::new(), 0);
                while !head.ends_with("\r\n\r\n") && reader.read_line(&mut head)? > 0 {
                    let last = head.lines().last().unwrap_or_default().to_ascii_lowercase();
                    if let Some(value) = last.strip_prefix("content-length: ") {
                        length = value.parse().unwrap();
                    }
                }
                let mut body = vec![0; length];
                reader.read_exact(&mut body)?;
                let mut posts = posts.lock().unwrap();
                posts.push((head, serde_json::from_slice(&body)?));
                let (head, _) = posts.last().unwrap();
                let word = match head.split(' ').nth(1) {
                    Some("/gone") => "404 No",
                    Some("/moved") => "301 No",
                    _ if posts.len() == 2 => "500 No",
                    _ => "200 OK",
                };
                write!(
                    reader.get_mut(),
                    "HTTP/1.1 {word}\r\nContent-Length: 0\r\n\r\n"
                )?;
            }
            Ok(())
        };
        host.spawn("web", serve).unwrap();
        web
    }

    fn posts(&self) -> Vec<(String, Value)> {
        self.posts.lock().unwrap().clone()
    }
}

impl Drop for Web {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
    }
}

fn up(host: &Host, directory: &Directory, text: &str) -> Process {
    let place = directory.path().join(host.name());
    fs::create_dir_all(place).unwrap();
    let file = directory.file(&format!("{}/wg0.conf", host.name()), text);
    let mut process = host.command(PROGRAM).arg("up").arg(file).spawn().unwrap();
    let told = |line: &str| line.contains("is up");
    process.wait_for_line("the tunnel", PATIENCE, told).unwrap();
    process
}

#[test]
fn a_pulled_cable_reaches_a_program_and_a_web_address() {
    if !ready() || lab::require(tools::find("curl")).is_none() {
        return;
    }
    let net = TwoLines::new();
    let directory = Directory::new();
    let [a, b] = [&net.a, &net.b].map(|host| Keys::generate(host).unwrap());
    let server = format!(
        "[Interface]\nPrivateKey = {}\nListenPort = {PORT_B}\nAddress = {B4}/24\n\
         [Peer]\nPublicKey = {}\nAllowedIPs = {A4}/32\n",
        b.private, a.public
    );
    let client = format!(
        "{LINES}[Interface]\nPrivateKey = {}\nListenPort = {PORT_A}\nAddress = {A4}/24\n\
         [Peer]\nPublicKey = {}\nEndpoint = {}:{PORT_B}\nAllowedIPs = {B4}/32\nPersistentKeepalive = 1\n",
        a.private,
        b.public,
        TwoLines::SERVER
    );
    let _server = up(&net.b, &directory, &server);
    let _client = up(&net.a, &directory, &client);
    reaches(&net.a, B4);

    let web = Web::start(&net.a, 8080);
    let script = "#!/bin/sh\necho \"$MILLRACE_EVENT $MILLRACE_TUNNEL $MILLRACE_NAME\" >> \"$1\"\n";
    make_executable(&directory.file("alert.sh", script));
    let at = |name: &str| directory.path().join(name).display().to_string();
    let settings = format!(
        "[[on-event]]\nevents = [\"uplink-down\", \"uplink-up\"]\nrun = [{:?}, {:?}]\n\
         [[on-event]]\nevents = [\"uplink-down\"]\ntunnels = [\"wg*\"]\npost = \"http://127.0.0.1:8080/topic?{{1}}\"\n\
         [[on-event]]\ntunnels = [\"mr-*\"]\nrun = [{:?}, {:?}]\n",
        at("alert.sh"),
        at("events"),
        at("alert.sh"),
        at("others"),
    );
    let file = directory.file("alerts.toml", &settings);
    let events = || fs::read_to_string(at("events")).unwrap_or_default();

    let words = ["alerts", "test", "--settings"];
    let exit = net.a.command(PROGRAM).args(words).arg(&file).exit();
    let exit = exit.unwrap();
    assert_eq!(exit.status.code(), Some(0), "{exit:?}");
    assert_eq!(exit.stdout.matches(": ok in ").count(), 3, "{exit:?}");
    assert_eq!(events(), "test  \n");
    let (head, body) = web.posts().remove(0);
    assert!(head.starts_with("POST /topic?{1} HTTP/1.1\r\n"), "{head}");
    assert!(
        head.contains("Content-Type: application/json\r\n"),
        "{head}"
    );
    assert_eq!(body["event"], "test");

    let watch = net.a.command(PROGRAM).args(["alerts", "--settings"]);
    let mut watch = watch.arg(&file).spawn().unwrap();
    let line = |watch: &mut Process, text: &str| {
        let told = |line: &str| line.contains(text);
        watch.wait_for_line(text, PATIENCE, told).unwrap();
    };
    line(&mut watch, "watching");
    // A second process would run each hook twice.
    let second = net.a.command(PROGRAM).args(["alerts", "--settings"]);
    let second = second.arg(&file).exit().unwrap();
    assert_eq!(second.status.code(), Some(1), "{second:?}");
    assert!(second.stderr.contains("runs it already"), "{second:?}");
    net.cables[0].cut(true);
    until("the program", || events().contains("uplink-down wg0 dsl\n"));
    let is_it = |(_, body): &(String, Value)| {
        let text = body["text"].as_str().unwrap();
        body["tunnel"] == "wg0"
            && body["name"] == "dsl"
            && text.starts_with("wg0: uplink dsl is down")
    };
    until("the post", || {
        web.posts().len() > 2 && web.posts().iter().any(is_it)
    });
    // The first post after the test failed, and was repeated.
    let posts = web.posts();
    assert_eq!(posts[1], posts[2]);

    // A faulty file leaves the hooks in force.
    directory.file("alerts.toml", "[[on-event]]\n");
    watch.signal(Signal::SIGHUP).unwrap();
    line(&mut watch, "stay in force");
    net.cables[0].cut(false);
    until("the way back", || events().contains("uplink-up wg0 dsl\n"));
    assert_eq!(fs::read_to_string(at("others")).unwrap(), "test  \n");
    watch.signal(Signal::SIGTERM).unwrap();
    watch.wait_at_most(PATIENCE).unwrap().success().unwrap();

    // A killed service leaves a hook with its child; the next service kills both.
    let script = "#!/bin/sh\nsleep 1000 &\necho $$ >> \"$1\"; echo $! >> \"$1\"\nwait\n";
    make_executable(&directory.file("stays.sh", script));
    let stays = format!(
        "[[on-event]]\nrun = [{:?}, {:?}]\n",
        at("stays.sh"),
        at("left")
    );
    let stays = directory.file("stays.toml", &stays);
    let start = || {
        let service = net.a.command(PROGRAM).args(["alerts", "--settings"]);
        let mut service = service.arg(&stays).spawn().unwrap();
        line(&mut service, "watching");
        service
    };
    let service = start();
    net.cables[0].cut(true);
    let left = || fs::read_to_string(at("left")).unwrap_or_default();
    until("the hook and its child", || left().lines().count() >= 2);
    service.signal(Signal::SIGKILL).unwrap();
    service.wait_at_most(PATIENCE).unwrap();
    let pids: Vec<u32> = left().lines().map(|it| it.parse().unwrap()).collect();
    let runs = |pid: &u32| netio::process::started(*pid).is_some();
    assert!(pids.iter().all(runs), "{pids:?}");
    let service = start();
    until("the end of what was left", || !pids.iter().any(runs));
    service.signal(Signal::SIGTERM).unwrap();
    service.wait_at_most(PATIENCE).unwrap().success().unwrap();
    net.cables[0].cut(false);

    // A hook that fails is told, and so is a file that others may change.
    let post = |address: &str| format!("[[on-event]]\npost = \"http://127.0.0.1:{address}\"\n");
    let failing = ["1/", "8080/gone", "8080/moved"].map(post).concat();
    let failing = format!("[[on-event]]\nrun = \"/bin/false\"\n{failing}");
    let failing = directory.file("failing.toml", &failing);
    let exit = net.a.command(PROGRAM).args(words).arg(&failing).exit();
    let exit = exit.unwrap();
    assert_eq!(exit.status.code(), Some(1));
    assert!(
        exit.stdout
            .contains("run /bin/false: failed: exit status: 1\n"),
        "{exit:?}"
    );
    assert!(
        exit.stdout
            .contains("post to 127.0.0.1:1: failed: exit status: 7\n"),
        "{exit:?}"
    );
    for code in ["404\n", "301; write the address that it redirects to\n"] {
        let line = format!("post to 127.0.0.1:8080: the server answered {code}");
        assert!(exit.stdout.contains(&line), "{exit:?}");
    }
    fs::set_permissions(&failing, fs::Permissions::from_mode(0o666)).unwrap();
    let exit = net.a.command(PROGRAM).args(words).arg(&failing).exit();
    assert!(
        exit.unwrap()
            .stderr
            .contains("other users can change the file")
    );

    // Ctrl-C ends the hook too.
    let script = "#!/bin/sh\necho $$ >> \"$1\"\nexec sleep 1000\n";
    make_executable(&directory.file("hangs.sh", script));
    let hangs = format!(
        "[[on-event]]\nrun = [{:?}, {:?}]\n",
        at("hangs.sh"),
        at("pids")
    )
    .repeat(2);
    let hangs = directory.file("hangs.toml", &hangs);
    let test = net.a.command(PROGRAM).args(words).arg(&hangs);
    let test = test.spawn().unwrap();
    let pids = || fs::read_to_string(at("pids")).unwrap_or_default();
    until("the hook", || pids().ends_with('\n'));
    test.signal(Signal::SIGINT).unwrap();
    assert!(test.wait_at_most(PATIENCE).unwrap().success().is_err());
    // The second hook was not started.
    assert!(
        !Path::new("/proc").join(pids().trim()).exists(),
        "{}",
        pids()
    );
}
