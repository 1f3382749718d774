use super::*;

const SERVICE: &str = "api-gateway-webhook-service.kyma-system.svc";
/// 2026-01-01T00:00:00Z.
const NOW: Duration = Duration::from_hours(490_896);
const ANNOUNCED: Duration = Duration::from_mins(5);

/// Returns the moment an hour before so many days from [`NOW`]: pairs are valid from and until such
/// moments.
fn day(day: i64) -> Duration {
    let hours = NOW.as_secs() / 3600;
    Duration::from_hours(hours.saturating_add_signed(day * 24 - 1))
}

fn days(days: u64) -> Duration {
    Duration::from_hours(24 * days)
}

/// A pair that the original has made: valid for 90 days, the first 30 of which have passed.
fn of_original() -> Stored {
    let pair = Pair {
        chain: include_str!("../../../certificate/src/chain/rsa.crt").to_owned(),
        key: include_str!("../../../certificate/src/chain/rsa.key").to_owned(),
    };
    Stored { current: Some(pair), ..Stored::default() }
}

fn plan_for(stored: &Stored, now: Duration, named: &[&str], is_held: bool) -> Plan {
    let named: Vec<String> = named.iter().map(|host| (*host).to_owned()).collect();
    let mut wanted = vec![SERVICE.to_owned()];
    wanted.extend(named.iter().filter(|host| *host != SERVICE).cloned());
    let of = Situation { now, named: &named, wanted: &wanted, announced: ANNOUNCED };
    plan(stored.clone(), &of, |_| is_held).unwrap()
}

fn made() -> Stored {
    plan_for(&Stored::default(), NOW, &[SERVICE], true).stored
}

fn authorities(bundle: Option<&String>) -> usize {
    certificate::chain::authorities(bundle.unwrap()).unwrap().len()
}

#[test]
fn without_a_pair_one_is_made() {
    let Plan { stored, step, again } = plan_for(&Stored::default(), NOW, &[SERVICE], false);
    assert_eq!((step, again, &stored.next), (Step::Made, CHECK_INTERVAL, &None));
    assert_eq!(stored.bundle, stored.authority());
    let pair = stored.current.unwrap();
    let hosts = [SERVICE.to_owned()];
    let valid = [day(0), NOW, day(90)];
    assert_eq!(valid.map(|at| is_usable(&pair, &hosts, at)), [true; 3]);
    assert!(!is_usable(&pair, &hosts, NOW + LIFETIME));
}

#[test]
fn a_pair_is_kept_until_a_fortnight_before_its_end() {
    let stored = made();
    let end = day(90 - 14);
    for at in [NOW, NOW + days(30), end] {
        let expected = Plan { stored: stored.clone(), step: Step::Kept, again: CHECK_INTERVAL };
        assert_eq!(plan_for(&stored, at, &[SERVICE], true), expected);
    }
    let late = plan_for(&stored, end + Duration::from_secs(1), &[SERVICE], true);
    assert_eq!(late.step, Step::Announced);
}

#[test]
fn the_next_authority_is_announced_before_its_certificate_is_served() {
    let first = made();
    let due = NOW + days(80);
    let Plan { stored: announced, step, again } = plan_for(&first, due, &[SERVICE], true);
    assert_eq!((step, again), (Step::Announced, ANNOUNCED));
    assert_eq!(announced.current, first.current);
    let bundle = announced.bundle.clone().unwrap();
    assert!(holds(&bundle, &first.authority().unwrap()));
    let next = announced.next.clone().unwrap();
    assert!(holds(&bundle, &authority(&next).unwrap()));

    let waits = plan_for(&announced, due + ANNOUNCED / 2, &[SERVICE], true);
    let expected = Plan { stored: announced.clone(), step: Step::Waiting, again: ANNOUNCED / 2 };
    assert_eq!(waits, expected);
    let waits = plan_for(&announced, due + ANNOUNCED, &[SERVICE], false);
    let expected = Plan { again: CHECK_INTERVAL, ..expected };
    assert_eq!(waits, expected, "a client does not hold it");

    let Plan { stored, step, again } = plan_for(&announced, due + ANNOUNCED, &[SERVICE], true);
    assert_eq!((step, again), (Step::Replaced, CHECK_INTERVAL));
    assert_eq!(stored, Stored { current: Some(next), next: None, bundle: Some(bundle) });
    assert_eq!(plan_for(&stored, due + days(1), &[SERVICE], true).stored, stored);
}

#[test]
fn a_former_authority_is_trusted_until_the_next_renewal() {
    let first = made();
    let mut stored = first.clone();
    let mut now = NOW;
    for _ in 0..2 {
        now += days(80);
        stored = plan_for(&stored, now, &[SERVICE], true).stored;
        stored = plan_for(&stored, now + ANNOUNCED, &[SERVICE], true).stored;
        assert_eq!(authorities(stored.bundle.as_ref()), 2);
    }
    assert!(!holds(&stored.bundle.unwrap(), &first.authority().unwrap()));
}

