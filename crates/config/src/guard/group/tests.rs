use super::*;
use proptest::prelude::*;

fn listed(interface: &str, lan: &[&str]) -> Listed {
    Listed {
        interface: interface.to_owned(),
        device: format!("mr-{interface}"),
        lan: lan.iter().map(|it| (*it).to_owned()).collect(),
    }
}

fn file(text: &str) -> Guard {
    Guard::from_toml(text, Path::new("guard.toml")).unwrap()
}

/// Each group as `lan > tunnels`.
fn shown_groups(guard: &Guard) -> Vec<String> {
    let words = |it: &Group| {
        let tunnels: Vec<String> = it.tunnels.iter().map(Pattern::to_string).collect();
        format!("{} > {}", it.lan.join(" "), tunnels.join(" "))
    };
    guard.groups.iter().map(words).collect()
}

#[test]
fn devices_with_the_same_tunnels_are_one_group() {
    let lists = [
        listed("office", &["br-lan", "br-guest"]),
        listed("home", &["br-lan", "br-iot"]),
        listed("spare", &["br-iot"]),
    ];
    let (guard, left) = Guard::default().with_lists(&lists, &[]);
    assert_eq!(left, Vec::<String>::new());
    assert_eq!(
        shown_groups(&guard),
        [
            "br-lan > mr-office mr-home",
            "br-guest > mr-office",
            "br-iot > mr-home mr-spare"
        ]
    );
    let tables: Vec<u32> = guard.groups.iter().map(|it| it.table).collect();
    assert_eq!(tables, [7740, 7741, 7742]);
    assert_eq!((guard.fault(), guard.parts().len()), (None, 3));
    assert_eq!(guard.guarded(), ["br-lan", "br-guest", "br-iot"]);
}

#[test]
fn the_file_and_a_list_hold_together() {
    let text =
        "lan = [\"br-lan\", \"br-iot\"]\nreach = [\"br-x\"]\ntunnels = [\"mr-o*\"]\ntable = 7740";
    let lists = [
        listed("office", &["br-lan"]),
        listed("home", &["br-lan", "br-guest"]),
    ];
    let (guard, _) = file(text).with_lists(&lists, &[]);
    // Only the tunnels that both allow; the other device is in the list alone.
    assert_eq!(
        shown_groups(&guard),
        ["br-lan > mr-office", "br-guest > mr-home"]
    );
    let parts = guard.parts();
    assert_eq!(
        (parts[0].lan.as_slice(), parts[0].table),
        (&["br-iot"][..], 7740)
    );
    assert_eq!((parts[1].table, parts[2].table), (7741, 7742));
    assert_eq!(guard.within(), ["br-lan", "br-iot", "br-guest", "br-x"]);
    // No tunnel is in both, so the device's packets are dropped.
    let (guard, left) = file(text).with_lists(&[listed("home", &["br-lan"])], &[]);
    assert_eq!(shown_groups(&guard), ["br-lan > "]);
    assert_eq!((left.len(), guard.fault()), (0, None));
}

#[test]
fn what_cannot_be_held_is_said() {
    let lists = [
        listed("office", &["lo", "mr-home", "mr-other", "a b", "br-lan"]),
        listed("home", &["br-lan"]),
    ];
    let (guard, left) = file("lan = [\"br-x\"]").with_lists(&lists, &[]);
    assert_eq!(shown_groups(&guard), ["br-lan > mr-office mr-home"]);
    let told = [
        "the host itself",
        "mr-home is a tunnel",
        "mr-other is a tunnel",
        "no name of a device",
    ];
    assert_eq!(left.len(), told.len(), "{left:?}");
    for (left, told) in left.iter().zip(told) {
        assert!(
            left.starts_with("office: ") && left.contains(told),
            "{left}"
        );
    }
    let (guard, left) = file("lan = [\"mr-office\"]\ntunnels = [\"tun0\"]")
        .with_lists(&[listed("office", &["br-lan"])], &[]);
    assert!(
        guard.groups.is_empty() && left[0].contains("is of the LAN"),
        "{left:?}"
    );
    let many: Vec<String> = (0..20).map(|number| format!("br-{number}")).collect();
    let many: Vec<&str> = many.iter().map(String::as_str).collect();
    let (guard, left) = Guard::default().with_lists(&[listed("office", &many)], &[]);
    assert_eq!((guard.groups[0].lan.len(), left.len()), (LISTED_MAX, 4));
}

