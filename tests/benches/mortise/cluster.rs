//! Many APIRules: the first reconcile of all of them, beside a bare client that sends the same
//! requests to another API; resyncs; a new host; a change of a Gateway that all rules read; and a
//! deleted or changed produced object, until it is restored. All of it on a real control plane and,
//! by the same code, on the API in memory beside it.

mod bare;
mod plane;
mod tap;
mod work;

use std::time::Duration;

use mortise_core::grant::rights::Account;
use mortise_host::host::{Loaded, Settings};

use self::{
    bare::Sent,
    plane::{Place, Plane},
    work::{Drift, Took, Work},
};
use crate::{
    calls::runtime,
    process::API_THREAD,
    restart::{RESYNC_BUDGET, START_BUDGET},
    table::{Table, Times},
};

/// Concurrent calls, and so concurrent streams of requests: the host's own number.
const CONCURRENCY: usize = 4;
/// The account of the processor.
const ACCOUNT: (&str, &str) = ("kyma-system", "api-rule");

/// The measurements of one API with this many rules.
struct Measured {
    rules: u32,
    writes: usize,
    /// Until every rule has been reconciled.
    first: Took,
    bare: Sent,
    after_writes: Took,
    resync: Took,
    again: Took,
    gateway: Took,
    deleted: Times,
    changed: Times,
}

/// Adds the cost of 1,000 and 5,000 rules.
///
/// # Errors
///
/// Fails without Go, which builds the control plane; if rules do not become ready; or if a host
/// fails.
pub(crate) fn run(table: &mut Table) -> anyhow::Result<()> {
    table.columns(["real control plane", "API in memory"]);
    [1_000, 5_000].into_iter().try_for_each(|rules| {
        let serving = runtime(2, API_THREAD)?;
        let hosting = runtime(2, "host")?;
        let measured = hosting.block_on(async {
            let real = Box::pin(measure(&Place::Real, rules)).await?;
            let embedded = Place::Embedded(serving.handle().clone());
            anyhow::Ok([real, Box::pin(measure(&embedded, rules)).await?])
        });
        hosting.shutdown_background();
        serving.shutdown_background();
        Rows { table, measured: measured?, rules }.all();
        Ok(())
    })
}

async fn measure(api: &Place, rules: usize) -> anyhow::Result<Measured> {
    let plane = Plane::start(api, rules).await?;
    let before = plane.versions().await?;
    let (work, first) = Work::first(&plane, rules).await?;
    plane.check().await?;
    let recorded = work.tap.take_recorded();
    let writes = recorded.iter().filter(|request| request.verb.is_write()).count();
    // A run that wrote something is no proof that the next one would write nothing.
    let after_writes = work.resync().await?;
    let resync = work.resync().await?;
    work.host.stop().await?;

    let (work, again) = Work::again(&plane, rules).await?;
    let gateway = work.gateway_changes().await?;
    let deleted = work.drifts(Drift::Deleted).await?;
    let changed = work.drifts(Drift::Changed).await?;
    work.host.stop().await?;
    drop(plane);

    let other = Plane::start(api, rules).await?;
    let after = other.versions().await?;
    let bare = bare::send(&other, recorded, &before, &after, CONCURRENCY).await?;
    other.check().await?;
    let rules = u32::try_from(rules)?;
    Ok(Measured {
        rules,
        writes,
        first,
        bare,
        after_writes,
        resync,
        again,
        gateway,
        deleted,
        changed,
    })
}

/// Loads the processor, which will run with the rights of its account.
async fn loaded() -> anyhow::Result<Loaded> {
    let loaded = mortise_tests::loaded("guests/api-rule", "{}").await?;
    let (namespace, name) = ACCOUNT;
    let account = Account { namespace: namespace.to_owned(), name: name.to_owned() };
    let settings = Settings { account: Some(account), ..Settings::in_namespace(namespace) };
    Ok(Loaded { settings, ..loaded })
}

/// Adds rows with the figures of both APIs.
struct Rows<'a> {
    table: &'a mut Table,
    measured: [Measured; 2],
    rules: usize,
}

// === impl Rows ===

impl Rows<'_> {
    fn row(&mut self, what: &str, budget: &str, figure: impl Fn(&Measured) -> String) {
        self.table.figures(what, self.measured.iter().map(figure), budget);
    }

    fn first(&mut self) {
        let rules = self.rules;
        self.row(&format!("{rules} rules, first time"), "", |of| {
            let wall = seconds(of.first.wall);
            format!("{wall:.2} s ({:.2} ms per rule)", wall * 1e3 / f64::from(of.rules))
        });
        self.row("  host CPU", "< half a core", |of| {
            let (wall, cpu) = (seconds(of.first.wall), seconds(of.first.host));
            format!("{cpu:.2} s ({:.2} cores)", cpu / wall.max(f64::EPSILON))
        });
        self.row("  requests", "", |of| of.first.requests.clone());
        self.row("  the server's CPU", "", |of| of.first.used.per_write(of.writes));
        self.row("  a bare client sends the same requests", "", |of| {
            let Sent { wall, client, .. } = &of.bare;
            format!("{:.2} s, CPU {:.2} s", seconds(*wall), seconds(*client))
        });
        self.row("    the server's CPU", "", |of| of.bare.used.per_write(of.writes));
        self.row("    the host beside it", "< 1.3 ×", |of| {
            format!("{:.2} × its time", seconds(of.first.wall) / seconds(of.bare.wall))
        });
    }

    fn again(&mut self, what: &str, budget: &str, took: impl Fn(&Measured) -> &Took) {
        let rules = self.rules;
        self.row(&format!("{rules} rules, {what}"), budget, |of| {
            let Took { wall, host, runs, .. } = took(of);
            format!("{:.2} s, CPU {:.2} s, {runs} runs", seconds(*wall), seconds(*host))
        });
        self.row("  requests", "", |of| took(of).requests.clone());
    }

    fn drifts(&mut self, what: &str, drifts: impl Fn(&Measured) -> &Times) {
        self.row(&format!("  a produced object is {what}"), "< 1 s", |of| {
            let drifts = [drifts(of).median(), drifts(of).at(100)];
            let [median, longest] = drifts.map(|time| seconds(time) * 1e3);
            format!("median {median:.1} ms, longest {longest:.1} ms")
        });
    }

    fn all(mut self) {
        self.first();
        self.again("a resync after writes", START_BUDGET, |of| &of.after_writes);
        self.again("a later resync", RESYNC_BUDGET, |of| &of.resync);
        self.again("a new host", START_BUDGET, |of| &of.again);
        self.again("a Gateway that all read changes", "", |of| &of.gateway);
        self.drifts("deleted, until it is there again", |of| &of.deleted);
        self.drifts("changed, until it is as it was", |of| &of.changed);
    }
}

fn seconds(time: Duration) -> f64 {
    time.as_secs_f64()
}
