//! The faults of the API, crossed with creation, update and deletion, for an entity of each shape.
//!
//! Each cell: what is asked for, what the status tells meanwhile, when it is tried again, and that
//! there is one entity, or none, when the fault is over.

mod table;

use std::time::Duration;

use mortise_sdk::testing::Settled;
use serde_json::{Value, json};

use self::table::{
    Again, Fault, ONE_OF_EACH,
    Operation::{self, Create, Delete, Update},
    PERIOD, Shape, WRITES, faults,
};
use super::{
    fixture::{NAMESPACE, World},
    watch::is_held,
};
use crate::kind;

/// A fault that meets an operation on the object of a shape.
struct Cell<'a> {
    world: &'a World,
    shape: &'a Shape,
    fault: &'a Fault,
    operation: Operation,
}

impl Cell<'_> {
    fn kind(&self) -> &str {
        self.shape.object["kind"].as_str().unwrap()
    }

    fn stored(&self) -> Option<Value> {
        self.world.get(self.kind(), "x")
    }

    /// Returns the entities of the object.
    fn entities(&self) -> Vec<Value> {
        let mut found = self.world.fake.lock().entities(self.shape.collection);
        found.retain(|entity| entity["name"] != "cp" && entity["name"] != "parent");
        found
    }

    fn change(&self, to: usize) {
        self.world.patch(self.kind(), "x", (self.shape.change)(to));
    }

    /// Returns the requests since the last call, with `ID` for each ID.
    fn requests(&self) -> Vec<String> {
        let shorten = |request: &String| {
            let (method, path) = request.split_once(' ').unwrap();
            let steps = path.split('/').skip(2);
            let steps: Vec<&str> =
                steps.map(|step| if step.len() == 36 { "ID" } else { step }).collect();
            let from = steps.iter().rposition(|step| *step == self.shape.collection).unwrap();
            format!("{method} {}", steps[from..].join("/"))
        };
        self.world.requests().iter().map(shorten).collect()
    }

    /// Returns what is asked for up to the fault.
    fn attempt(&self) -> Vec<String> {
        let of = match self.operation {
            Create => self.shape.create,
            Update => self.shape.update,
            Delete => return vec![format!("DELETE {}/ID", self.shape.collection)],
        };
        of.iter().map(|&request| request.to_owned()).collect()
    }

    /// Returns what is asked for when the fault is over.
    fn recovery(&self) -> Vec<String> {
        let found = if self.fault.is_done { self.shape.found } else { self.shape.create };
        let (requests, then) = match self.operation {
            Create => (found, self.shape.then),
            Update => (self.shape.update, self.shape.after),
            Delete => return self.attempt(),
        };
        requests.iter().chain(then).map(|&request| request.to_owned()).collect()
    }

    fn check(&self) {
        if self.operation != Create {
            self.world.apply(&self.shape.object);
            self.world.settle();
            self.requests();
        }
        // Lookups are answered: what is looked up is the fault of the request that it is for.
        self.fault.begin(self.world, WRITES);
        match self.operation {
            Create => self.world.apply(&self.shape.object),
            Update => self.change(1),
            Delete => self.world.delete(self.kind(), "x"),
        }
        let settled = self.world.pass();
        let at = self.world.fake.lock().log(0).last().map_or(0, |entry| entry.at);
        let is_sent = !self.attempt().is_empty();
        let expected = self.fault.expected(self.operation, at).filter(|_| is_sent);
        // Connections that are refused leave nothing in the log.
        let asked = if self.fault.keys.is_null() { Vec::new() } else { self.attempt() };
        let then = match self.operation {
            Create => self.shape.then,
            Update => self.shape.after,
            Delete => &[],
        };
        let then = if expected.is_none() { then } else { &[] };
        let asked: Vec<String> =
            asked.into_iter().chain(then.iter().map(|&of| of.to_owned())).collect();
        assert_eq!(self.requests(), asked);
        if let Some((reason, again)) = expected {
            let stored = self.stored().expect("the object is kept");
            assert!(is_held(&stored), "{stored}");
            let message = self.fault.message(self.operation, &self.shape.object, at);
            assert_eq!(self.told(), format!("False/{reason} {message}"));
            self.assert_again(&settled, again);
            self.recover(again);
        } else {
            Fault::end(self.world);
        }
        self.check_end();
    }

    fn told(&self) -> String {
        self.world.condition(self.kind(), "x", "Programmed")
    }

    fn assert_again(&self, settled: &Settled, again: Again) {
        let entity = kind::find(self.kind()).unwrap();
        let title = format!("{}/{NAMESPACE}/x", entity.kind);
        let of = |key: &&String| **key == title || **key == format!("{title} ({})", entity.plural);
        let after = settled.requeues.iter().find(|(key, _)| of(key)).map(|(_, after)| *after);
        let after = after.map(|after| u64::try_from(after.as_millis()).unwrap());
        let is_failed = settled.failures.keys().any(|key| of(&key));
        match again {
            Again::After(expected) => assert_eq!(after, Some(expected)),
            Again::BackOff => assert_eq!((after, is_failed), (None, true)),
        }
    }

    /// Ends the fault, and waits until the operation is tried again, not before its time.
    fn recover(&self, again: Again) {
        Fault::end(self.world);
        let advance = |milliseconds| {
            self.world.stub.advance(Duration::from_millis(milliseconds));
            self.world.pass();
        };
        match again {
            Again::After(pause) if self.fault.is_pause() => {
                // Events do not end the pause.
                self.world.patch(self.kind(), "x", json!({"metadata": {"labels": {"a": "b"}}}));
                self.world.pass();
                advance(pause - 1);
                assert_eq!(self.requests(), [""; 0], "a request before the end of the pause");
                advance(1);
            }
            Again::After(milliseconds) if milliseconds < u64::from(PERIOD) * 1_000 => {
                advance(milliseconds);
            }
            again => {
                if again != Again::BackOff {
                    self.change(2);
                    self.world.pass();
                }
                let is_waiting = || self.stored().is_some() && self.told() != "True/Programmed ";
                (0..60).take_while(|_| is_waiting()).for_each(|_| advance(1_000));
            }
        }
        assert_eq!(self.requests(), self.recovery());
    }

    /// There is one entity, under the ID of the status, or nothing; then all is cleared away.
    fn check_end(&self) {
        if self.operation != Delete {
            let (stored, entities) = (self.stored().unwrap(), self.entities());
            assert_eq!(self.told(), "True/Programmed ");
            assert!(is_held(&stored), "{stored}");
            assert_eq!(entities.len(), 1, "{entities:?}");
            let id = kind::find(self.kind()).unwrap().id(&stored, "id");
            assert_eq!(entities[0]["id"].as_str(), id);
            self.world.delete(self.kind(), "x");
            self.world.settle();
            self.world.requests();
        }
        assert_eq!((self.stored(), self.entities()), (None, Vec::new()));
    }
}

