//! Which peer owns an address: longest prefix wins (WireGuard's cryptokey routing).
//!
//! A persistent binary trie: changing it copies the path to the changed node and shares the rest,
//! so the data plane reads an immutable snapshot while control builds the next one, and adding
//! the ten-thousandth prefix costs no more than adding the tenth.

use std::net::IpAddr;
use std::sync::Arc;

/// An immutable table of prefixes; cloning shares everything.
#[derive(Debug)]
pub struct Routes<T> {
    v4: Link<T>,
    v6: Link<T>,
}

type Link<T> = Option<Arc<Node<T>>>;

#[derive(Debug)]
struct Node<T> {
    /// The prefix's bits, left-aligned; the rest are zero.
    bits: u128,
    /// Length of the prefix, in bits.
    len: u8,
    /// `None` on nodes that only branch.
    value: Option<T>,
    children: [Link<T>; 2],
}

impl<T> Default for Routes<T> {
    fn default() -> Self {
        Self { v4: None, v6: None }
    }
}

impl<T> Clone for Routes<T> {
    fn clone(&self) -> Self {
        Self {
            v4: self.v4.clone(),
            v6: self.v6.clone(),
        }
    }
}

/// Left-aligned bits of an address.
fn bits_of(ip: IpAddr) -> u128 {
    match ip {
        IpAddr::V4(ip) => u128::from(u32::from(ip)) << 96,
        IpAddr::V6(ip) => u128::from(ip),
    }
}

fn mask(bits: u128, len: u8) -> u128 {
    if len == 0 {
        0
    } else {
        bits & (u128::MAX << (128 - u32::from(len)))
    }
}

fn bit(bits: u128, at: u8) -> usize {
    ((bits >> (127 - u32::from(at))) & 1) as usize
}

impl<T: Clone> Routes<T> {
    /// The owner of `ip`: the value of the longest prefix that contains it.
    #[must_use]
    pub fn lookup(&self, ip: IpAddr) -> Option<&T> {
        let bits = bits_of(ip);
        let (mut link, width) = match ip {
            IpAddr::V4(_) => (&self.v4, 32),
            IpAddr::V6(_) => (&self.v6, 128),
        };
        let mut best = None;
        while let Some(node) = link {
            if mask(bits, node.len) != node.bits {
                break;
            }
            if node.value.is_some() {
                best = node.value.as_ref();
            }
            if node.len >= width {
                break;
            }
            link = &node.children[bit(bits, node.len)];
        }
        best
    }

    /// The owner of exactly the prefix `ip/len`.
    #[must_use]
    pub fn exact(&self, ip: IpAddr, len: u8) -> Option<&T> {
        let bits = mask(bits_of(ip), len);
        let mut link = match ip {
            IpAddr::V4(_) => &self.v4,
            IpAddr::V6(_) => &self.v6,
        };
        while let Some(node) = link {
            if node.len > len || mask(bits, node.len) != node.bits {
                return None;
            }
            if node.len == len {
                return node.value.as_ref();
            }
            link = &node.children[bit(bits, node.len)];
        }
        None
    }

    /// Assigns the prefix `ip/len` to `value`, taking it from its owner. Bits beyond `len` are
    /// ignored.
    pub fn insert(&mut self, ip: IpAddr, len: u8, value: T) {
        let bits = mask(bits_of(ip), len);
        let root = match ip {
            IpAddr::V4(_) => &mut self.v4,
            IpAddr::V6(_) => &mut self.v6,
        };
        *root = Some(insert(root.as_ref(), bits, len, value));
    }

    /// Removes the prefix `ip/len` if `owned` accepts its value. Returns whether it was removed.
    pub fn remove_if(&mut self, ip: IpAddr, len: u8, owned: impl Fn(&T) -> bool) -> bool {
        let bits = mask(bits_of(ip), len);
        let root = match ip {
            IpAddr::V4(_) => &mut self.v4,
            IpAddr::V6(_) => &mut self.v6,
        };
        let mut removed = false;
        if let Some(node) = root.as_ref() {
            let new = remove(node, bits, len, &owned, &mut removed);
            if removed {
                *root = new;
            }
        }
        removed
    }
}

fn branch<T: Clone>(node: &Node<T>, side: usize, child: Link<T>) -> Arc<Node<T>> {
    let mut children = node.children.clone();
    children[side] = child;
    Arc::new(Node {
        bits: node.bits,
        len: node.len,
        value: node.value.clone(),
        children,
    })
}

fn insert<T: Clone>(link: Option<&Arc<Node<T>>>, bits: u128, len: u8, value: T) -> Arc<Node<T>> {
    let leaf = |value| Node {
        bits,
        len,
        value: Some(value),
        children: [None, None],
    };
    let Some(node) = link else {
        return Arc::new(leaf(value));
    };
    let common = ((bits ^ node.bits).leading_zeros() as u8)
        .min(len)
        .min(node.len);
    if common == node.len && common == len {
        return Arc::new(Node {
            children: node.children.clone(),
            ..leaf(value)
        });
    }
    if common == node.len {
        let side = bit(bits, common);
        let child = insert(node.children[side].as_ref(), bits, len, value);
        return branch(node, side, Some(child));
    }
    if common == len {
        let mut new = leaf(value);
        new.children[bit(node.bits, common)] = Some(Arc::clone(node));
        return Arc::new(new);
    }
    let mut children = [None, None];
    children[bit(bits, common)] = Some(Arc::new(leaf(value)));
    children[bit(node.bits, common)] = Some(Arc::clone(node));
    Arc::new(Node {
        bits: mask(bits, common),
        len: common,
        value: None,
        children,
    })
}

