//! Random schedules: objects come, change and go while the API fails, is edited and the host starts
//! anew. Whatever the order, there is one entity for each object in the end, and none for others.
//!
//! `KONNECT_SEED` runs the schedule of one seed; a failure prints seed and steps.

pub(super) mod actors;

use std::{cell::Cell, collections::BTreeSet, env, panic, time::Duration};

use mortise_sdk::testing::{cluster::Write, identity::Pattern};
use serde_json::{Value, json};

use self::actors::{Actor, MIRRORED, actors, faults};
use super::{
    fixture::{NAMESPACE, World, merge},
    references::{KONG, KONNECT, grant},
    watch::{collections, is_held},
};
use crate::kind::{self, text};

const PERIOD: u32 = 60;
/// The schedules for which one cluster serves.
const BATCH: u64 = 50;
const STEPS: u64 = 30;

/// Numbers that a seed decides (`SplitMix64`).
struct Random(u64);

/// A step of a schedule, by what it is about: a number of the objects, or of the faults.
#[derive(Debug, Clone, Copy)]
enum Step {
    Create(usize),
    Edit(usize, u64),
    Label(usize, u64),
    Delete(usize),
    /// All objects, in an order that a number decides.
    DeleteAll(u64),
    /// The finalizers of an object that is not being deleted are taken away.
    Strip(usize),
    Fail(usize, i64),
    Recover,
    /// The entity of an object is edited, or removed, in Konnect.
    EditEntity(usize),
    RemoveEntity(usize),
    /// The host starts anew.
    Restart,
    ForgetNotes,
    /// The next writes of a status are refused.
    RefuseStatus(usize),
    Wait(u64),
}

// === impl Random ===

impl Random {
    fn number(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    fn below(&mut self, end: u64) -> u64 {
        self.number() % end
    }

    fn index(&mut self, length: usize) -> usize {
        usize::try_from(self.below(length as u64)).unwrap()
    }

    fn step(&mut self, objects: usize, faults: usize) -> Step {
        let (of, value) = (self.index(objects), self.below(1_000));
        match self.below(100) {
            0..30 => Step::Create(of),
            30..42 => Step::Edit(of, value),
            42..45 => Step::Label(of, value),
            45..55 => Step::Delete(of),
            55 => Step::DeleteAll(value),
            56..59 => Step::Strip(of),
            59..72 => Step::Fail(self.index(faults), 1 + i64::try_from(value % 4).unwrap()),
            72..76 => Step::Recover,
            76..79 => Step::EditEntity(of),
            79..82 => Step::RemoveEntity(of),
            82..85 => Step::Restart,
            85..87 => Step::ForgetNotes,
            87..91 => Step::RefuseStatus(1 + self.index(3)),
            91..95 => Step::Wait(value),
            _ => Step::Wait(value * 60),
        }
    }
}

/// One schedule.
struct Schedule<'a> {
    world: &'a mut World,
    actors: &'a [Actor],
    faults: &'a [Value],
}

