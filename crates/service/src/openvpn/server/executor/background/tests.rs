//! Tests that work is done once, in order, by no more threads than allowed.

use super::*;
use std::sync::mpsc;

/// A pool and a channel that signals finished work.
fn pool(threads: usize, waiting: usize) -> (Background<char, u32>, mpsc::Receiver<()>) {
    pool_of(crew(threads, waiting))
}

fn pool_of(crew: Crew) -> (Background<char, u32>, mpsc::Receiver<()>) {
    let (sender, receiver) = mpsc::channel();
    let wake = move || {
        let _ = sender.send(());
    };
    (Background::new(crew, wake), receiver)
}

fn crew(threads: usize, waiting: usize) -> Crew {
    Crew {
        name: "test",
        threads,
        share: threads.saturating_sub(1).max(1),
        waiting,
        nice: None,
        linger: Duration::ZERO,
        confined: false,
    }
}

/// A pool whose idle threads stay.
fn lingering(threads: usize) -> (Background<char, u32>, mpsc::Receiver<()>) {
    pool_of(Crew {
        share: threads,
        linger: Duration::from_secs(3600),
        ..crew(threads, 1000)
    })
}

fn collect(
    pool: &Background<char, u32>,
    woken: &mpsc::Receiver<()>,
    count: usize,
) -> Vec<(u64, u32)> {
    let mut done = Vec::new();
    while done.len() < count {
        woken.recv().unwrap();
        done.extend(pool.take_done());
    }
    done
}

/// Occupies a thread with work for `a`, once it has begun, until the returned sender is dropped.
fn occupy(pool: &mut Background<char, u32>) -> mpsc::Sender<()> {
    let (release, held) = mpsc::channel::<()>();
    let (began, running) = mpsc::channel();
    pool.submit('a', move || {
        let _ = began.send(());
        let _ = held.recv();
        0
    })
    .unwrap();
    running.recv().unwrap();
    release
}

#[test]
fn one_thread_keeps_the_order() {
    let (mut pool, woken) = pool(1, 200);
    let numbers: Vec<u64> = (0..50)
        .map(|n| pool.submit('a', move || n).unwrap())
        .collect();
    let done = collect(&pool, &woken, 50);
    assert_eq!(done, numbers.into_iter().zip(0..50).collect::<Vec<_>>());
    // Whether the thread has ended or not, the next piece is done.
    pool.submit('a', || 7).unwrap();
    assert_eq!(collect(&pool, &woken, 1)[0].1, 7);
}

#[test]
fn slow_work_does_not_hold_up_the_rest() {
    let (mut pool, woken) = pool(2, 10);
    let (release, held) = mpsc::channel::<()>();
    let slow = pool
        .submit('a', move || {
            let _ = held.recv();
            1
        })
        .unwrap();
    let quick = pool.submit('b', || 2).unwrap();
    assert_eq!(collect(&pool, &woken, 1), [(quick, 2)]);
    drop(release);
    assert_eq!(collect(&pool, &woken, 1), [(slow, 1)]);
}

#[test]
fn what_waits_is_bounded() {
    let (mut pool, woken) = pool(1, 3);
    let release = occupy(&mut pool);
    pool.submit('a', || 1).unwrap();
    pool.submit('a', || 2).unwrap();
    let error = pool.submit('a', || 3).unwrap_err();
    assert!(matches!(error, BusyError::Share { waiting: 2 }), "{error}");
    pool.submit('b', || 4).unwrap();
    let error = pool.submit('c', || 5).unwrap_err();
    assert!(matches!(error, BusyError::Full { waiting: 3 }), "{error}");
    drop(release);
    assert_eq!(collect(&pool, &woken, 4).len(), 4);
}

#[test]
fn no_key_has_every_thread_and_keys_take_turns() {
    let (mut pool, woken) = pool(2, 1000);
    let (release, held) = mpsc::channel::<()>();
    let (began, running) = mpsc::channel();
    let slow = pool
        .submit('a', move || {
            let _ = began.send(());
            let _ = held.recv();
            0
        })
        .unwrap();
    running.recv().unwrap();
    // Key `a` has its share running, so more of its work waits although a thread is idle.
    let greedy: Vec<u64> = (0..100)
        .map(|n| pool.submit('a', move || n).unwrap())
        .collect();
    let others = ['b', 'c', 'b'].map(|key| pool.submit(key, || 7).unwrap());
    let done = collect(&pool, &woken, 3);
    assert_eq!(done, [(others[0], 7), (others[1], 7), (others[2], 7)]);
    drop(release);
    let done = collect(&pool, &woken, 101);
    let numbers: Vec<u64> = done.iter().map(|it| it.0).collect();
    assert_eq!((numbers[0], &numbers[1..]), (slow, &greedy[..]));
}