fn remove<T: Clone>(
    node: &Arc<Node<T>>,
    bits: u128,
    len: u8,
    owned: &impl Fn(&T) -> bool,
    removed: &mut bool,
) -> Link<T> {
    let same = Some(Arc::clone(node));
    if node.len > len || mask(bits, node.len) != node.bits {
        return same;
    }
    if node.len == len {
        if !node.value.as_ref().is_some_and(owned) {
            return same;
        }
        *removed = true;
        return match &node.children {
            [None, None] => None,
            [Some(only), None] | [None, Some(only)] => Some(Arc::clone(only)),
            children => Some(Arc::new(Node {
                bits: node.bits,
                len: node.len,
                value: None,
                children: children.clone(),
            })),
        };
    }
    let side = bit(bits, node.len);
    let Some(child) = &node.children[side] else {
        return same;
    };
    let new = remove(child, bits, len, owned, removed);
    if !*removed {
        return same;
    }
    // A branching node with one child left is replaced by that child.
    if node.value.is_none() {
        match (&new, &node.children[1 - side]) {
            (None, Some(other)) => return Some(Arc::clone(other)),
            (None, None) => return None,
            _ => {}
        }
    }
    Some(branch(node, side, new))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::net::{Ipv4Addr, Ipv6Addr};

    #[test]
    fn the_most_specific_owner_wins_and_moves_take_effect() {
        let mut r = Routes::default();
        let ip = |s: &str| s.parse::<IpAddr>().unwrap();
        r.insert(ip("0.0.0.0"), 0, 'a');
        r.insert(ip("10.0.0.0"), 8, 'b');
        r.insert(ip("10.1.2.3"), 32, 'c');
        let before = r.clone();
        assert_eq!(r.lookup(ip("10.1.2.3")), Some(&'c'));
        assert_eq!(r.lookup(ip("10.1.2.4")), Some(&'b'));
        assert_eq!(r.lookup(ip("11.0.0.0")), Some(&'a'));
        assert_eq!(r.lookup(ip("::")), None);
        r.insert(ip("10.99.0.0"), 8, 'd');
        assert_eq!(r.lookup(ip("10.1.2.4")), Some(&'d'));
        assert!(!r.remove_if(ip("10.0.0.0"), 8, |v| *v == 'b'));
        assert!(r.remove_if(ip("10.0.0.0"), 8, |v| *v == 'd'));
        assert_eq!(r.lookup(ip("10.1.2.4")), Some(&'a'));
        assert_eq!(
            before.lookup(ip("10.1.2.4")),
            Some(&'b'),
            "snapshots do not change"
        );
    }

    proptest! {
        #[test]
        fn agrees_with_a_list(
            steps in proptest::collection::vec((any::<bool>(), 0_u32..64, 0_u8..=32, 0_u8..6), 1..120),
            probes in proptest::collection::vec(0_u32..64, 32),
            v6 in any::<bool>(),
        ) {
            // Few distinct bits, at the top and at the bottom, so that prefixes nest and collide.
            let spread = |x: u32| (x & 7) << 29 | (x >> 3);
            let ip = |x: u32| -> IpAddr {
                if v6 {
                    Ipv6Addr::from(u128::from(spread(x)) << 96 | u128::from(spread(x))).into()
                } else {
                    Ipv4Addr::from(spread(x)).into()
                }
            };
            let scale = |len: u8| if v6 { len * 4 } else { len };
            let mut trie = Routes::default();
            let mut list: Vec<(u128, u8, u8)> = Vec::new();
            for (add, x, len, value) in steps {
                let (addr, len) = (ip(x), scale(len));
                let key = mask(bits_of(addr), len);
                if add {
                    trie.insert(addr, len, value);
                    list.retain(|e| (e.0, e.1) != (key, len));
                    list.push((key, len, value));
                } else {
                    let had = list.contains(&(key, len, value));
                    list.retain(|e| *e != (key, len, value));
                    prop_assert_eq!(trie.remove_if(addr, len, |v| *v == value), had);
                }
            }
            for (key, len, value) in &list {
                let addr = if v6 { IpAddr::from(Ipv6Addr::from(*key)) } else {
                    IpAddr::from(Ipv4Addr::from((*key >> 96) as u32))
                };
                prop_assert_eq!(trie.exact(addr, *len), Some(value));
            }
            for x in probes {
                let bits = bits_of(ip(x));
                let best = list.iter().filter(|e| mask(bits, e.1) == e.0).max_by_key(|e| e.1);
                prop_assert_eq!(trie.lookup(ip(x)), best.map(|e| &e.2));
            }
        }
    }
}
