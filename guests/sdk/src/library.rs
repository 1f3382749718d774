//! The macro that declares a library which a processor calls.

/// Declares a library that a processor calls: a trait with its functions, and a type that
/// implements the trait by calling the library.
///
/// A processor that is generic over the trait can be tested natively with a test double: another
/// type that implements the trait. Each function names its import by the path in the module of
/// bindings, which is generated from a folder of WIT files with a world that imports the interface.
///
/// ```ignore
/// mortise_sdk::library! {
///     mod bindings in "wit", world "announce";
///
///     /// Shouts.
///     pub trait Shouting, imported as Shout {
///         /// Returns the text in capitals.
///         fn shout(text: &str) -> Result<String, String> =
///             bindings::example::shouting::shout::shout;
///     }
/// }
///
/// pub struct Announcements<L = Shout>(PhantomData<L>);
///
/// impl<L: Shouting> Processor for Announcements<L> {
///     // … L::shout("hello") …
/// }
///
/// mortise_sdk::export!(Announcements);
///
/// #[cfg(test)]
/// struct Double;
///
/// #[cfg(test)]
/// impl Shouting for Double {
///     fn shout(text: &str) -> Result<String, String> {
///         Ok(text.to_uppercase())
///     }
/// }
///
/// #[cfg(test)]
/// mortise_sdk::testing::cases!(Announcements<Double>, "cases");
/// ```
///
/// tests/guests/announce is a whole processor of this kind. In a native build the imports panic:
/// use a double.
#[macro_export]
macro_rules! library {
    (
        $bindings_visibility:vis mod $bindings:ident in $path:tt, world $world:tt;

        $(#[$of_trait:meta])*
        $visibility:vis trait $library:ident, imported as $imported:ident {
            $(
                $(#[$of_function:meta])*
                fn $function:ident($($argument:ident: $of_argument:ty),* $(,)?) -> $result:ty
                    = $import:path;
            )*
        }
    ) => {
        #[allow(
            missing_docs,
            unsafe_code,
            unreachable_pub,
            dead_code,
            clippy::all,
            clippy::pedantic,
            clippy::indexing_slicing,
            reason = "generated from WIT"
        )]
        $bindings_visibility mod $bindings {
            $crate::wit_bindgen::generate!({
                path: $path,
                world: $world,
                runtime_path: "mortise_sdk::wit_bindgen::rt",
                generate_all,
            });
        }

        $(#[$of_trait])*
        $visibility trait $library: 'static {
            $(
                $(#[$of_function])*
                fn $function($($argument: $of_argument),*) -> $result;
            )*
        }

        #[doc = concat!("The library itself, behind the trait [`", stringify!($library), "`].")]
        #[derive(Debug, Clone, Copy)]
        $visibility struct $imported;

        impl $library for $imported {
            $(
                fn $function($($argument: $of_argument),*) -> $result {
                    $import($($argument),*)
                }
            )*
        }
    };
}
