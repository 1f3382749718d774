//! The Istio resource of operator.kyma-project.io, and the rules of the Kyma Istio operator.
//!
//! The processors that replace that operator share this crate. Its functions are pure: they get
//! objects and return what is to be done. In all modules, "the original" is the Kyma Istio
//! operator.
//!
//! | module | holds |
//! | --- | --- |
//! | [`api`] | the types of the Istio resource, and its `CustomResourceDefinition` |
//! | [`kubernetes`] | the parts of Kubernetes' kinds that the rules look at |
//! | [`cluster`], [`features`], [`images`] | size, provider, flavour; features; images |
//! | [`template`], [`merge`] | the default `IstioOperator`, and the resource merged into it |
//! | [`version`] | versions of Istio, and which of them may follow another |
//! | [`last_applied`] | the annotation that holds the last applied configuration |
//! | [`condition`] | the conditions of the resource |
//! | [`predicate`], [`action`] | Pods whose sidecars must be replaced; their restart |
//! | [`gateway`] | the restart of the ingress gateway and of the control plane |
//! | [`resource`] | the objects that the module adds to Istio's own |
//! | [`check`] | the checks of a resource before anything is done for it |
//! | [`installed`] | the installed Istio: its version, its labels, webhooks that are left over |
//! | [`blocking`], [`user_filter`] | people's own objects: blockers of the deletion, filters |
//! | [`json`], [`quantity`], [`regexp`] | values as Go and Kubernetes have them |

pub mod action;
pub mod api;
pub mod blocking;
pub mod check;
pub mod cluster;
pub mod condition;
pub mod features;
pub mod gateway;
pub mod images;
pub mod installed;
pub mod json;
pub mod kubernetes;
pub mod last_applied;
pub mod merge;
pub mod predicate;
pub mod quantity;
pub mod regexp;
pub mod resource;
pub mod template;
pub mod user_filter;
pub mod version;
mod yaml;
