//! Every import and every field of an outcome, as Processors of a host that runs as it is
//! installed: with right and declaration, and with only one of them.

mod case;
mod way;

use std::collections::BTreeMap;

use futures::future::join_all;
use mortise_host::operator::api::definition;
use mortise_tests::cluster::{self, Event};
use serde_json::Value;
use tempfile::TempDir;

use self::{
    case::{Case, Has},
    way::Way,
};
use super::{
    ground::Ground,
    kind,
    program::{POLL_INTERVAL, Ports, Program, TIMEOUT, get},
    stage,
};

const PROCESSOR: &str = "mortise.dev/v1alpha1/Processor";
/// The installed settings, with a Lease that is long enough for slow machines.
const LEASE: [&str; 3] = ["--leader-elect", "--lease-seconds=300", "--lease-renew-seconds=240"];

/// A host with a Processor for each case.
struct Table<'a> {
    ground: Ground,
    cases: Vec<Case<'a>>,
    host: Program,
    ports: Ports,
    _folder: TempDir,
}

/// Everything that is known about the cases at one moment.
struct Seen {
    /// The Processors, by name.
    processors: BTreeMap<String, Value>,
    log: Vec<Value>,
    metrics: String,
}

// === impl Table ===

impl<'a> Table<'a> {
    /// Creates the accounts, the objects and the Processors, and starts a host. Returns `None`
    /// without Go.
    async fn open(ways: &'a [Way]) -> Option<Self> {
        let plane = cluster::shared().await.unwrap()?;
        plane.install(&[definition::processors()]).await.unwrap();
        let ground = Ground::on(plane, "permissions").await;
        let cases: Vec<Case<'a>> = Case::all(ways, &ground.namespace);
        let accounts: Vec<String> = cases.iter().map(Case::account).collect();
        ground.let_act_as(&accounts).await;
        join_all(cases.iter().map(|case| case.set_up(&ground))).await;
        ground.until_granted(&accounts).await;

        let folder = tempfile::tempdir().unwrap();
        let kubeconfig = folder.path().join("kubeconfig");
        let config = ground.kubeconfig_of_host(plane).await;
        std::fs::write(&kubeconfig, serde_json::to_string(&config).unwrap()).unwrap();
        let (module, cache) = (folder.path().join("puppet.wasm"), folder.path().join("cache"));
        std::fs::copy(stage::module().await, &module).unwrap();
        // Otherwise a process of low priority compiles the module, which takes long on a busy
        // machine.
        stage::puppet(&module, &cache).await;
        let arguments = LEASE.into_iter().chain(["--namespace", &ground.namespace]);
        let mut host = Program::start(&kubeconfig, folder.path(), &cache, arguments);
        let ports = host.ports().await;
        Some(Self { ground, cases, host, ports, _folder: folder })
    }

    /// Waits for the effects of the first scripts, then switches to the Processors' own scripts.
    async fn begin(&mut self) {
        let Self { ground, cases, host, .. } = self;
        let begin = cases.iter().map(async |case| {
            if let Some(former) = case.former() {
                let is_there = async || ground.get(&kind("v1/Secret"), &former).await.is_some();
                ground.until(&former, is_there).await;
                ground.apply(case.objects()).await;
            }
        });
        tokio::select! {
            _ = join_all(begin) => {}
            (status, said) = host.ended() => panic!("{status}: {said}"),
        }
    }

    async fn look(&mut self) -> Seen {
        let name = |processor: &Value| processor["metadata"]["name"].as_str().unwrap().to_owned();
        let processors = self.ground.list(&kind(PROCESSOR)).await;
        let processors = processors.into_iter().map(|processor| (name(&processor), processor));
        let (_, metrics) = get(&self.ports.public, "/metrics").await;
        Seen { processors: processors.collect(), log: self.host.said(), metrics }
    }

    /// Waits until each case is reported as expected; returns the faults that remain.
    async fn untold(&mut self) -> Vec<String> {
        let begun = tokio::time::Instant::now();
        loop {
            let seen = self.look().await;
            let untold: Vec<String> =
                self.cases.iter().filter_map(|case| case.untold(&seen)).collect();
            if untold.is_empty() || begun.elapsed() > TIMEOUT {
                return untold;
            }
            tokio::time::sleep(POLL_INTERVAL).await;
        }
    }

    /// Returns the cases with a write or read that succeeded and should not, or failed and should
    /// not.
    async fn wrong_ways(&mut self) -> Vec<String> {
        let seen = self.look().await;
        let wrong = self.cases.iter().map(async |case| {
            let is_through = case.is_through(&self.ground, &seen).await;
            (is_through != (case.has == Has::Both))
                .then(|| format!("{case}: through: {is_through}"))
        });
        join_all(wrong).await.into_iter().flatten().collect()
    }

    /// Returns the requests of the host that it should not have sent.
    async fn wrong_requests(&self) -> Vec<String> {
        let cases: BTreeMap<String, &Case<'a>> =
            self.cases.iter().map(|case| (self.ground.user(&case.account()), case)).collect();
        let is_wrong = |event: &&Event| {
            let Some(user) = &event.impersonated_user else { return false };
            cases.get(&user.username).is_none_or(|case| !case.may_ask(event))
        };
        let requests = self.ground.requests().await;
        let mut idle = cases.iter().filter(|(user, case)| {
            case.writes() && !requests.iter().any(|event| event.account() == *user)
        });
        assert_eq!(idle.next().map(|(user, _)| user), None, "it has acted");
        let wrong = requests.iter().filter(is_wrong);
        let wrong = wrong
            .map(|event| format!("{} {} as {}", event.verb, event.request_uri, event.account()));
        wrong.chain(self.ground.beyond_installed(&requests)).collect()
    }
}

#[tokio::test]
async fn every_access_needs_both_the_right_and_the_declaration() {
    let ways = way::all();
    let Some(mut table) = Table::open(&ways).await else { return };
    table.begin().await;
    let mut faults = table.untold().await;
    faults.extend(table.wrong_ways().await);
    table.host.terminate();
    let (status, said) = table.host.ended().await;
    assert_eq!(status.code(), Some(0), "{said}");
    faults.extend(table.wrong_requests().await);
    assert!(faults.is_empty(), "{}", faults.join("\n"));
}
