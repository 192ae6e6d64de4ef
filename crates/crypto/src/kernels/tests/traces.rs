//! Constant time where valgrind cannot look: whatever the secrets are, a candidate executes the same instructions in the same
//! order.
//!
//! A child process does the work in single steps, and the addresses of its instructions are compared. That finds a branch on
//! a secret in code for any instructions, AVX-512 included; it does not see what is loaded, which `secrets.rs` does.

use super::common::*;

/// What a process executed: how many instructions, and a sum over their addresses in order. `None` if nothing may be traced.
fn executed(work: impl FnOnce()) -> Option<(usize, u64)> {
    // SAFETY: the child does nothing but what follows: `work` allocates nothing and takes no lock, and no destructor runs.
    // Registers are read into a structure made for them, for which zeros are valid.
    unsafe {
        let child = libc::fork();
        assert!(child >= 0, "a process more");
        if child == 0 {
            if libc::ptrace(libc::PTRACE_TRACEME, 0, 0, 0) != 0 {
                libc::_exit(1);
            }
            libc::raise(libc::SIGSTOP);
            work();
            libc::_exit(0);
        }
        let mut status = 0;
        libc::waitpid(child, &raw mut status, 0);
        let (mut count, mut sum) = (0, 0_u64);
        while libc::WIFSTOPPED(status) {
            let signal = libc::WSTOPSIG(status);
            if !matches!(signal, libc::SIGTRAP | libc::SIGSTOP) {
                // A fault would come again at every step.
                libc::kill(child, libc::SIGKILL);
                libc::waitpid(child, &raw mut status, 0);
                panic!("signal {signal} after {count} instructions");
            }
            let mut registers: libc::user_regs_struct = core::mem::zeroed();
            libc::ptrace(libc::PTRACE_GETREGS, child, 0, &raw mut registers);
            sum = (sum.rotate_left(5) ^ registers.rip).wrapping_mul(0x517c_c1b7_2722_0a95);
            count += 1;
            libc::ptrace(libc::PTRACE_SINGLESTEP, child, 0, 0);
            libc::waitpid(child, &raw mut status, 0);
        }
        let ended = libc::WIFEXITED(status) && libc::WEXITSTATUS(status) == 0;
        ended.then_some((count, sum))
    }
}

/// Compares what is executed with some secrets. The first time counts for nothing: functions are looked up.
fn the_same_way(name: &str, mut work: impl FnMut(&mut Numbers)) -> bool {
    if name == "portable" {
        // Most instructions, each of which costs two visits to the kernel here, and valgrind sees the same ones.
        return true;
    }
    work(&mut Numbers(0));
    let mut with = |seed| executed(|| work(&mut Numbers(seed)));
    let Some(first) = with(1) else {
        println!("processes may not be traced here: branches were NOT compared");
        return true;
    };
    println!("{name}: {} instructions", first.0);
    with(2) == Some(first)
}

const LENS: [usize; 6] = [30, 30, 30, 30, 17, 70];

#[test]
fn a_branch_on_a_secret_is_found() {
    let mut secret = [0; 8];
    let same = the_same_way("a leak", |numbers| {
        numbers.fill(&mut secret);
        if std::hint::black_box(secret[0]) % 7 == 3 {
            std::hint::black_box(&mut secret)[1] = 5;
        }
        for _ in 0..std::hint::black_box(secret[2]) {
            std::hint::black_box(());
        }
    });
    // Where nothing can be traced, nothing can be found.
    assert!(!same || executed(|| ()).is_none());
}

#[test]
fn sealing_takes_the_same_way_whatever_the_secrets() {
    for algorithm in [AeadAlgorithm::Aes256Gcm, AeadAlgorithm::ChaCha20Poly1305] {
        let mut end = 0;
        let places = LENS.map(|len| {
            let text = end + 8..end + 8 + len;
            end = text.end + TAG_LEN;
            Place {
                aad: text.start - 8..text.start,
                tag: text.end,
                text,
                nonce: [end as u8; 12],
            }
        });
        for (at, (name, _)) in aeads(algorithm, &[0; 32]).iter().enumerate() {
            // With a key of each seed, made where allocating is allowed.
            let kernels = keys().map(|key| aeads(algorithm, &key).swap_remove(at).1);
            let mut memory = vec![0; end];
            let same = the_same_way(name, |numbers| {
                let kernel = &kernels[numbers.0 as usize];
                numbers.fill(&mut memory);
                kernel.seal(&mut memory, &places);
            });
            assert!(same, "{name} {}", algorithm.name());
        }
    }
}

#[test]
fn chains_take_the_same_way_whatever_the_secrets() {
    let mut end = 0;
    let chains = LENS.map(|len| {
        let text = end + 16..end + 16 + len / 16 * 16;
        end = text.end;
        Chain::new(&text, 16)
    });
    for (at, (name, _)) in cbcs(&[0; 32]).iter().enumerate() {
        let kernels = keys().map(|key| cbcs(&key).swap_remove(at).1);
        let mut memory = vec![0; end];
        let same = the_same_way(name, |numbers| {
            let kernel = &kernels[numbers.0 as usize];
            numbers.fill(&mut memory);
            kernel.encrypt(&mut memory, &chains);
            kernel.decrypt(&mut memory, &chains);
        });
        assert!(same, "{name}");
    }
}

#[test]
fn macs_take_the_same_way_whatever_the_secrets() {
    let mut end = 0;
    let messages = LENS.map(|len| {
        end += len;
        end - len..end
    });
    for digest in [Digest::Sha1, Digest::Sha256, Digest::Sha512] {
        for (at, (name, _)) in macs(digest, &[0; 32]).iter().enumerate() {
            let kernels = keys().map(|key| macs(digest, &key).swap_remove(at).1);
            let mut memory = vec![0; end];
            let mut found = [Mac::EMPTY; LENS.len()];
            let same = the_same_way(name, |numbers| {
                let kernel = &kernels[numbers.0 as usize];
                numbers.fill(&mut memory);
                kernel.sign_each(&memory, &messages, &mut found);
            });
            assert!(same, "{name} {digest}");
        }
    }
}

/// A key for each seed.
fn keys() -> [[u8; 32]; 3] {
    core::array::from_fn(|seed| {
        let mut key = [0; 32];
        Numbers(seed as u64 + 99).fill(&mut key);
        key
    })
}