#[test]
fn what_was_taken_back_is_not_done() {
    let (mut pool, woken) = pool(1, 4);
    let (release, held) = mpsc::channel::<()>();
    let (began, running) = mpsc::channel();
    let first = pool
        .submit('a', move || {
            let _ = began.send(());
            let _ = held.recv();
            0
        })
        .unwrap();
    running.recv().unwrap();
    let doomed = ['a', 'a', 'b', 'b'].map(|key| pool.submit(key, || 1).unwrap());
    assert!(pool.submit('c', || 2).is_err());
    // Cancelling the running piece has no effect: it runs to its end.
    for number in doomed.into_iter().chain([first]) {
        pool.cancel(number);
    }
    let last = pool.submit('c', || 2).unwrap();
    drop(release);
    assert_eq!(collect(&pool, &woken, 2), [(first, 0), (last, 2)]);
}

/// Pieces that all wait for each other need all threads, even if some were idle before.
#[test]
fn threads_that_stay_take_what_comes_and_others_join_them() {
    let (mut pool, woken) = lingering(4);
    for round in 0..20 {
        let count = 1 + round % 4;
        let barrier = Arc::new(std::sync::Barrier::new(count));
        let numbers: Vec<u64> = (0..count)
            .map(|_| {
                let barrier = Arc::clone(&barrier);
                let work = move || {
                    barrier.wait();
                    0
                };
                pool.submit('a', work).unwrap()
            })
            .collect();
        let mut done: Vec<u64> = collect(&pool, &woken, count)
            .into_iter()
            .map(|(number, _)| number)
            .collect();
        done.sort_unstable();
        assert_eq!(done, numbers, "round {round}");
    }
    assert!(pool.shared.lock().threads <= 4);
}

#[test]
fn work_that_is_not_taken_is_given_back() {
    let (mut pool, woken) = pool(1, 2);
    let release = occupy(&mut pool);
    pool.submit('a', || 1).unwrap();
    let (busy, work) = pool.offer('a', Box::new(|| 7)).unwrap_err();
    assert!(matches!(busy, BusyError::Share { waiting: 1 }), "{busy}");
    assert_eq!(work(), 7);
    drop(release);
    assert_eq!(collect(&pool, &woken, 2).len(), 2);
}

proptest::proptest! {
    /// Any sequence of keys: each piece is done once, a key's pieces begin in order, and the queue stays within limits.
    #[test]
    fn each_piece_is_done_once_and_in_order(
        keys in proptest::collection::vec(0_u8..4, 1..120),
        threads in 1_usize..4,
        linger in proptest::bool::ANY,
    ) {
        let linger = if linger { Duration::from_secs(3600) } else { Duration::ZERO };
        let crew = Crew { share: threads, linger, ..crew(threads, 60) };
        let (mut pool, woken) = pool_of(crew);
        let begun = Arc::new(Mutex::new(Vec::new()));
        let (mut expected, mut taken) = (0, Vec::new());
        for (at, key) in keys.into_iter().enumerate() {
            let key = char::from(b'a' + key);
            let begun = Arc::clone(&begun);
            let work: Work<u32> = Box::new(move || {
                begun.lock().unwrap().push((key, at));
                at as u32
            });
            match pool.offer(key, work) {
                Ok(_) => {
                    expected += 1;
                    taken.push((key, at));
                }
                Err((BusyError::Full { waiting }, _)) => {
                    proptest::prop_assert_eq!(waiting, 60);
                }
                Err((BusyError::Share { waiting }, _)) => {
                    proptest::prop_assert_eq!(waiting, 30);
                }
                Err((busy, _)) => panic!("{busy}"),
            }
        }
        let mut done: Vec<u32> = collect(&pool, &woken, expected).into_iter().map(|it| it.1).collect();
        done.sort_unstable();
        let all: Vec<u32> = taken.iter().map(|(_, at)| *at as u32).collect();
        proptest::prop_assert_eq!(done, all);
        if threads == 1 {
            let begun = begun.lock().unwrap();
            for key in ['a', 'b', 'c', 'd'] {
                let of = |list: &[(char, usize)]| -> Vec<usize> {
                    list.iter().filter(|it| it.0 == key).map(|it| it.1).collect()
                };
                proptest::prop_assert_eq!(of(&begun), of(&taken));
            }
        }
    }
}
