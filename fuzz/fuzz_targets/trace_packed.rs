#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| (dcd_byte_fuzz::target("trace_packed").run)(bytes));