#[test]
fn the_file_has_no_groups_of_its_own() {
    let (guard, _) = Guard::default().with_lists(&[listed("office", &["br-lan"])], &[]);
    let path = Path::new("guard.toml");
    assert!(Guard::from_toml(&guard.to_kept(), path).is_err());
    for wrong in [
        "group = 1",
        "[[group]]\nlan = []",
        "[[group]]\nlan = []\ntunnels = [\"*\"]\ntable = 9",
    ] {
        assert!(Guard::from_kept(wrong, path).is_err(), "{wrong}");
    }
    let twice = Group {
        table: 9,
        ..guard.groups[0].clone()
    };
    let doubled = Guard {
        groups: [guard.groups.clone(), vec![twice]].concat(),
        ..guard
    };
    assert!(doubled.fault().unwrap().contains("two groups"));
}

fn some_lists() -> impl Strategy<Value = Vec<Listed>> {
    let list = (0..6_u8, prop::collection::vec(0..24_u8, 0..8));
    prop::collection::vec(list, 0..8).prop_map(|lists| {
        let names = |lan: Vec<u8>| lan.into_iter().map(|it| format!("br-{it}")).collect();
        lists
            .into_iter()
            .map(|(interface, lan)| Listed {
                interface: format!("i{interface}"),
                device: format!("mr-{interface}"),
                lan: names(lan),
            })
            .collect()
    })
}

proptest! {
    /// For any lists, a device is in one group, and has only tunnels of its lists or the file, in the order of the
    /// lists. It is left out only with a notice. Tables differ from one another and from those of earlier tunnels.
    #[test]
    fn groups_are_as_strict_as_lists_and_file(
        lists in some_lists(),
        earlier in some_lists(),
        lan in prop::collection::vec(0..24_u8, 0..4),
        tunnel in 0..6_u8,
        table in 7730_u32..7780,
    ) {
        let mut base = Guard {
            lan: lan.iter().map(|it| format!("br-{it}")).collect(),
            table,
            tunnels: vec![Pattern::new(&format!("mr-{tunnel}")).unwrap()],
            ..Guard::default()
        };
        base.merge_doubles();
        let (before, _) = base.clone().with_lists(&earlier, &[]);
        let (guard, left) = base.clone().with_lists(&lists, &before.groups);
        prop_assert_eq!(guard.fault().filter(|_| !guard.is_empty()), None);
        for list in &lists {
            for name in &list.lan {
                let group = guard.groups.iter().find(|it| it.lan.contains(name));
                prop_assert!(group.is_some() || left.iter().any(|it| it.contains(name.as_str())));
            }
        }
        for part in guard.parts().iter().filter(|it| it.table != base.table) {
            for name in &part.lan {
                let of_lists: Vec<&String> =
                    lists.iter().filter(|it| it.lan.iter().any(|lan| lan == name)).map(|it| &it.device).collect();
                let places: Vec<usize> = part.tunnels.iter()
                    .map(|tunnel| of_lists.iter().position(|it| tunnel.matches(it)).unwrap()).collect();
                prop_assert!(places.is_sorted());
                if base.lan.iter().any(|it| it == name) {
                    prop_assert!(part.tunnels.iter().all(|it| base.rank(it.start()).is_some()));
                } else {
                    prop_assert!(of_lists.iter().all(|it| part.rank(it).is_some()));
                }
            }
            let other = before.groups.iter().find(|it| it.table == part.table);
            prop_assert!(other.is_none_or(|it| it.tunnels == part.tunnels));
        }
        // A second application changes nothing, and the written text is read as the same settings.
        let (again, _) = base.with_lists(&lists, &guard.groups);
        prop_assert_eq!(&again, &guard);
        prop_assert_eq!(Guard::from_kept(&guard.to_kept(), Path::new("kept")).unwrap(), guard);
    }
}
