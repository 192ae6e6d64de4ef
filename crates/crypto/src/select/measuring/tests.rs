use super::*;

/// Candidates that took this long for each shape, by kind.
fn tried(times: &[(Backend, [u64; SHAPES.len()])]) -> Vec<Tried> {
    let each = times
        .iter()
        .enumerate()
        .map(|(index, (backend, times))| Tried {
            of: Among {
                index,
                backend: *backend,
                name: "",
            },
            implementation: Implementation::new(Algorithm::AesGcm, 0).unwrap(),
            times: times.map(Duration::from_micros),
        });
    each.collect()
}

#[test]
fn portable_code_is_taken_only_where_it_is_far_ahead() {
    use Backend::{Portable, Simd};
    for (times, many, few) in [
        (&[(Simd, [9; 5]), (Portable, [8; 5])][..], 0, 0),
        (&[(Simd, [20; 5]), (Portable, [8; 5])], 1, 1),
        (
            &[(Simd, [20; 5]), (Portable, [8; 5]), (Simd, [11; 5])],
            2,
            2,
        ),
        // For few packets, the vector registers may cost more than they save.
        (
            &[(Simd, [8, 8, 9, 9, 9]), (Portable, [20, 20, 2, 2, 2])],
            0,
            1,
        ),
        (&[(Simd, [10; 5]), (Simd, [9; 5])], 1, 1),
        (&[(Portable, [8; 5])], 0, 0),
    ] {
        assert_eq!(picked(&tried(times)), Picked { many, few }, "{times:?}");
    }
    assert_eq!(picked(&[]), Picked::FIRST);
}

/// The measurements of two candidates, where the first is far ahead for a single small packet.
fn measured_beside_one_far_ahead(second: Backend) -> [Option<Duration>; 2] {
    let mut both = tried(&[(Backend::Simd, [0; 5]), (second, [0; 5])]);
    for of in &mut both {
        of.times = [Duration::MAX; SHAPES.len()];
    }
    // The first seems to be measured already, with a time that no run can beat.
    both[0].times[SHAPES.len() - 1] = Duration::from_nanos(1);
    measure(&mut both, &mut vec![0; STRIDE * SHAPES[0].0]);
    let [first, second] = &both[..] else {
        unreachable!()
    };
    [first, second].map(|of| of.measured().alone)
}

#[test]
fn only_portable_code_far_behind_for_a_small_packet_is_tried_no_further() {
    let [first, second] = measured_beside_one_far_ahead(Backend::Portable);
    assert!(first.is_some() && second.is_none());
    let [first, second] = measured_beside_one_far_ahead(Backend::Simd);
    assert!(first.is_some() && second.is_some());
}

/// Binds this thread to a processor.
#[cfg(target_arch = "x86_64")]
fn bind(cpu: usize) {
    // SAFETY: zeros are valid for a set of processors, and the calls are given its size.
    unsafe {
        let mut set: libc::cpu_set_t = core::mem::zeroed();
        libc::CPU_SET(cpu, &mut set);
        assert_eq!(
            libc::sched_setaffinity(0, size_of_val(&set), &raw const set),
            0
        );
    }
}

/// The first processor on which this thread may run.
#[cfg(target_arch = "x86_64")]
fn first_cpu() -> usize {
    // SAFETY: as above.
    unsafe {
        let mut set: libc::cpu_set_t = core::mem::zeroed();
        assert_eq!(
            libc::sched_getaffinity(0, size_of_val(&set), &raw mut set),
            0
        );
        (0..libc::CPU_SETSIZE as usize)
            .find(|&cpu| libc::CPU_ISSET(cpu, &set))
            .unwrap()
    }
}

/// Both ends of a tunnel that start at once on a router's one processor, among other programs. Only on x86-64:
/// elsewhere an emulator may be at work, where portable code is indeed faster.
#[cfg(target_arch = "x86_64")]
#[test]
fn two_hundred_measurements_beside_busy_loops_choose_no_portable_code() {
    use std::sync::atomic::{AtomicBool, Ordering};

    let busy = AtomicBool::new(true);
    let cpu = first_cpu();
    std::thread::scope(|scope| {
        for _ in 0..3 {
            scope.spawn(|| {
                bind(cpu);
                while busy.load(Ordering::Relaxed) {
                    core::hint::spin_loop();
                }
            });
        }
        let measuring = scope.spawn(|| {
            bind(cpu);
            let mut wrong = Vec::new();
            for algorithm in [Algorithm::ChaCha20Poly1305, Algorithm::AesGcm] {
                let candidates = algorithm.candidates_of(|kind| kind != Backend::Accelerator);
                let among = Among::present(&candidates);
                for round in 0..200 {
                    let (picked, measured) = fastest(algorithm, &among);
                    let kinds = [picked.many, picked.few].map(|index| candidates[index].0);
                    if kinds.contains(&Backend::Portable) {
                        wrong.push((algorithm, round, measured));
                    }
                }
            }
            wrong
        });
        let wrong = measuring.join();
        busy.store(false, Ordering::Relaxed);
        let wrong = wrong.unwrap();
        assert!(wrong.is_empty(), "{} of 400: {wrong:#?}", wrong.len());
    });
}
