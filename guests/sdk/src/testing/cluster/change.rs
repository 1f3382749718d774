//! Changes that people make to a cluster, and writes that a case has refused.

use std::collections::BTreeSet;

use mortise_core::api::Method;
use mortise_embedded_api::{Fault, Filter, Verb};
use serde_json::Value;

use super::Cluster;
use crate::testing::identity::{Identity, Pattern, named, reference_of};

/// The field manager of changes that people make: the one of kubectl.
const PEOPLE: &str = "kubectl";
/// The number of times of an unlimited refusal: no case writes so often.
const ALWAYS: usize = 1 << 30;

/// A kind of write that a case can have refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Write {
    /// Every write.
    Any,
    /// Creations with `create_only`, and events.
    Create,
    /// Applies, patches and changes of finalizers.
    Apply,
    /// Writes of a status.
    Status,
    /// Deletions and prunes.
    Delete,
    /// Evictions.
    Evict,
}

impl Cluster {
    /// Applies an object and its status, as `kubectl apply --server-side --force-conflicts` does.
    ///
    /// # Errors
    ///
    /// The cluster does not know the kind, or the API refuses the object.
    pub fn apply(&mut self, object: &Value) -> Result<(), String> {
        self.change(object, Method::Apply)
    }

    /// Changes an object and its status by a JSON merge patch, which must name the object.
    ///
    /// # Errors
    ///
    /// The cluster does not know the kind, or the API refuses the patch.
    pub fn patch(&mut self, patch: &Value) -> Result<(), String> {
        self.change(patch, Method::MergePatch)
    }

    fn change(&mut self, object: &Value, method: Method) -> Result<(), String> {
        self.add_namespace(object)?;
        let of = reference_of(object);
        let unknown = || format!("{}: the cluster does not know the kind", Identity::of_ref(&of));
        let resource = self.resource(&of.kind.clone().into()).ok_or_else(unknown)?;
        let object_path = self.path_of(&of).ok_or_else(unknown)?;
        let query = match method {
            Method::Apply => format!("?fieldManager={PEOPLE}&force=true"),
            _ => format!("?fieldManager={PEOPLE}"),
        };
        let send = |subresource: &str, body: &Value| {
            let path = format!("{object_path}{subresource}{query}");
            self.send(method, &path, Some(body)).map(|_| ()).map_err(|refusal| {
                format!("{} is refused: {}", Identity::of_ref(&of), refusal.message)
            })
        };
        let mut rest = object.clone();
        let status = if resource.status {
            rest.as_object_mut().and_then(|rest| rest.remove("status"))
        } else {
            None
        };
        let only_named = rest.as_object().is_some_and(|fields| fields.len() == 3)
            && rest.pointer("/metadata").and_then(Value::as_object).is_some_and(|metadata| {
                metadata.keys().all(|key| key == "name" || key == "namespace")
            });
        if status.is_none() || !only_named {
            send("", &rest)?;
        }
        match status {
            Some(status) => {
                let mut body = named(&of, None);
                if let Some(body) = body.as_object_mut() {
                    body.insert("status".to_owned(), status);
                }
                send("/status", &body)
            }
            None => Ok(()),
        }
    }

    /// Deletes the objects that a pattern matches, as kubectl does.
    ///
    /// # Errors
    ///
    /// No object matches, or the API refuses the deletion.
    pub fn delete(&self, pattern: &Pattern) -> Result<(), String> {
        // A `*` as kind does not match namespaces and definitions that no test gave.
        let all = if pattern.kind == "*" { self.objects() } else { self.api.objects() };
        let meant: Vec<Value> =
            all.into_iter().filter(|object| pattern.matches(&Identity::of(object))).collect();
        if meant.is_empty() {
            return Err(format!(
                "delete: there is no {}/{}/{}",
                pattern.kind, pattern.namespace, pattern.name
            ));
        }
        for object in meant {
            let of = reference_of(&object);
            let Some(path) = self.path_of(&of) else { continue };
            match self.send(Method::Delete, &path, None) {
                // Already deleted along with its owner.
                Err(refusal) if refusal.code == 404 => {}
                Err(refusal) => {
                    return Err(format!(
                        "{} is refused: {}",
                        Identity::of(&object),
                        refusal.message
                    ));
                }
                Ok(_) => {}
            }
        }
        Ok(())
    }

    /// Refuses writes from now on: `times` of them, or all until [`Cluster::refuse_nothing`].
    ///
    /// # Errors
    ///
    /// The cluster knows no kind of the pattern's name, or several.
    pub fn refuse(
        &self,
        pattern: &Pattern,
        write: Write,
        (code, message): (u16, &str),
        times: Option<usize>,
    ) -> Result<(), String> {
        let mut filter = Filter::all();
        if pattern.kind != "*" {
            let (group, plural) = self.plural(pattern)?;
            filter = Filter::resource(format!("{plural}.{group}"));
        }
        filter = match write {
            Write::Any => filter.verbs([Verb::Create, Verb::Update, Verb::Patch, Verb::Delete]),
            Write::Create => filter.verbs([Verb::Create]).subresource(""),
            Write::Apply => filter.verbs([Verb::Patch]).subresource(""),
            Write::Status => filter.verbs([Verb::Patch]).subresource("status"),
            Write::Delete => filter.verbs([Verb::Delete]),
            Write::Evict => filter.verbs([Verb::Create]).subresource("eviction"),
        };
        if pattern.namespace != "*" {
            filter = filter.namespace(&pattern.namespace);
        }
        // A POST has no name in its path.
        if pattern.name != "*" && write != Write::Create {
            filter = filter.name(&pattern.name);
        }
        let fault = Fault::Refused { code, message: message.to_owned() };
        self.api.faults().inject(fault, filter, times.unwrap_or(ALWAYS));
        Ok(())
    }

    /// Ends all refusals that [`Cluster::refuse`] started.
    pub fn refuse_nothing(&self) {
        self.api.faults().clear();
    }

    /// Returns the group and the plural of the one kind that a pattern names.
    fn plural(&self, pattern: &Pattern) -> Result<(String, String), String> {
        let mut found: BTreeSet<(String, String)> = BTreeSet::new();
        for (group, version) in self.group_versions() {
            if pattern.group.as_ref().is_none_or(|wanted| *wanted == group) {
                let resources = self.resources(&group, &version);
                let meant = resources.iter().filter(|resource| resource.kind.kind == pattern.kind);
                found.extend(meant.map(|resource| (group.clone(), resource.plural.clone())));
            }
        }
        let groups: Vec<String> =
            found.iter().map(|(group, _)| format!("{}.{group}", pattern.kind)).collect();
        match found.pop_first() {
            None => Err(format!("the cluster knows no kind `{}`", pattern.kind)),
            Some(one) if found.is_empty() => Ok(one),
            Some(_) => Err(format!(
                "`{}` is in several groups: say `{}`",
                pattern.kind,
                groups.join("` or `")
            )),
        }
    }
}