fn world(shape: &Shape, period: u32) -> World {
    let world = World::with_period(period);
    for parent in &shape.parents {
        world.apply(parent);
        world.settle();
    }
    world.requests();
    world
}

fn check(shape: &Shape, is_chosen: impl Fn(&str) -> bool) {
    let world = world(shape, PERIOD);
    for at in 0..faults(0).len() {
        for operation in [Create, Update, Delete] {
            let fault = &faults(world.now()).remove(at);
            if !is_chosen(fault.name) {
                continue;
            }
            println!("{} x {operation:?}, {}", fault.name, shape.collection);
            Cell { world: &world, shape, fault, operation }.check();
        }
    }
}

#[test]
fn faults_of_a_service() {
    check(&table::services(), |_| true);
}

#[test]
fn faults_of_other_entities() {
    for shape in [
        table::control_planes(),
        table::groups(),
        table::unnamed(),
        table::routes(),
        table::consumers(),
        table::bindings(),
        table::credentials(),
        table::stores(),
        table::without_unique_field(),
        table::without_update(),
    ] {
        check(&shape, |name| ONE_OF_EACH.contains(&name));
    }
}

/// A lookup fails: before the creation, or after it for what belongs to the entity.
#[test]
fn a_lookup_that_fails_leaves_one_entity() {
    for (shape, is_before) in [
        (table::control_planes(), false),
        (table::consumers(), false),
        (table::credentials(), true),
        (table::stores(), true),
        (table::without_unique_field(), true),
        (table::without_update(), true),
    ] {
        for at in 0..faults(0).len() {
            let world = world(&shape, 60);
            let fault = &faults(world.now()).remove(at);
            if !["429 with seconds", "500", "closed connection"].contains(&fault.name) {
                continue;
            }
            let case = format!("{}, {}", fault.name, shape.collection);
            let cell = Cell { world: &world, shape: &shape, fault, operation: Create };
            let created = |requests: Vec<String>| {
                let post = format!("POST {}", shape.collection);
                requests.iter().filter(|request| **request == post).count()
            };
            fault.begin(&world, &["GET"]);
            world.apply(&shape.object);
            world.settle();
            // A control plane that was created and cannot be read is Programmed.
            let is_unread = shape.collection == "control-planes" && fault.name == "500";
            let status = if is_unread { "True/" } else { "False/" };
            assert!(cell.told().starts_with(status), "{case}: {}", cell.told());
            assert_eq!(created(cell.requests()), usize::from(!is_before), "{case}");
            Fault::end(&world);
            world.settle_for(Duration::from_mins(2));
            assert_eq!(cell.told(), "True/Programmed ", "{case}");
            cell.check_end();
        }
    }
}
