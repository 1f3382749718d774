use super::*;

#[tokio::test(start_paused = true)]
async fn saves_that_come_together_are_one_change() {
    let (send, paths) = mpsc::unbounded_channel();
    let mut debounced = Debounced::new(paths);
    let write = async {
        for name in ["a", "b"] {
            send.send(PathBuf::from(name)).unwrap();
            tokio::time::sleep(QUIET_PERIOD / 2).await;
        }
        tokio::time::sleep(QUIET_PERIOD).await;
        send.send(PathBuf::from("c")).unwrap();
    };
    let (saved, ()) = tokio::join!(debounced.next(), write);
    assert_eq!(saved, BTreeSet::from(["a".into(), "b".into()]));
    assert_eq!(debounced.next().await, BTreeSet::from(["c".into()]));
}

#[tokio::test(start_paused = true)]
async fn saves_without_end_are_not_waited_for() {
    let (send, paths) = mpsc::unbounded_channel();
    let mut debounced = Debounced::new(paths);
    let write = async {
        loop {
            send.send(PathBuf::from("a")).unwrap();
            tokio::time::sleep(QUIET_PERIOD / 2).await;
        }
    };
    let start = Instant::now();
    tokio::select! {
        saved = debounced.next() => assert_eq!(saved.len(), 1),
        () = write => {}
    }
    assert_eq!(start.elapsed(), MAX_BURST_DURATION);
}

#[tokio::test(start_paused = true)]
async fn a_cancelled_wait_loses_no_change() {
    let (send, paths) = mpsc::unbounded_channel();
    let mut debounced = Debounced::new(paths);
    send.send(PathBuf::from("a")).unwrap();
    assert!(tokio::time::timeout(QUIET_PERIOD / 2, debounced.next()).await.is_err());
    assert_eq!(debounced.next().await, BTreeSet::from(["a".into()]));
}
