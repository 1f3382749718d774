#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| mortise_host::fuzz::run("registry", input));
