//! Modules with additional parts, which nothing calls.

use std::fmt::Write as _;

use anyhow::Result;
use wasmparser::{Parser, Payload};

/// Makes a module of the hostile one.
type Make = fn(&[u8]) -> Result<Vec<u8>>;

/// The modules by name.
pub(super) const ADDED: [(&str, Make); 3] =
    [("contexts", contexts), ("exports", exports), ("functions", functions)];

/// Sections of a component.
const CORE_MODULE: u8 = 1;
const CORE_INSTANCE: u8 = 2;

/// Adds 100 instances of a module with a million globals.
fn contexts(component: &[u8]) -> Result<Vec<u8>> {
    let globals = "(global i32 (i32.const 0))".repeat(1_000_000);
    with(component, &globals, 100)
}

/// Adds a module with 500,000 exports.
fn exports(component: &[u8]) -> Result<Vec<u8>> {
    let mut module = "(func $f)".to_owned();
    for at in 0..500_000 {
        write!(module, "(export \"a-long-name-of-an-export-{at}\" (func $f))")?;
    }
    with(component, &module, 0)
}

/// Adds a module with 10,000 functions, each of which is called once when it is instantiated.
fn functions(component: &[u8]) -> Result<Vec<u8>> {
    let mut module = "(func $start ".to_owned();
    for at in 0..10_000 {
        write!(module, "(call $f{at})")?;
    }
    module.push_str(") (start $start)");
    for at in 0..10_000 {
        write!(module, "(func $f{at} (drop (i32.mul (i32.const {at}) (i32.const 7))))")?;
    }
    with(component, &module, 1)
}

/// Appends a core module to a component, and instances of it.
fn with(component: &[u8], module: &str, instances: u32) -> Result<Vec<u8>> {
    let module = wat::parse_str(format!("(module {module})"))?;
    let index = modules_of(component)?;
    let mut whole = component.to_vec();
    whole.push(CORE_MODULE);
    number(&mut whole, u32::try_from(module.len())?);
    whole.extend(module);
    let mut section = Vec::new();
    number(&mut section, instances);
    for _ in 0..instances {
        // Of a module, without arguments.
        section.push(0);
        number(&mut section, index);
        number(&mut section, 0);
    }
    whole.push(CORE_INSTANCE);
    number(&mut whole, u32::try_from(section.len())?);
    whole.extend(section);
    Ok(whole)
}

/// Returns the number of core modules of a component, without those of components in it.
fn modules_of(component: &[u8]) -> Result<u32> {
    let (mut modules, mut nested) = (0, 0_u32);
    for payload in Parser::new(0).parse_all(component) {
        match payload? {
            Payload::ModuleSection { .. } => {
                modules += u32::from(nested == 0);
                nested += 1;
            }
            Payload::ComponentSection { .. } => nested += 1,
            Payload::End(_) => nested = nested.saturating_sub(1),
            _ => {}
        }
    }
    Ok(modules)
}

/// Writes a number as LEB128.
fn number(to: &mut Vec<u8>, mut number: u32) {
    loop {
        let low = u8::try_from(number & 0x7f).unwrap_or_default();
        number >>= 7;
        if number == 0 {
            return to.push(low);
        }
        to.push(low | 0x80);
    }
}
