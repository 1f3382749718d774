//! Metrics of a running host.

use mortise_host::{host::Drive, operator::admin::Admin};
use serde_json::json;

use super::{
    CONFIG_MAP, Scene, Stage, VIRTUAL_SERVICE, applies, object, pod, rule, scripted, service, text,
};

/// Returns the lines of `/metrics`.
async fn scrape(stage: &Stage) -> Vec<String> {
    let client = kube::Client::new(Admin::of(&stage.host).router(), "default");
    let request = http::Request::get("/metrics").body(Vec::new()).unwrap();
    let text = client.request_text(request).await.unwrap();
    text.lines().map(str::to_owned).collect()
}

/// Returns the value of a series.
fn value(lines: &[String], series: &str) -> u64 {
    let of = |line: &String| line.strip_prefix(series)?.trim().parse::<f64>().ok();
    let found = lines.iter().find_map(of);
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "counts are small and whole"
    )]
    found.map_or_else(|| panic!("{series} in\n{}", lines.join("\n")), |value| value as u64)
}

#[tokio::test(start_paused = true)]
async fn metrics_count_runs_reads_and_writes() {
    let scene = Scene::of_rules().await;
    scene.load(&service("shop"));
    scene.load(&pod("shop-1", "shop"));
    scene.load(&rule("orders", "shop"));
    let stage = scene.start(Drive::Caller);
    let mut reports = stage.settle().await;
    let made = stage.only(VIRTUAL_SERVICE, "orders-");
    stage
        .edit(
            VIRTUAL_SERVICE,
            text(&made, "/metadata/name"),
            json!({"spec": {"gateways": ["a/b"]}}),
        )
        .await;
    reports.extend(stage.settle().await);
    let told = scrape(&stage).await;

    let of_rule = r#"{processor="api-rule",kind="APIRule.gateway.kyma-project.io""#;
    let count = reports.len() as u64;
    assert_eq!(
        value(&told, &format!(r#"mortise_reconciles_total{of_rule},result="success"}}"#)),
        count
    );
    assert_eq!(
        value(&told, &format!("mortise_reconcile_duration_seconds_count{of_rule}}}")),
        count
    );
    let of_service = r#"{processor="api-rule",kind="VirtualService.networking.istio.io""#;
    assert_eq!(value(&told, &format!(r#"mortise_writes_total{of_service},verb="create"}}"#)), 1);
    assert_eq!(value(&told, &format!(r#"mortise_writes_total{of_service},verb="update"}}"#)), 1);
    assert_eq!(value(&told, &format!("mortise_conflicts_forced_total{of_service}}}")), 1);
    let reads: usize = reports.iter().map(|report| report.record.reads.len()).sum();
    assert_eq!(value(&told, r#"mortise_reads_total{processor="api-rule"}"#), reads as u64);
    let bytes: usize = reports.iter().map(|report| report.record.read_bytes()).sum();
    assert_eq!(value(&told, r#"mortise_read_bytes_total{processor="api-rule"}"#), bytes as u64);
    let skipped: usize = reports.iter().map(|report| report.unchanged).sum();
    assert!(skipped > 0);
    assert_eq!(
        value(&told, r#"mortise_writes_skipped_total{processor="api-rule"}"#),
        skipped as u64
    );
    assert_eq!(value(&told, r#"mortise_store_objects{kind="APIRule.gateway.kyma-project.io"}"#), 1);
    assert!(value(&told, r#"mortise_store_bytes{kind="Service"}"#) > 0);
    // The key waits for its resync.
    assert_eq!(value(&told, r#"mortise_queue_keys{processor="api-rule",state="delayed"}"#), 1);
    assert!(!told.iter().any(|line| line.contains("orders")), "an object's name is a label");
}

#[tokio::test(start_paused = true)]
async fn metrics_count_failures_and_retries() {
    let scene = Scene::of_puppet(CONFIG_MAP).await;
    let nowhere = object(CONFIG_MAP, "made", &json!({"metadata": {"namespace": "nowhere"}}));
    scene.load(&scripted("broken", &applies(&[nowhere])));
    let stage = scene.start(Drive::Caller);
    stage.run(stage.ready().await).await;
    tokio::time::advance(std::time::Duration::from_secs(1)).await;
    stage.run(stage.ready().await).await;
    let told = scrape(&stage).await;
    let failed =
        r#"mortise_reconciles_total{processor="puppet",kind="ConfigMap",result="failure"}"#;
    assert_eq!(value(&told, failed), 2);
    assert_eq!(value(&told, r#"mortise_queue_retries_total{processor="puppet"}"#), 1);
}
