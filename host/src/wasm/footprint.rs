//! The memory that a module takes beside the linear memories of its calls.
//!
//! Computed from the sections of the module, before it is compiled: wasmtime does not tell it, and
//! allocates it in host code, which neither a memory limit nor a deadline ends. Code, data and
//! names are skipped, so the cost does not grow with them.
//!
//! The figures are upper bounds of what wasmtime 48 allocates (its `VMOffsets`, and its tables of
//! types, imports and exports), measured with large modules of each kind.

use std::{io, ops::Range};

use bytes::Bytes;
use mortise_core::contract::bounds::{COMPONENT_INSTANCES, INSTANCE_BYTES, LOADED_BYTES};
use wasmparser::{
    BinaryReader, BinaryReaderError, ComponentAlias, ComponentExport, ComponentExternalKind,
    ComponentImport, ComponentInstance, ComponentOuterAliasKind, ComponentTypeRef, Element,
    ElementItems, FromReader, ImportSectionReader, Instance, SectionLimited, Table,
};

use super::content::Content;

/// The memory of a module beside linear memories.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Footprint {
    /// Bytes of the contexts and tables of one instance.
    pub(super) instance_bytes: usize,
    /// Bytes of the tables of types, imports and exports, as long as the module is loaded.
    pub(super) loaded_bytes: usize,
}

/// The reason why a footprint is unknown or refused.
#[derive(Debug, thiserror::Error)]
pub(super) enum Error {
    #[error(transparent)]
    Unreadable(#[from] io::Error),
    #[error("{0}")]
    Malformed(String),
    #[error("{0}")]
    Refused(String),
}

/// What one instantiation takes.
#[derive(Clone, Copy, Debug, Default)]
struct Cost {
    /// Number of core instances.
    instances: u64,
    /// Bytes of contexts and tables.
    bytes: u64,
    /// Bytes of data that are copied.
    copied: u64,
}

/// The index spaces of a component, as far as they are instantiated.
#[derive(Debug, Default)]
struct Frame {
    modules: Vec<Cost>,
    components: Vec<Cost>,
    /// What an instance of the component takes.
    own: Cost,
}

struct Walk<'a> {
    content: &'a Content,
    frames: Vec<Frame>,
    loaded: u64,
}

/// A section of a module or component: its number, and the place of its content.
struct Section {
    id: u8,
    at: Range<u64>,
}

/// Bytes of data that are copied into one instance: as many as the largest module has, twice.
const MAX_COPIED_BYTES: u64 = 128 << 20;
/// Components within components.
const MAX_NESTED: u64 = 16;
/// Bytes of one section other than code, data and custom ones, which is read into memory.
const MAX_SECTION_BYTES: u64 = 8 << 20;

/// The header of a module or component.
const HEADER_BYTES: u64 = 8;
/// The most bytes of a number.
const LEB_BYTES: u64 = 5;
/// Bytes of a core instance without anything in it.
const INSTANCE: u64 = 1 << 10;
/// Bytes of a context for an import, global, table, memory or tag.
const IN_CONTEXT: u64 = 64;
/// Bytes of a context for a function: its reference.
const FUNCTION: u64 = 32;
/// Bytes of an element of a table.
const ELEMENT: u64 = 8;
/// Bytes as which each section counts, so that a module has few: each is read by itself.
const SECTION: u64 = 64;
/// Bytes of a loaded module for each entry of a section, beside the entry's own bytes.
const ENTRY: u64 = 192;
/// Bytes of a loaded module for each function.
const LOADED_FUNCTION: u64 = 64;
/// Bytes of a loaded module for each byte of a section of types.
const TYPES_FACTOR: u64 = 16;

// === impl Error ===

impl From<BinaryReaderError> for Error {
    fn from(error: BinaryReaderError) -> Self {
        Self::Malformed(error.to_string())
    }
}

// === impl Footprint ===

impl Footprint {
    /// Computes the footprint of a component. Reads the component, so it blocks.
    pub(super) fn of(content: &Content) -> Result<Self, Error> {
        let mut walk = Walk { content, frames: Vec::new(), loaded: 0 };
        let own = walk.component(0..content.length())?;
        let bytes = |bytes| usize::try_from(bytes).unwrap_or(usize::MAX);
        Ok(Self { instance_bytes: bytes(own.bytes), loaded_bytes: bytes(walk.loaded) })
    }
}

// === impl Walk ===

