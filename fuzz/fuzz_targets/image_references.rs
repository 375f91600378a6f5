#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| steersman_fuzz::image_references::check(data));
