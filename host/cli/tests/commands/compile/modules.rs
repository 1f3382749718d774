//! Modules that nobody writes by hand, from a real one: what is added to it is a core module that
//! it never makes an instance of, which is compiled all the same.

/// A section of a component.
const CORE_MODULE: u8 = 1;
/// Sections of a core module.
const TYPES: u8 = 1;
const FUNCTIONS: u8 = 3;
const MEMORIES: u8 = 5;
const CODE: u8 = 10;
const DATA: u8 = 11;
/// `i32`, and the type of a block that returns nothing.
const I32: u8 = 0x7f;
const EMPTY: u8 = 0x40;
const PAGE: usize = 64 << 10;

/// The component, and so many functions of some 2 KiB each.
pub(crate) fn with_code(component: &[u8], functions: usize) -> Vec<u8> {
    let body = |seed: usize| {
        // Each value follows from the one before, so that nothing can be left out.
        let step = |index: usize| {
            let constant = leb((seed * 31 + index * 7) % 60);
            // local.get 0, i32.const, i32.rotl, local.get 1, i32.xor, local.set 0; the two in turn.
            let (a, b) = if index.is_multiple_of(2) { (0, 1) } else { (1, 0) };
            [&[0x20, a, 0x41], &constant[..], &[0x77, 0x20, b, 0x73, 0x21, a]].concat()
        };
        let steps: Vec<u8> = (0..200).flat_map(step).collect();
        function(0, &[&steps[..], &[0x20, 0x00]].concat())
    };
    let bodies: Vec<Vec<u8>> = (0..functions).map(body).collect();
    add(component, CORE_MODULE, &module(&bodies))
}

/// The component, and a memory that starts with so many bytes.
pub(crate) fn with_data(component: &[u8], bytes: usize) -> Vec<u8> {
    let pages = leb(bytes.div_ceil(PAGE));
    // One memory, no maximum; one segment, at 0.
    let memory = section(MEMORIES, &[&[1, 0], &pages[..]].concat());
    let start = [1, 0, 0x41, 0, 0x0b];
    let content: Vec<u8> = (0..=250).cycle().take(bytes).collect();
    let data = section(DATA, &[&start[..], &leb(bytes), &content].concat());
    add(component, CORE_MODULE, &[HEADER, &memory, &data].concat())
}

/// The component, and one small function that takes a compiler very much of everything: loops
/// within each other, and locals that are changed in the innermost, each of which has to be
/// followed into each loop.
pub(crate) fn hostile(component: &[u8], loops: usize, locals: usize) -> Vec<u8> {
    let open: Vec<u8> = (0..loops).flat_map(|_| [0x03, EMPTY]).collect();
    // local.get n, local.get n + 1, i32.add, local.set n
    let change = |local: usize| {
        let (this, next) = (leb(local), leb((local + 1) % locals));
        [&[0x20], &this[..], &[0x20], &next, &[0x6a, 0x21], &this].concat()
    };
    let changes: Vec<u8> = (0..locals).flat_map(change).collect();
    // Each loop may be gone through again: local.get 0, br_if 0, end.
    let close: Vec<u8> = (0..loops).flat_map(|_| [0x20, 0x00, 0x0d, 0x00, 0x0b]).collect();
    let body = function(locals, &[&open[..], &changes, &close, &[0x20, 0x00]].concat());
    add(component, CORE_MODULE, &module(&[body]))
}

const HEADER: &[u8] = b"\0asm\x01\0\0\0";

/// A core module with functions from two numbers to one.
fn module(bodies: &[Vec<u8>]) -> Vec<u8> {
    let count = leb(bodies.len());
    let types = section(TYPES, &[1, 0x60, 2, I32, I32, 1, I32]);
    let functions = section(FUNCTIONS, &[&count[..], &vec![0; bodies.len()]].concat());
    let code = section(CODE, &[&count[..], &bodies.concat()].concat());
    [HEADER, &types, &functions, &code].concat()
}

/// A body with more locals, besides the two parameters.
fn function(locals: usize, instructions: &[u8]) -> Vec<u8> {
    let declared = if locals == 0 { vec![0] } else { [&[1], &leb(locals)[..], &[I32]].concat() };
    let body = [&declared[..], instructions, &[0x0b]].concat();
    [leb(body.len()), body].concat()
}

fn add(component: &[u8], id: u8, content: &[u8]) -> Vec<u8> {
    [component, &section(id, content)].concat()
}

fn section(id: u8, content: &[u8]) -> Vec<u8> {
    [&[id], &leb(content.len())[..], content].concat()
}

/// A number as WebAssembly writes it.
fn leb(mut number: usize) -> Vec<u8> {
    let mut bytes = Vec::new();
    loop {
        let low = number.to_le_bytes()[0] & 0x7f;
        number >>= 7;
        if number == 0 {
            bytes.push(low);
            return bytes;
        }
        bytes.push(low | 0x80);
    }
}