impl Walk<'_> {
    /// Walks through a component, and returns what an instance of it takes.
    fn component(&mut self, at: Range<u64>) -> Result<Cost, Error> {
        at_most("nested components", self.frames.len() as u64, MAX_NESTED)?;
        self.frames.push(Frame::default());
        let mut next = at.start + HEADER_BYTES;
        while let Some(Section { id, at: of }) = self.section(next, at.end)? {
            next = of.end;
            match id {
                1 => {
                    let module = self.module(of)?;
                    self.frame().modules.push(module);
                }
                4 => {
                    let component = self.component(of)?;
                    self.frame().components.push(component);
                }
                2 | 5 | 6 | 10 | 11 => self.items(id, &of)?,
                3 | 7 => self.types(&of)?,
                8 => drop(self.entries(&of)?),
                _ => {}
            }
        }
        Ok(self.frames.pop().unwrap_or_default().own)
    }

    /// Walks through a section of a component that instantiates, or names what is instantiated.
    fn items(&mut self, id: u8, at: &Range<u64>) -> Result<(), Error> {
        self.entries(at)?;
        let bytes = self.read(at)?;
        let reader = BinaryReader::new(&bytes, 0);
        match id {
            2 => each(reader, |instance| match instance {
                Instance::Instantiate { module_index, .. } => {
                    let cost = cost_at(&self.frame().modules, module_index)?;
                    self.instantiate(cost)
                }
                Instance::FromExports(_) => Ok(()),
            }),
            5 => each(reader, |instance| match instance {
                ComponentInstance::Instantiate { component_index, .. } => {
                    let cost = cost_at(&self.frame().components, component_index)?;
                    self.instantiate(cost)
                }
                ComponentInstance::FromExports(_) => Ok(()),
            }),
            6 => each(reader, |alias| self.alias(&alias)),
            10 => each(reader, |import: ComponentImport<'_>| match import.ty {
                ComponentTypeRef::Module(_) => refuse_parameter(ComponentExternalKind::Module),
                ComponentTypeRef::Component(_) => {
                    refuse_parameter(ComponentExternalKind::Component)
                }
                _ => Ok(()),
            }),
            // What is exported gets one more index.
            _ => each(reader, |export: ComponentExport<'_>| {
                let Frame { modules, components, .. } = self.frame();
                match export.kind {
                    ComponentExternalKind::Module => again(modules, export.index),
                    ComponentExternalKind::Component => again(components, export.index),
                    _ => Ok(()),
                }
            }),
        }
    }

    fn alias(&mut self, alias: &ComponentAlias<'_>) -> Result<(), Error> {
        let (kind, count, index) = match *alias {
            ComponentAlias::InstanceExport { kind, .. } => return refuse_parameter(kind),
            ComponentAlias::CoreInstanceExport { .. } => return Ok(()),
            ComponentAlias::Outer { kind, count, index } => (kind, count, index),
        };
        let outer = self.frames.iter().rev().nth(count as usize).ok_or_else(unknown)?;
        match kind {
            ComponentOuterAliasKind::CoreModule => {
                let module = cost_at(&outer.modules, index)?;
                self.frame().modules.push(module);
            }
            ComponentOuterAliasKind::Component => {
                let component = cost_at(&outer.components, index)?;
                self.frame().components.push(component);
            }
            ComponentOuterAliasKind::CoreType | ComponentOuterAliasKind::Type => {}
        }
        Ok(())
    }

    /// Adds an instance to the component that is walked through.
    fn instantiate(&mut self, of: Cost) -> Result<(), Error> {
        let Cost { instances, bytes, copied } = &mut self.frame().own;
        *instances = instances.saturating_add(of.instances);
        *bytes = bytes.saturating_add(of.bytes);
        *copied = copied.saturating_add(of.copied);
        at_most("core instances", *instances, COMPONENT_INSTANCES as u64)?;
        at_most("bytes of contexts and tables in an instance", *bytes, INSTANCE_BYTES as u64)?;
        at_most("bytes of data copied into an instance", *copied, MAX_COPIED_BYTES)
    }

    /// Walks through a core module, and returns what an instance of it takes.
    fn module(&mut self, at: Range<u64>) -> Result<Cost, Error> {
        let mut own = Cost { instances: 1, bytes: INSTANCE, copied: 0 };
        let mut next = at.start + HEADER_BYTES;
        while let Some(Section { id, at: of }) = self.section(next, at.end)? {
            next = of.end;
            let bytes = match id {
                1 => {
                    self.types(&of)?;
                    0
                }
                // Its entries may be groups.
                2 => {
                    let bytes = self.read(&of)?;
                    let imports = ImportSectionReader::new(BinaryReader::new(&bytes, 0))?;
                    let count = imports.into_imports().count() as u64;
                    self.load(count.saturating_mul(ENTRY))?;
                    count.saturating_mul(IN_CONTEXT + FUNCTION)
                }
                3 => {
                    let count = self.count(&of)?;
                    self.load(count.saturating_mul(LOADED_FUNCTION))?;
                    count.saturating_mul(FUNCTION)
                }
                5 | 6 | 13 => self.entries(&of)?.saturating_mul(IN_CONTEXT),
                7 => {
                    self.entries(&of)?;
                    0
                }
                4 | 9 => {
                    self.entries(&of)?;
                    self.elements(id, &of)?
                }
                11 => {
                    own.copied = of.end - of.start;
                    0
                }
                12 => {
                    // The number of data segments.
                    let count = self.count(&of)?;
                    self.load(count.saturating_mul(ENTRY))?;
                    0
                }
                _ => 0,
            };
            own.bytes = own.bytes.saturating_add(bytes);
        }
        Ok(own)
    }

    /// Returns the bytes in an instance of a section of tables, or of their elements.
    fn elements(&mut self, id: u8, at: &Range<u64>) -> Result<u64, Error> {
        let bytes = self.read(at)?;
        let reader = BinaryReader::new(&bytes, 0);
        let (mut in_instance, mut expressions) = (0_u64, 0_u64);
        if id == 4 {
            each(reader, |table: Table<'_>| {
                let elements = table.ty.initial.saturating_mul(ELEMENT);
                in_instance = in_instance.saturating_add(IN_CONTEXT).saturating_add(elements);
                Ok(())
            })?;
        } else {
            each(reader, |element: Element<'_>| {
                let count = match element.items {
                    ElementItems::Functions(of) => of.count(),
                    ElementItems::Expressions(_, of) => {
                        expressions += u64::from(of.count());
                        of.count()
                    }
                };
                in_instance += u64::from(count) * ELEMENT;
                Ok(())
            })?;
        }
        self.load(expressions.saturating_mul(ENTRY))?;
        Ok(in_instance)
    }

    /// Charges a section of types, whose entries contain others.
    fn types(&mut self, at: &Range<u64>) -> Result<(), Error> {
        self.load((at.end - at.start).saturating_mul(TYPES_FACTOR))
    }

    /// Charges a section, and returns the number of its entries.
    fn entries(&mut self, at: &Range<u64>) -> Result<u64, Error> {
        let count = self.count(at)?;
        self.load(count.saturating_mul(ENTRY).saturating_add(at.end - at.start))?;
        Ok(count)
    }

    fn load(&mut self, bytes: u64) -> Result<(), Error> {
        self.loaded = self.loaded.saturating_add(bytes);
        at_most("bytes of tables of types, imports and exports", self.loaded, LOADED_BYTES as u64)
    }

    /// Returns the number that a section begins with.
    fn count(&self, at: &Range<u64>) -> Result<u64, Error> {
        let bytes = self.content.part(at.start..at.end.min(at.start + LEB_BYTES))?;
        Ok(BinaryReader::new(&bytes, 0).read_var_u32()?.into())
    }

    fn read(&self, at: &Range<u64>) -> Result<Bytes, Error> {
        at_most("bytes in a section", at.end - at.start, MAX_SECTION_BYTES)?;
        Ok(self.content.part(at.clone())?)
    }

    /// Returns the section that begins at a position; `None` at the end.
    fn section(&mut self, start: u64, end: u64) -> Result<Option<Section>, Error> {
        if start >= end {
            return Ok(None);
        }
        self.load(SECTION)?;
        let header = self.content.part(start..end.min(start + 1 + LEB_BYTES))?;
        let mut reader = BinaryReader::new(&header, 0);
        let (id, size) = (reader.read_u8()?, reader.read_var_u32()?);
        let from = start + reader.original_position() as u64;
        let at = from..from + u64::from(size);
        if at.end > end {
            return Err(Error::Malformed("unexpected end in the middle of a section".to_owned()));
        }
        Ok(Some(Section { id, at }))
    }

    /// Returns the component that is walked through.
    fn frame(&mut self) -> &mut Frame {
        self.frames.last_mut().expect("sections are read within a component")
    }
}

