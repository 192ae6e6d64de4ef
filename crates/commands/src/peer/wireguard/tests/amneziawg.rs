//! Clients of servers with AmneziaWG.

use super::*;
use config::amnezia::{draw, lines, link};

/// A client of a server with AmneziaWG gets the server's values, in a file and in a link.
#[test]
fn clients_get_the_values_of_amneziawg() {
    for (_, generation) in draw::Generation::ALL {
        let office = Office::new();
        let settings = draw::draw(generation, Some(draw::Look::Quic));
        let text = office.text();
        let amnezia = lines(&settings);
        let text = text.replace("ListenPort = 7\n", &format!("ListenPort = 7\n{}", *amnezia));
        fs::write(office.path(), text).unwrap();
        let shown = RefCell::default();
        let wanted = Wanted {
            name: "phone",
            terms: Terms::default(),
            file: None,
            qr: false,
            link: true,
            behind: Vec::new(),
            note: None,
            keepalive: None,
            shown: &shown,
        };
        let new = New {
            name: "phone",
            behind: &[],
            note: None,
            keepalive: None,
        };
        crate::peer::add_all(&office.path(), &wanted.terms, &[new], &wanted).unwrap();
        let file = link::read(&shown.borrow()).unwrap();
        assert!(file.contains(amnezia.as_str()), "{}", *file);
        let import = wgquick::parse(&file, "phone.conf", config::permissions::Permissions::NONE);
        assert_eq!(import.into_tunnel().unwrap().0.interface.amnezia, settings);
        assert_eq!(office.list(), ["phone  current"]);
        // Other values at the server ask for another file.
        let changed = office.text().replacen("\nJc = ", "\nJc = 1", 1);
        fs::write(office.path(), changed).unwrap();
        assert_eq!(office.list(), ["phone  outdated"]);
    }
}