impl Schedule<'_> {
    fn stored(&self, of: &Actor) -> Option<Value> {
        self.world.get(of.kind(), of.name())
    }

    fn is_live(&self, of: &Actor) -> bool {
        self.stored(of).is_some_and(|object| object["metadata"].get("deletionTimestamp").is_none())
    }

    fn delete(&self, of: &Actor) {
        if self.is_live(of) {
            self.world.delete(of.kind(), of.name());
        }
    }

    /// Changes the entity of an object in Konnect.
    fn change_entity(&self, of: &Actor, change: impl Fn(&str, &str) -> Value) {
        let id = self
            .stored(of)
            .and_then(|object| Some(kind::find(of.kind())?.id(&object, "id")?.to_owned()));
        // A mirror does not own its control plane.
        let Some(id) = id.filter(|id| id != MIRRORED) else { return };
        let fake = self.world.fake.lock();
        let plane = fake.entities("control-planes").into_iter().find(|plane| plane["id"] == id);
        let has = fake.entities(of.collection()).iter().any(|entity| entity["id"] == *id);
        drop(fake);
        if let Some(plane) = plane {
            self.world.change(json!({"removeControlPlane": plane["name"]}));
        } else if has {
            let second = self.actors[2].name();
            let of_second = of.object.to_string().contains(&format!("\"{second}\""));
            let in_plane = if of_second { second } else { self.actors[1].name() };
            let mut change = change(of.collection(), &id);
            change["controlPlane"] = in_plane.into();
            self.world.change(change);
        }
    }

    fn take(&mut self, step: Step) {
        let actors = self.actors;
        match step {
            Step::Create(of) if self.stored(&actors[of]).is_none() => {
                self.world.apply(&actors[of].object);
            }
            Step::Edit(of, to) if self.is_live(&actors[of]) => {
                self.world.patch(actors[of].kind(), actors[of].name(), (actors[of].change)(to));
            }
            Step::Label(of, to) if self.is_live(&actors[of]) => {
                let label = json!({"metadata": {"labels": {"l": to.to_string()}}});
                self.world.patch(actors[of].kind(), actors[of].name(), label);
            }
            Step::Delete(of) => self.delete(&actors[of]),
            Step::DeleteAll(from) => {
                let from = usize::try_from(from).unwrap();
                let count = actors.len();
                (0..count).for_each(|at| self.delete(&actors[(from + at * 8) % count]));
            }
            Step::Strip(of) if self.is_live(&actors[of]) => {
                let none = json!({"metadata": {"finalizers": []}});
                self.strip(&actors[of], none);
            }
            Step::Fail(of, times) => {
                let mut fault = self.faults[of].clone();
                merge(&mut fault, json!({"path": "^/v2/", "times": times}));
                self.world.faults(json!([fault]));
            }
            Step::Recover => self.recover(),
            Step::EditEntity(of) => self.change_entity(&actors[of], |collection, id| {
                json!({"edit": collection, "name": id, "set": {"tls_verify_depth": 7}})
            }),
            Step::RemoveEntity(of) => self.change_entity(&actors[of], |collection, id| {
                json!({"remove": collection, "name": id})
            }),
            Step::Restart => self.world.start_host(),
            Step::ForgetNotes => self.world.stub.forget_notes(),
            Step::RefuseStatus(times) => {
                let all = Pattern::parse(&format!("*/{NAMESPACE}/*")).unwrap();
                let refused = (500, "etcd is away");
                self.world.cluster().refuse(&all, Write::Status, refused, Some(times)).unwrap();
            }
            Step::Wait(milliseconds) => {
                return self.world.settle_for(Duration::from_millis(milliseconds + 1));
            }
            _ => return,
        }
        self.world.pass();
    }

    /// Takes finalizers away. Those that do not come back are put back: without one of them nothing
    /// would be deleted that is there already.
    fn strip(&self, of: &Actor, none: Value) {
        let before = self.stored(of).unwrap_or_default()["metadata"]["finalizers"].clone();
        self.world.patch(of.kind(), of.name(), none);
        self.world.pass();
        if before.is_array() {
            let all = json!({"metadata": {"finalizers": before}});
            self.world.patch(of.kind(), of.name(), all);
        }
    }

    fn recover(&self) {
        self.world.faults(json!([]));
        self.world.cluster().refuse_nothing();
    }

    /// No object has two entities: by their marks or, without, by their content.
    fn check_single(&self) {
        let fake = self.world.fake.lock();
        let mut seen = BTreeSet::new();
        for entity in collections().flat_map(|collection| fake.entities(collection)) {
            let mark = crate::sync::find::marked_uid(&entity).or_else(|| text(&entity, "cert"));
            let Some(mark) = mark else { continue };
            assert!(seen.insert(mark.to_owned()), "a second entity: {entity}");
        }
    }

    /// Lets the API answer as it should, and time pass until nothing is left to be done.
    fn come_to_rest(&self) {
        self.recover();
        self.world.settle_for(Duration::from_mins(10));
        self.check_single();
    }

    /// Checks that each object that stays has its entity; then deletes all, and nothing is left.
    fn end(&self) {
        if self.stored(&self.actors[0]).is_none() {
            self.world.apply(&self.actors[0].object);
            self.come_to_rest();
        }
        // What has lost a parent has no entity: it goes, so that each that stays has one.
        for (at, actor) in self.actors.iter().enumerate() {
            let mut parents = self.actors[..at].iter().filter(|parent| is_child(actor, parent));
            if parents.any(|parent| !self.is_live(parent)) {
                self.delete(actor);
            }
        }
        self.come_to_rest();
        let mut entities = 0;
        for actor in self.actors.iter().filter(|actor| !actor.collection().is_empty()) {
            let Some(object) = self.stored(actor) else { continue };
            let told = self.world.condition(actor.kind(), actor.name(), "Programmed");
            assert_eq!(told, "True/Programmed ", "{object}");
            assert!(is_held(&object), "{object}");
            let id = kind::find(actor.kind()).unwrap().id(&object, "id").unwrap();
            let all = self.world.fake.lock().entities(actor.collection());
            assert!(all.iter().any(|entity| entity["id"] == id), "no entity of {object}");
            entities += usize::from(id != MIRRORED);
        }
        assert_eq!(self.entities(), entities, "entities of objects that are gone");
        self.actors.iter().rev().for_each(|actor| self.delete(actor));
        self.come_to_rest();
        let left: Vec<Value> = self.actors.iter().filter_map(|actor| self.stored(actor)).collect();
        assert_eq!((left, self.entities()), (Vec::new(), 0));
    }

    fn entities(&self) -> usize {
        let fake = self.world.fake.lock();
        let all = collections().flat_map(|collection| fake.entities(collection));
        all.filter(|entity| entity["id"] != MIRRORED).count()
    }
}

