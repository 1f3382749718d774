//! A host that is killed in the middle of its writes, repeatedly, on a real control plane.

use std::{fs, path::Path};

use walkdir::WalkDir;

use super::{
    line::Line,
    shop::{Shop, assert_same},
};

/// The numbers of rules and of kills.
struct Extent {
    rules: usize,
    kills: usize,
}

/// Returns whether a rule is deleted during the test.
fn is_doomed(rule: usize) -> bool {
    rule % 10 == 3
}

/// Runs hosts that lose their connection to the API server and are then killed, one after the
/// other, spread over all the writes of a whole run; then a host that is not killed. The cache
/// directory is damaged between some of them. In the middle, some rules are deleted. The final
/// state must be that of an undisturbed host.
async fn ends_alike(Extent { rules, kills }: Extent) {
    let Some(shop) = Shop::open().await else { return };
    let kept = shop.cache("kept");
    let doomed = || (0..rules).filter(|rule| is_doomed(*rule));
    shop.make(0..rules).await;
    let mut writes = shop.reconcile_once(&kept).await.writes().len();
    shop.delete(doomed()).await;
    writes += shop.reconcile_once(&kept).await.writes().len();
    let expected = shop.state().await;
    assert_eq!(expected.len(), (rules - doomed().count()) * 7, "a rule, and six objects for it");
    shop.delete((0..rules).filter(|rule| !is_doomed(*rule))).await;
    shop.reconcile_once(&kept).await;
    assert_eq!(shop.state().await.len(), 0, "nothing is left of rules that are deleted");

    shop.make(0..rules).await;
    let points = kill_points(writes, kills);
    let mut written = 0;
    for (kill, point) in points.iter().enumerate() {
        let line =
            Line::ending_after(&shop.plane, Some(point.saturating_sub(written).max(1))).await;
        let cache = if kill % 2 == 0 { kept.clone() } else { shop.cache(&kill.to_string()) };
        if kill % 4 == 2 {
            damage(&kept);
        }
        let host = shop.host(&line, &cache, &[]);
        if kill == kills / 2 {
            // Some rules are deleted while a host runs, others while none does.
            shop.delete(doomed().step_by(2)).await;
        }
        line.ended().await;
        host.kill();
        if kill == kills / 2 {
            shop.delete(doomed().skip(1).step_by(2)).await;
        }
        written += line.writes().len();
    }
    println!("killed after these writes: {points:?}");
    let left = shop.reconcile_once(&kept).await.writes().len();
    println!(
        "undisturbed {writes} writes; {kills} hosts that were killed {written}, the last one {left}"
    );
    assert_same(&shop.state().await, &expected);
    for cache in [kept, shop.cache("another")] {
        let line = shop.reconcile_once(&cache).await;
        assert_eq!(line.told(), "", "with what the cache holds, and without it");
    }
    assert_same(&shop.state().await, &expected);
}

/// Changes a byte in the middle of each file of compiled code.
fn damage(cache: &Path) {
    let mut damaged = 0;
    let all = WalkDir::new(cache).into_iter().map(Result::unwrap);
    for file in all.filter(|entry| entry.file_type().is_file()) {
        let mut bytes = fs::read(file.path()).unwrap();
        let middle = bytes.len() / 2;
        if let Some(byte) = bytes.get_mut(middle) {
            *byte ^= 0xff;
            fs::write(file.path(), bytes).unwrap();
            damaged += 1;
        }
    }
    assert!(damaged > 0, "there is compiled code");
}

/// Returns `kills` points in a sequence of writes, spread as far as possible, and at different
/// writes of an object's sequence.
fn kill_points(writes: usize, kills: usize) -> Vec<usize> {
    // Rules that are deleted before a host has read them need no writes.
    let reached = writes * 8 / 10;
    (1..=kills).map(|kill| reached * kill / (kills + 1) + kill % 3).collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn rules_end_alike_however_often_the_host_is_killed() {
    ends_alike(Extent { rules: 30, kills: 6 }).await;
}

/// `cargo test -p mortise-tests --test it -- --ignored --nocapture killed::`
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "takes minutes"]
async fn three_hundred_rules_end_alike_after_sixty_kills() {
    ends_alike(Extent { rules: 300, kills: 60 }).await;
}
