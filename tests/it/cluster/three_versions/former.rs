//! Objects of the original operator: the Secret with an authority and a certificate of it, with an
//! RSA key in PKCS #1; the Deployment that owns the Secret; the configurations of the webhooks that
//! admit APIRules.

use std::{str::FromStr as _, time::Duration};

use base64::{Engine as _, engine::general_purpose::STANDARD};
use rsa::{PrivateKey, pkcs1::DecodeRsaPrivateKey as _, pkcs1v15::SigningKey, sha2::Sha256};
use serde_json::{Value, json};
use x509_cert::{
    Certificate, TbsCertificate,
    builder::{self, Builder as _, CertificateBuilder, profile::BuilderProfile},
    der::{EncodePem as _, asn1::Ia5String, pem::LineEnding},
    ext::{
        Extension, ToExtension as _,
        pkix::{BasicConstraints, SubjectAltName, name::GeneralName},
    },
    name::Name,
    serial_number::SerialNumber,
    spki::{SubjectPublicKeyInfo, SubjectPublicKeyInfoRef},
    time::Validity,
};

/// Name of the Secret and of the Service that it is for.
pub(super) const SECRET: &str = "api-gateway-webhook-certificate";
const SERVICE: &str = "api-gateway-webhook-service.kyma-system.svc";
/// An RSA key of 4096 bits in PKCS #1, as the original makes it.
const KEY: &str = include_str!("../../../../guests/certificate/src/chain/rsa.key");
/// The time for which the original makes certificates.
const LIFETIME: Duration = Duration::from_hours(24 * 90);
/// Names and paths of the webhooks that admit APIRules.
pub(super) const MUTATING: &str = "originalversion.apirule.gateway.kyma-project.io";
pub(super) const MUTATING_PATH: &str = "/mutate-gateway-kyma-project-io-v2alpha1-apirule";
pub(super) const VALIDATING: &str = "v1beta1-admission.apirule.gateway.kyma-project.io";
pub(super) const VALIDATING_PATH: &str = "/validate-gateway-kyma-project-io-v1beta1-apirule";

/// The subject of a certificate, and the names of the server; none for the authority.
struct Profile<'a> {
    subject: &'a str,
    issuer: &'a str,
    hosts: &'a [&'a str],
}

impl BuilderProfile for Profile<'_> {
    fn get_issuer(&self, _: &Name) -> Name {
        name(self.issuer)
    }

    fn get_subject(&self) -> Name {
        name(self.subject)
    }

    fn build_extensions(
        &self,
        _: SubjectPublicKeyInfoRef<'_>,
        _: SubjectPublicKeyInfoRef<'_>,
        certificate: &TbsCertificate,
    ) -> builder::Result<Vec<Extension>> {
        let is_authority = self.hosts.is_empty();
        let constraints = BasicConstraints { ca: is_authority, path_len_constraint: None };
        let mut all = vec![constraints.to_extension(certificate.subject(), &[])?];
        if !is_authority {
            let dns = |host: &&str| GeneralName::DnsName(Ia5String::new(host).unwrap());
            let names = SubjectAltName(self.hosts.iter().map(dns).collect());
            all.push(names.to_extension(certificate.subject(), &all)?);
        }
        Ok(all)
    }
}

fn name(common: &str) -> Name {
    Name::from_str(&format!("CN={common}")).unwrap()
}

fn certificate(profile: Profile<'_>, serial: u32, signer: &SigningKey<Sha256>) -> String {
    let public = SubjectPublicKeyInfo::from_key(&signer.as_ref().to_public_key()).unwrap();
    let validity = Validity::from_now(LIFETIME).unwrap();
    let builder = CertificateBuilder::new(profile, SerialNumber::from(serial), validity, public);
    let certificate: Certificate = builder.unwrap().build(signer).unwrap();
    certificate.to_pem(LineEnding::LF).unwrap()
}

/// Returns the Deployment of the original, without Pods.
pub(super) fn deployment() -> Value {
    let labels = json!({"app": "original"});
    json!({
        "apiVersion": "apps/v1", "kind": "Deployment",
        "metadata": {"name": "api-gateway-controller-manager", "namespace": super::HOME},
        "spec": {
            "replicas": 0, "selector": {"matchLabels": labels},
            "template": {
                "metadata": {"labels": labels},
                "spec": {"containers": [{"name": "manager", "image": "original:1"}]},
            },
        },
    })
}

/// Returns the configurations of the webhooks. `client_config` says how a path is called.
pub(super) fn configurations(client_config: impl Fn(&str) -> Value) -> Vec<Value> {
    let rules = |version: &str, operations: &[&str]| {
        json!([{
            "apiGroups": [super::GROUP], "apiVersions": [version], "operations": operations,
            "resources": ["apirules"], "scope": "*",
        }])
    };
    let user = "system:serviceaccount:kyma-system:api-gateway-controller-manager";
    let others = json!([{
        "name": "exclude-api-gateway-controller-manager",
        "expression": format!("request.userInfo.username != '{user}'"),
    }]);
    let configuration = |kind: &str, name: &str, webhook: &Value| {
        json!({
            "apiVersion": "admissionregistration.k8s.io/v1", "kind": kind,
            "metadata": {"name": name}, "webhooks": [webhook],
        })
    };
    let mutating = json!({
        "name": MUTATING, "clientConfig": client_config(MUTATING_PATH),
        "rules": rules("v2alpha1", &["CREATE", "UPDATE"]), "matchPolicy": "Exact",
        "failurePolicy": "Fail", "sideEffects": "None",
        "admissionReviewVersions": ["v1", "v1beta1"],
    });
    let validating = json!({
        "name": VALIDATING, "clientConfig": client_config(VALIDATING_PATH),
        "rules": rules("v1beta1", &["CREATE", "UPDATE", "DELETE"]), "matchPolicy": "Exact",
        "failurePolicy": "Fail", "sideEffects": "None", "admissionReviewVersions": ["v1"],
        "matchConditions": others,
    });
    let names =
        ["mutating", "validating"].map(|kind| format!("api-gateway-{kind}-webhook-configuration"));
    vec![
        configuration("MutatingWebhookConfiguration", &names[0], &mutating),
        configuration("ValidatingWebhookConfiguration", &names[1], &validating),
    ]
}

/// Returns the authority, and the Secret as the original writes it. The certificate is for
/// `localhost`, too, where the tests' hosts are reached.
pub(super) fn secret() -> (String, Value) {
    let signer = SigningKey::<Sha256>::new(PrivateKey::from_pkcs1_pem(KEY).unwrap());
    let issuer = "original-ca";
    let authority = certificate(Profile { subject: issuer, issuer, hosts: &[] }, 1, &signer);
    let hosts = [SERVICE, "localhost"];
    let leaf = certificate(Profile { subject: SERVICE, issuer, hosts: &hosts }, 2, &signer);
    let data = json!({
        "tls.crt": STANDARD.encode(leaf + &authority), "tls.key": STANDARD.encode(KEY),
    });
    let secret = json!({
        "apiVersion": "v1", "kind": "Secret", "type": "Opaque",
        "metadata": {
            "name": SECRET, "namespace": super::HOME,
            "labels": {"kyma-project.io/module": "api-gateway"},
        },
        "data": data,
    });
    (authority, secret)
}
