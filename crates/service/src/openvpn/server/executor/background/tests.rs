//! Tests that work is done once, in order, by no more threads than allowed.

use super::*;
use std::sync::mpsc;

/// A pool and a channel that signals finished work.
fn pool(threads: usize, waiting: usize) -> (Background<char, u64, u32>, mpsc::Receiver<()>) {
    pool_of(crew(threads, waiting))
}

fn pool_of(crew: Crew) -> (Background<char, u64, u32>, mpsc::Receiver<()>) {
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

/// A pool whose idle threads do not end.
fn lingering(threads: usize) -> (Background<char, u64, u32>, mpsc::Receiver<()>) {
    pool_of(Crew {
        share: threads,
        linger: Duration::from_secs(3600),
        ..crew(threads, 1000)
    })
}

fn collect(
    pool: &Background<char, u64, u32>,
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

/// Occupies a thread with work 1000 for `a`, once it has begun, until the returned sender is dropped.
fn occupy(pool: &Background<char, u64, u32>) -> mpsc::Sender<()> {
    let (release, held) = mpsc::channel::<()>();
    let (began, running) = mpsc::channel();
    pool.submit('a', 1000, move || {
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
    let (pool, woken) = pool(1, 200);
    for n in 0..50 {
        pool.submit('a', n.into(), move || n).unwrap();
    }
    let done = collect(&pool, &woken, 50);
    assert_eq!(done, (0..50).zip(0..50).collect::<Vec<_>>());
    // Whether or not the thread has ended, the next job is done.
    pool.submit('a', 50, || 7).unwrap();
    assert_eq!(collect(&pool, &woken, 1), [(50, 7)]);
}

#[test]
fn slow_work_does_not_hold_up_the_rest() {
    let (pool, woken) = pool(2, 10);
    let (release, held) = mpsc::channel::<()>();
    let slow = move || {
        let _ = held.recv();
        1
    };
    pool.submit('a', 10, slow).unwrap();
    pool.submit('b', 20, || 2).unwrap();
    assert_eq!(collect(&pool, &woken, 1), [(20, 2)]);
    drop(release);
    assert_eq!(collect(&pool, &woken, 1), [(10, 1)]);
}

#[test]
fn what_waits_is_bounded() {
    let (pool, woken) = pool(1, 3);
    let release = occupy(&pool);
    pool.submit('a', 1, || 1).unwrap();
    pool.submit('a', 2, || 2).unwrap();
    let error = pool.submit('a', 3, || 3).unwrap_err();
    assert!(matches!(error, BusyError::Share { waiting: 2 }), "{error}");
    pool.submit('b', 4, || 4).unwrap();
    let error = pool.submit('c', 5, || 5).unwrap_err();
    assert!(matches!(error, BusyError::Full { waiting: 3 }), "{error}");
    drop(release);
    assert_eq!(collect(&pool, &woken, 4).len(), 4);
}

#[test]
fn no_key_has_every_thread_and_keys_take_turns() {
    let (pool, woken) = pool(2, 1000);
    let release = occupy(&pool);
    // Key `a` already has its share of threads, so more of its jobs wait although a thread is idle.
    for n in 0..100 {
        pool.submit('a', n, || 1).unwrap();
    }
    for (key, id) in [('b', 200), ('c', 201), ('b', 202)] {
        pool.submit(key, id, || 7).unwrap();
    }
    let done = collect(&pool, &woken, 3);
    assert_eq!(done, [(200, 7), (201, 7), (202, 7)]);
    drop(release);
    let done = collect(&pool, &woken, 101);
    let ids = done.into_iter().map(|it| it.0);
    assert!(ids.eq([1000].into_iter().chain(0..100)));
}

#[test]
fn what_was_taken_back_is_not_done() {
    let (pool, woken) = pool(1, 4);
    let release = occupy(&pool);
    for (id, key) in ['a', 'a', 'b', 'b'].into_iter().enumerate() {
        pool.submit(key, id as u64, || 1).unwrap();
    }
    assert!(pool.submit('c', 5, || 2).is_err());
    // Cancelling the running job has no effect: it runs to its end.
    for id in [0, 1, 2, 3, 1000] {
        pool.cancel(&id);
    }
    pool.submit('c', 5, || 2).unwrap();
    drop(release);
    assert_eq!(collect(&pool, &woken, 2), [(1000, 0), (5, 2)]);
}

/// Jobs that all wait for each other need all threads, even if some were idle before.
#[test]
fn threads_that_stay_take_what_comes_and_others_join_them() {
    let (pool, woken) = lingering(4);
    for round in 0..20 {
        let count = 1 + round % 4;
        let barrier = Arc::new(std::sync::Barrier::new(count));
        for id in 0..count as u64 {
            let barrier = Arc::clone(&barrier);
            let work = move || {
                barrier.wait();
                0
            };
            pool.submit('a', id, work).unwrap();
        }
        let mut done: Vec<u64> = collect(&pool, &woken, count)
            .into_iter()
            .map(|(id, _)| id)
            .collect();
        done.sort_unstable();
        assert!(done.into_iter().eq(0..count as u64), "round {round}");
    }
    assert!(pool.shared.lock().threads <= 4);
}

#[test]
fn work_that_is_not_taken_is_given_back() {
    let (pool, woken) = pool(1, 2);
    let release = occupy(&pool);
    pool.submit('a', 1, || 1).unwrap();
    let (busy, work) = pool.offer('a', 2, Box::new(|| 7)).unwrap_err();
    assert!(matches!(busy, BusyError::Share { waiting: 1 }), "{busy}");
    assert_eq!(work(), 7);
    drop(release);
    assert_eq!(collect(&pool, &woken, 2).len(), 2);
}

proptest::proptest! {
    /// Any sequence of keys: each job is done once, a key's jobs begin in order, and the queue stays within limits.
    #[test]
    fn each_piece_is_done_once_and_in_order(
        keys in proptest::collection::vec(0_u8..4, 1..120),
        threads in 1_usize..4,
        linger in proptest::bool::ANY,
    ) {
        let linger = if linger { Duration::from_secs(3600) } else { Duration::ZERO };
        let crew = Crew { share: threads, linger, ..crew(threads, 60) };
        let (pool, woken) = pool_of(crew);
        let begun = Arc::new(Mutex::new(Vec::new()));
        let (mut expected, mut taken) = (0, Vec::new());
        for (at, key) in keys.into_iter().enumerate() {
            let key = char::from(b'a' + key);
            let begun = Arc::clone(&begun);
            let work: Work<u32> = Box::new(move || {
                begun.lock().unwrap().push((key, at));
                at as u32
            });
            match pool.offer(key, at as u64, work) {
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
