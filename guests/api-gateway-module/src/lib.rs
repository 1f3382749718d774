//! The APIGateway resource of operator.kyma-project.io, and what the processors of Kyma's API
//! Gateway module share.
//!
//! The processors that replace the Kyma API Gateway operator use this crate. In all modules, "the
//! original" is that operator.
//!
//! | module | holds |
//! | --- | --- |
//! | [`api`] | the types of the APIGateway, and its `CustomResourceDefinition` |
//! | [`domain`] | the domain of the cluster |
//! | [`ingress`] | the addresses of the ingress gateway |
//! | [`gardener`] | the kinds of Gardener: `DNSEntry` and Certificate |
//! | [`object`] | objects whose spec is replaced, and deletions of objects that exist |

pub mod api;
pub mod domain;
pub mod gardener;
pub mod ingress;
pub mod object;

/// The namespace of the module.
pub const MODULE_NAMESPACE: &str = "kyma-system";
/// The namespace of Istio.
pub const ISTIO_NAMESPACE: &str = "istio-system";
/// The label of all objects of the module, and its value.
pub const MODULE_LABEL: (&str, &str) = ("kyma-project.io/module", "api-gateway");
