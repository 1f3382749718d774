//! The trait that a processor implements, and the functions through which the component's exports
//! call it.

use std::{panic, rc::Rc};

use schemars::JsonSchema;
use serde::{Deserialize, de::DeserializeOwned};

use crate::{
    Description, Failure, Host, Level, Outcome, Request,
    host::{Imports, Source},
};

/// Reconciliation logic: a pure function of the request and of what it reads through the host.
pub trait Processor: 'static {
    /// The configuration, as it stands in the Processor resource; [`NoConfig`] for a processor
    /// without one.
    ///
    /// Its JSON schema goes into the description, so that the host refuses a wrong configuration
    /// before any object is reconciled.
    type Config: DeserializeOwned + JsonSchema;

    /// Declares the objects that the processor reconciles, and all objects that it reads and writes
    /// besides.
    ///
    /// The same configuration must always give the same description: the host asks once for each
    /// version and configuration. An `Err` refuses the configuration and tells its author why.
    fn describe(config: &Self::Config) -> Result<Description, String>;

    /// Reconciles one object: returns what should be written for it.
    ///
    /// With an `Err`, only the status and the events that the failure carries are written.
    fn reconcile(request: &Request, config: &Self::Config, host: &Host)
    -> Result<Outcome, Failure>;
}

/// The configuration of a processor that has none.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct NoConfig {}

/// Makes a [`Processor`] the export of the component. In a native build the macro expands to
/// nothing.
///
/// `export!(TYPE, conversion, admission)` exports its hooks too: `conversion` those of
/// [`Converts`](crate::Converts), `admission` those of [`Admits`](crate::Admits).
#[macro_export]
macro_rules! export {
    ($processor:ty $(, $hooks:ident)* $(,)?) => {
        #[cfg(target_family = "wasm")]
        #[allow(unsafe_code, clippy::pedantic, reason = "generated from wit/")]
        const _: () = {
            struct Component;

            impl $crate::bindings::exports::mortise::host::reconciliation::Guest for Component {
                fn describe(config: String) -> Result<$crate::Description, String> {
                    $crate::describe::<$processor>(&config)
                }

                fn reconcile(request: $crate::Request) -> Result<$crate::Outcome, $crate::Failure> {
                    $crate::reconcile::<$processor>(&request)
                }
            }

            $crate::bindings::export_component!(Component with_types_in $crate::bindings);
            $($crate::export_hooks!(Component, $processor, $hooks);)*
        };
    };
}

/// Exports one kind of hooks of a component.
#[doc(hidden)]
#[macro_export]
macro_rules! export_hooks {
    ($component:ident, $processor:ty, conversion) => {
        impl $crate::bindings::converter::exports::mortise::host::conversion::Guest for $component {
            fn conversions(config: String) -> Vec<$crate::Converted> {
                $crate::conversions::<$processor>(&config)
            }

            fn convert(of: $crate::Conversion) -> Result<Vec<String>, String> {
                $crate::convert::<$processor>(&of)
            }
        }

        $crate::bindings::converter::export_converter!($component with_types_in $crate::bindings::converter);
    };
    ($component:ident, $processor:ty, admission) => {
        impl $crate::bindings::admitter::exports::mortise::host::admission::Guest for $component {
            fn hooks(config: String) -> Vec<$crate::Hook> {
                $crate::hooks::<$processor>(&config)
            }

            fn admit(of: $crate::Review) -> Result<$crate::Answer, String> {
                $crate::admit::<$processor>(&of)
            }
        }

        $crate::bindings::admitter::export_admitter!($component with_types_in $crate::bindings::admitter);
    };
}

/// Serves the component's export `describe`.
#[doc(hidden)]
pub fn describe<P: Processor>(config: &str) -> Result<Description, String> {
    report_panics();
    described::<P>(config)
}

/// Returns the description of a processor, with the schema of its configuration unless the
/// processor set one itself.
pub(crate) fn described<P: Processor>(config: &str) -> Result<Description, String> {
    let mut description = P::describe(&parse_config::<P::Config>(config)?)?;
    if description.config_schema.is_none() {
        let schema = schemars::schema_for!(P::Config);
        description.config_schema =
            Some(serde_json::to_string(&schema).map_err(|error| error.to_string())?);
    }
    Ok(description)
}

/// Serves the component's export `reconcile`.
#[doc(hidden)]
pub fn reconcile<P: Processor>(request: &Request) -> Result<Outcome, Failure> {
    report_panics();
    reconciled::<P>(request, &Host::new(Rc::new(Imports)))
}

/// Parses the configuration and reconciles with the given host.
pub(crate) fn reconciled<P: Processor>(request: &Request, host: &Host) -> Result<Outcome, Failure> {
    let config = parse_config::<P::Config>(&request.config)
        .map_err(|error| Failure::new(error).retry_on_change())?;
    P::reconcile(request, &config, host)
}

/// Parses a configuration; a blank text counts as an empty configuration.
pub(crate) fn parse_config<C: DeserializeOwned>(config: &str) -> Result<C, String> {
    let text = if config.trim().is_empty() { "{}" } else { config };
    serde_json::from_str(text).map_err(|error| format!("the configuration cannot be read: {error}"))
}

/// Makes panics write their message to the log: the trap that follows says only where in the code
/// the panic was.
pub(crate) fn report_panics() {
    // Natively there is no such log, and the hook would be that of the whole test program.
    if !cfg!(target_arch = "wasm32") {
        return;
    }
    panic::set_hook(Box::new(|panic| {
        let payload = panic.payload();
        let text = payload.downcast_ref::<&str>().copied();
        let text = text.or_else(|| payload.downcast_ref::<String>().map(String::as_str));
        let message = text.unwrap_or("a value that is not text");
        let location = panic.location().map(ToString::to_string).unwrap_or_default();
        Imports.log(
            Level::Error,
            &format!("panicked: {message}"),
            &[("location".to_owned(), location)],
        );
    }));
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Selection;

    #[derive(Debug, Deserialize, JsonSchema)]
    #[serde(default, deny_unknown_fields)]
    struct Config {
        size: u32,
    }

    impl Default for Config {
        fn default() -> Self {
            Self { size: 3 }
        }
    }

    #[test]
    fn no_configuration_is_an_empty_one() {
        for config in ["", " ", "{}"] {
            assert_eq!(parse_config::<Config>(config).unwrap().size, 3, "{config:?}");
        }
        assert_eq!(parse_config::<Config>(r#"{"size":4}"#).unwrap().size, 4);
        let error = parse_config::<Config>(r#"{"sice":4}"#).unwrap_err();
        assert!(
            error.contains("the configuration cannot be read: unknown field `sice`"),
            "{error}"
        );
    }

    #[test]
    fn the_description_carries_the_schema_of_the_configuration() {
        struct Empty;
        impl Processor for Empty {
            type Config = Config;
            fn describe(_config: &Config) -> Result<Description, String> {
                Ok(Description::new("empty", "1.0.0")
                    .reads(Selection::of::<crate::kubernetes::Service>()))
            }
            fn reconcile(
                _request: &Request,
                _config: &Config,
                _host: &Host,
            ) -> Result<Outcome, Failure> {
                Ok(Outcome::new())
            }
        }
        let description = describe::<Empty>("").unwrap();
        let schema: serde_json::Value =
            serde_json::from_str(&description.config_schema.unwrap()).unwrap();
        assert_eq!(schema["properties"]["size"]["type"], "integer");
    }
}
