//! A table of reconcilers, for processors that have many.

use std::collections::BTreeSet;

use crate::{Description, Failure, Host, Outcome, Request};

/// A function that reconciles one object.
pub type Reconcile<C> = fn(&Request, &C, &Host) -> Result<Outcome, Failure>;

/// The reconcilers of a processor: names, and the functions that reconcile their objects.
///
/// ```
/// use mortise_sdk::{
///     Description, Failure, Host, NoConfig, Outcome, Processor, Reconciler, Reconcilers, Request,
///     Selection,
///     kubernetes::{ConfigMap, Service},
/// };
///
/// fn maps(_: &Request, _: &NoConfig, _: &Host) -> Result<Outcome, Failure> {
///     Ok(Outcome::new())
/// }
///
/// fn services(_: &Request, _: &NoConfig, _: &Host) -> Result<Outcome, Failure> {
///     Ok(Outcome::new().requeue_never())
/// }
///
/// struct Both;
///
/// impl Both {
///     const TABLE: Reconcilers<NoConfig> =
///         Reconcilers(&[("maps", maps), ("services", services)]);
/// }
///
/// impl Processor for Both {
///     type Config = NoConfig;
///
///     fn describe(_: &NoConfig) -> Result<Description, String> {
///         Self::TABLE.check(
///             Description::new("both", "0.1.0")
///                 .reconciles(Reconciler::new("maps", Selection::of::<ConfigMap>()))
///                 .reconciles(Reconciler::new("services", Selection::of::<Service>())),
///         )
///     }
///
///     fn reconcile(request: &Request, config: &NoConfig, host: &Host) -> Result<Outcome, Failure> {
///         Self::TABLE.reconcile(request, config, host)
///     }
/// }
/// # assert!(Both::describe(&NoConfig {}).is_ok());
/// ```
#[derive(Debug)]
pub struct Reconcilers<C: 'static>(
    /// The name of each reconciler, with its function.
    pub &'static [(&'static str, Reconcile<C>)],
);

// === impl Reconcilers ===

impl<C> Reconcilers<C> {
    /// Returns the description unchanged, for the end of `describe`.
    ///
    /// # Errors
    ///
    /// A declared reconciler is not in the table, one of the table is not declared, or a name is in
    /// the table twice.
    pub fn check(&self, description: Description) -> Result<Description, String> {
        let names: Vec<&str> = self.0.iter().map(|(name, _)| *name).collect();
        description.reconciled_by(&names)
    }

    /// Reconciles an object with the function of its reconciler.
    pub fn reconcile(
        &self,
        request: &Request,
        config: &C,
        host: &Host,
    ) -> Result<Outcome, Failure> {
        let name = request.reconciler.as_str();
        match self.0.iter().find(|(held, _)| *held == name) {
            Some((_, reconcile)) => reconcile(request, config, host),
            None => Err(Failure::new(format!("there is no reconciler `{name}`")).retry_on_change()),
        }
    }
}

// === impl Description ===

impl Description {
    /// Returns the description unchanged. `names` are those of the reconcilers that the processor
    /// has a function for: [`Reconcilers::check`] passes those of its table.
    ///
    /// # Errors
    ///
    /// A declared reconciler is not among the names, one of the names is not declared, or a name is
    /// there twice.
    pub fn reconciled_by(self, names: &[&str]) -> Result<Self, String> {
        let declared: BTreeSet<&str> = self.reconcilers.iter().map(|of| of.name.as_str()).collect();
        let held: BTreeSet<&str> = names.iter().copied().collect();
        if let Some(name) = declared.difference(&held).next() {
            return Err(format!("the reconciler `{name}` is declared, and has no function"));
        }
        if let Some(name) = held.difference(&declared).next() {
            return Err(format!("the reconciler `{name}` has a function, and is not declared"));
        }
        if held.len() < names.len() {
            return Err("a reconciler has two functions".to_owned());
        }
        Ok(self)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{NoConfig, ObjectRef, Reconciler, Selection, kubernetes::ConfigMap, testing};

    fn fails(request: &Request, _: &NoConfig, _: &Host) -> Result<Outcome, Failure> {
        Err(Failure::new(request.reconciler.clone()))
    }

    #[test]
    fn declared_reconcilers_are_those_of_the_table() {
        let description = |names: &[&str]| {
            let of = |name: &&str| Reconciler::new(*name, Selection::of::<ConfigMap>());
            let new = Description::new("a", "1.0.0");
            names.iter().map(of).fold(new, Description::reconciles)
        };
        let table = Reconcilers(&[("a", fails as Reconcile<NoConfig>), ("b", fails)]);
        assert!(table.check(description(&["b", "a"])).is_ok());
        let cases = [
            (&["a", "b", "c"][..], "the reconciler `c` is declared, and has no function"),
            (&["a"], "the reconciler `b` has a function, and is not declared"),
        ];
        for (names, expected) in cases {
            assert_eq!(table.check(description(names)).unwrap_err(), expected);
        }
        let twice = description(&["a"]).reconciled_by(&["a", "a"]).unwrap_err();
        assert_eq!(twice, "a reconciler has two functions");
    }

    #[test]
    fn an_object_is_reconciled_by_the_function_of_its_reconciler() {
        let table = Reconcilers(&[("a", fails as Reconcile<NoConfig>)]);
        let host = testing::Stub::new().host();
        let mut request = testing::request(ObjectRef::of::<ConfigMap>(Some("b"), "c"));
        let message =
            |request: &Request| table.reconcile(request, &NoConfig {}, &host).unwrap_err().message;
        request.reconciler = "a".to_owned();
        assert_eq!(message(&request), "a");
        request.reconciler = "b".to_owned();
        assert_eq!(message(&request), "there is no reconciler `b`");
    }
}