/// Returns whether an object is not programmed without another one.
fn is_child(of: &Actor, parent: &Actor) -> bool {
    let mut groups = of.object["consumerGroups"].as_array().into_iter().flatten();
    if parent.kind() == "KongConsumerGroup" && groups.any(|group| group == parent.name()) {
        return true;
    }
    let mut members = of.object["spec"]["members"].as_array().into_iter().flatten();
    if parent.kind() == of.kind() && members.any(|member| member["name"] == parent.name()) {
        return true;
    }
    let entity = kind::find(of.kind()).unwrap();
    let references = entity.references.iter().filter(|reference| reference.to == parent.kind());
    let mut names = references.flat_map(|reference| reference.names(&of.object));
    names.any(|name| name.name == parent.name())
}

/// Runs the schedules of these seeds.
fn run(seeds: impl IntoIterator<Item = u64>) {
    let (actors, faults) = (actors(), faults());
    let mut world = World::with_period(PERIOD);
    world.stub.delete("KonnectGatewayControlPlane/*/cp");
    world.stub.delete("KonnectAPIAuthConfiguration/*/auth");
    world.settle();
    let planes = (KONNECT, "KonnectGatewayControlPlane");
    world.apply(&grant("of-vault", NAMESPACE, (KONG, "KongVault", ""), planes));
    world.change(json!({"putControlPlane": {"id": MIRRORED, "name": "theirs"}}));
    for seed in seeds {
        let mut random = Random(seed);
        let steps: Vec<Step> =
            (0..STEPS).map(|_| random.step(actors.len(), faults.len())).collect();
        let mut schedule = Schedule { world: &mut world, actors: &actors, faults: &faults };
        let reached = Cell::new(0);
        let ran = panic::catch_unwind(panic::AssertUnwindSafe(|| {
            for step in &steps {
                schedule.take(*step);
                reached.set(reached.get() + 1);
                schedule.check_single();
            }
            schedule.end();
        }));
        if let Err(why) = ran {
            let (reached, steps) = (reached.get(), shown(&actors, &steps));
            eprintln!("KONNECT_SEED={seed}: failed after {reached} steps of\n{steps}");
            panic::resume_unwind(why);
        }
    }
}

/// Returns the steps of a schedule with the objects that they are about.
fn shown(actors: &[Actor], steps: &[Step]) -> String {
    let object = |of: &Actor| format!("{}/{}", of.kind(), of.name());
    let objects = actors.iter().enumerate().map(|(at, of)| format!("object {at}: {}", object(of)));
    let steps = steps.iter().enumerate().map(|(at, step)| format!("{at}: {step:?}"));
    objects.chain(steps).collect::<Vec<_>>().join("\n")
}

fn run_batches(count: u64) {
    if let Ok(seed) = env::var("KONNECT_SEED") {
        return run([seed.parse().expect("KONNECT_SEED is a number")]);
    }
    for first in (0..count).step_by(usize::try_from(BATCH).unwrap()) {
        run(first..count.min(first + BATCH));
    }
}

#[test]
fn random_schedules_leave_one_entity_for_each_object() {
    run_batches(50);
}

#[test]
#[ignore = "1,000 schedules take minutes"]
fn many_random_schedules_leave_one_entity_for_each_object() {
    run_batches(1_000);
}
