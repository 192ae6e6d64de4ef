//! Values of AmneziaWG: packets of tags, ranges, and requests of the configuration protocol, of which a refused one
//! changes nothing.
#![no_main]

use config::uapi::{DeviceState, Request, Requests, write_get};
use libfuzzer_sys::fuzz_target;
use wireguard::amnezia::{PACKET_MAX, Range, Settings, Template};

fuzz_target!(|text: &str| {
    if let Ok(template) = Template::parse(text) {
        for stamp in [4, 8] {
            let packet = template.emit(1, 2, stamp);
            assert_eq!(packet.len(), template.len(stamp));
            assert!(packet.len() <= PACKET_MAX);
        }
        assert_eq!(Template::parse(template.text()), Ok(template));
    }
    if let Ok(range) = text.parse::<Range<u32>>() {
        assert!(range.contains(range.draw()));
        assert_eq!(range.to_string().parse(), Ok(range));
    }
    let mut current = Settings::default();
    let mut requests = Requests::new(text.as_bytes());
    while let Ok(Some(request)) = requests.next_request() {
        let Ok(Request::Set(set)) = request else {
            continue;
        };
        let before = current.clone();
        match set.amnezia.apply(&current) {
            Ok(after) => current = after,
            Err(_) => assert_eq!(current, before),
        }
        assert_eq!(current.check(), Ok(()));
        let device = DeviceState {
            amnezia: current.clone(),
            ..DeviceState::default()
        };
        let mut answer = Vec::new();
        write_get(&mut answer, &device, []).expect("memory");
        let answer = String::from_utf8(answer).expect("text");
        let again = format!("set=1\n{}", answer.replace("errno=0\n", ""));
        match Requests::new(again.as_bytes()).next_request() {
            Ok(Some(Ok(Request::Set(set)))) => {
                assert_eq!(set.amnezia.apply(&Settings::default()), Ok(current.clone()));
            }
            other => panic!("{again}: {other:?}"),
        }
    }
});
