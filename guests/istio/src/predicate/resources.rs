//! The resources of sidecars.

use serde_json::Value;

use crate::{
    api::{Claims, IstioSpec},
    cluster::Size,
    kubernetes::{ContainerResources, Pod},
    quantity::{self, Quantity},
    template,
};

/// The resources of a sidecar.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SidecarResources {
    /// The most CPU and memory that it gets.
    pub limits: Amount,
    /// The CPU and memory that it is sure of.
    pub requests: Amount,
}

/// An amount of CPU and memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Amount {
    pub cpu: Quantity,
    pub memory: Quantity,
}

impl SidecarResources {
    /// Returns the resources of sidecars in a mesh.
    ///
    /// # Errors
    ///
    /// Fails if an amount is no quantity.
    pub fn of(spec: &IstioSpec, size: Size) -> Result<Self, String> {
        let template = template::of(size);
        let proxy = spec.components.as_ref().and_then(|components| components.proxy.as_ref());
        let own = proxy.and_then(|proxy| proxy.k8s.as_ref()?.resources.clone()).unwrap_or_default();
        let amount = |bound: &str, claims: &Option<Claims>| {
            let claims = claims.clone().unwrap_or_default();
            let one = |resource: &str, own: Option<String>| {
                let path = format!("/spec/values/global/proxy/resources/{bound}/{resource}");
                let text = own
                    .or_else(|| template.pointer(&path).and_then(Value::as_str).map(str::to_owned));
                Quantity::parse(&text.unwrap_or_default()).map_err(|error| error.to_string())
            };
            Ok::<_, String>(Amount {
                cpu: one("cpu", claims.cpu)?,
                memory: one("memory", claims.memory)?,
            })
        };
        Ok(Self {
            limits: amount("limits", &own.limits)?,
            requests: amount("requests", &own.requests)?,
        })
    }

    /// Returns the resources of a Pod's sidecar: if an annotation of the Pod sets one, only those
    /// that its annotations set. A limit is also the request if that is not set.
    ///
    /// # Errors
    ///
    /// Fails if the value of one of these annotations is no quantity.
    pub fn with_annotations(&self, pod: &Pod) -> Result<Self, quantity::Error> {
        let read = |name: &str| {
            let value = pod.metadata.annotations.get(&format!("sidecar.istio.io/{name}"));
            value.map(|text| Quantity::parse(text)).transpose()
        };
        let (cpu, memory) = (read("proxyCPU")?, read("proxyMemory")?);
        let (cpu_limit, memory_limit) = (read("proxyCPULimit")?, read("proxyMemoryLimit")?);
        if [cpu, memory, cpu_limit, memory_limit].iter().all(Option::is_none) {
            return Ok(*self);
        }
        let or_none = |quantity: Option<Quantity>| quantity.unwrap_or(Quantity::ZERO);
        Ok(Self {
            limits: Amount { cpu: or_none(cpu_limit), memory: or_none(memory_limit) },
            requests: Amount {
                cpu: or_none(cpu.or(cpu_limit)),
                memory: or_none(memory.or(memory_limit)),
            },
        })
    }

    /// Returns whether a container has other resources. A container with an amount that is no
    /// quantity has.
    pub fn differs_from(&self, container: &ContainerResources) -> bool {
        let bounds = [(&self.limits, &container.limits), (&self.requests, &container.requests)];
        bounds.into_iter().any(|(expected, actual)| {
            actual.get("cpu") != Ok(expected.cpu) || actual.get("memory") != Ok(expected.memory)
        })
    }
}