/// Visits each entry of a section.
fn each<'a, T: FromReader<'a>>(
    section: BinaryReader<'a>,
    mut visit: impl FnMut(T) -> Result<(), Error>,
) -> Result<(), Error> {
    SectionLimited::<T>::new(section)?.into_iter().try_for_each(|entry| visit(entry?))
}

fn cost_at(space: &[Cost], index: u32) -> Result<Cost, Error> {
    space.get(index as usize).copied().ok_or_else(unknown)
}

/// Gives an item of an index space one more index.
fn again(space: &mut Vec<Cost>, index: u32) -> Result<(), Error> {
    let cost = cost_at(space, index)?;
    space.push(cost);
    Ok(())
}

/// Refuses modules and components that are given to a component when it is instantiated: what they
/// take is not known before. No toolchain makes them.
fn refuse_parameter(kind: ComponentExternalKind) -> Result<(), Error> {
    match kind {
        ComponentExternalKind::Module | ComponentExternalKind::Component => {
            let found = "it passes modules or components as arguments, which is not accepted";
            Err(Error::Refused(found.to_owned()))
        }
        _ => Ok(()),
    }
}

fn at_most(what: &str, found: u64, limit: u64) -> Result<(), Error> {
    if found <= limit {
        return Ok(());
    }
    Err(Error::Refused(format!("it has {found} {what} or more, at most {limit} are accepted")))
}

/// The error of an index that is not in the module.
fn unknown() -> Error {
    Error::Malformed("a section refers to something that is not in the module".to_owned())
}

#[cfg(test)]
mod tests;