#[test]
fn a_pair_of_the_original_stays_while_it_is_valid() {
    let of_original = of_original();
    assert_eq!(of_original.trusted().as_ref(), Some(&of_original.current.as_ref().unwrap().chain));
    for at in [NOW, day(90 - 30 - 14)] {
        let kept = plan_for(&of_original, at, &[SERVICE], true);
        assert_eq!((kept.step, &kept.stored), (Step::Kept, &of_original));
    }
    let late = day(90 - 30 - 14) + Duration::from_secs(1);
    let announced = plan_for(&of_original, late, &[SERVICE], true);
    assert_eq!(announced.step, Step::Announced);
    assert_eq!(announced.stored.current, of_original.current);
    assert_eq!(authorities(announced.stored.bundle.as_ref()), 2);
}

#[test]
fn a_service_gets_a_certificate_before_clients_name_it() {
    let own = "mortise.mortise-system.svc".to_owned();
    let named = [SERVICE.to_owned()];
    let wanted = [own.clone(), SERVICE.to_owned()];
    let of = Situation { now: NOW, named: &named, wanted: &wanted, announced: ANNOUNCED };
    let Plan { stored, step, .. } = plan(of_original(), &of, |_| true).unwrap();
    assert_eq!((step, &stored.current), (Step::Announced, &of_original().current));
    assert!(is_usable(stored.next.as_ref().unwrap(), &wanted, NOW));
    let now = NOW + ANNOUNCED;
    let Plan { stored, step, .. } = plan(stored, &Situation { now, ..of }, |_| true).unwrap();
    assert_eq!(step, Step::Replaced);
    let named = [own];
    let moved = Situation { now, named: &named, wanted: &named, ..of };
    assert_eq!(plan(stored, &moved, |_| true).unwrap().step, Step::Kept);
}

#[test]
fn a_pair_that_nobody_can_use_is_replaced_at_once() {
    let pair = |chain: &Stored, key: &Stored| {
        let (chain, key) = (chain.current.clone().unwrap(), key.current.clone().unwrap());
        let current = Some(Pair { chain: chain.chain, key: key.key });
        Stored { current, ..made() }
    };
    let garbage = Pair { chain: "x".into(), key: "y".into() };
    let cases = [
        ("expired", made(), NOW + LIFETIME, SERVICE, 2),
        ("not yet valid", made(), day(-1), SERVICE, 2),
        ("for another host", made(), NOW, "other.kyma-system.svc", 2),
        ("with another key", pair(&made(), &made()), NOW, SERVICE, 2),
        ("no certificate", Stored { current: Some(garbage), ..Stored::default() }, NOW, SERVICE, 1),
    ];
    for (what, stored, now, named, known) in cases {
        let Plan { stored: made, step, .. } = plan_for(&stored, now, &[named], false);
        assert_eq!((step, &made.next), (Step::Made, &None), "{what}");
        assert!(is_usable(made.current.as_ref().unwrap(), &[named.to_owned()], now), "{what}");
        assert_eq!(authorities(made.bundle.as_ref()), known, "{what}");
    }
}

#[test]
fn a_next_pair_that_does_not_fit_any_more_is_made_anew() {
    let announced = plan_for(&made(), NOW + days(80), &[SERVICE], true).stored;
    let now = NOW + days(80) + ANNOUNCED;
    let named = [SERVICE, "other.kyma-system.svc"];
    let of = Situation {
        now,
        named: &[SERVICE.to_owned()],
        wanted: &named.map(str::to_owned),
        announced: ANNOUNCED,
    };
    let Plan { stored, step, .. } = plan(announced.clone(), &of, |_| true).unwrap();
    assert_eq!((step, &stored.current), (Step::Announced, &announced.current));
    assert_ne!(stored.next, announced.next);
    assert_eq!(authorities(stored.bundle.as_ref()), 2);
    let at_end = plan_for(&announced, NOW + LIFETIME, &[SERVICE], false);
    assert_eq!((at_end.step, at_end.stored.current), (Step::Made, announced.next));
}

#[test]
fn a_next_pair_that_is_not_needed_goes() {
    let announced = plan_for(&made(), NOW + days(80), &[SERVICE], true).stored;
    let kept = plan_for(&announced, NOW, &[SERVICE], true);
    assert_eq!((kept.step, kept.stored.next), (Step::Kept, None));
}

#[test]
fn a_bundle_of_another_pair_is_not_trusted() {
    let stored = Stored { bundle: made().bundle, ..made() };
    assert_eq!(stored.trusted(), Some(stored.current.clone().unwrap().chain));
    let kept = plan_for(&stored, NOW, &[SERVICE], true);
    assert_eq!((kept.step, kept.stored.bundle), (Step::Kept, None));
}

#[test]
fn a_host_must_be_a_name() {
    let hosts = ["é.svc".to_owned()];
    let of = Situation { now: NOW, named: &hosts, wanted: &hosts, announced: ANNOUNCED };
    let error = plan(Stored::default(), &of, |_| true).unwrap_err();
    assert!(error.starts_with("no certificate for é.svc: "), "{error}");
}
