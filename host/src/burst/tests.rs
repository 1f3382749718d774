use super::*;

#[tokio::test(start_paused = true)]
async fn saves_that_come_together_are_one_change() {
    let (send, paths) = mpsc::unbounded_channel();
    let mut burst = Burst::new(paths);
    let write = async {
        for name in ["a", "b"] {
            send.send(PathBuf::from(name)).unwrap();
            tokio::time::sleep(QUIET / 2).await;
        }
        tokio::time::sleep(QUIET).await;
        send.send(PathBuf::from("c")).unwrap();
    };
    let (saved, ()) = tokio::join!(burst.next(), write);
    assert_eq!(saved, BTreeSet::from(["a".into(), "b".into()]));
    assert_eq!(burst.next().await, BTreeSet::from(["c".into()]));
}

#[tokio::test(start_paused = true)]
async fn saves_without_end_are_not_waited_for() {
    let (send, paths) = mpsc::unbounded_channel();
    let mut burst = Burst::new(paths);
    let write = async {
        loop {
            send.send(PathBuf::from("a")).unwrap();
            tokio::time::sleep(QUIET / 2).await;
        }
    };
    let start = Instant::now();
    tokio::select! {
        saved = burst.next() => assert_eq!(saved.len(), 1),
        () = write => {}
    }
    assert_eq!(start.elapsed(), LONGEST);
}

#[tokio::test(start_paused = true)]
async fn what_was_saved_is_not_lost_with_a_wait_that_was_broken_off() {
    let (send, paths) = mpsc::unbounded_channel();
    let mut burst = Burst::new(paths);
    send.send(PathBuf::from("a")).unwrap();
    assert!(tokio::time::timeout(QUIET / 2, burst.next()).await.is_err());
    assert_eq!(burst.next().await, BTreeSet::from(["a".into()]));
}
