#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| steersman_fuzz::conversion::check(data));
libfuzzer_sys::fuzz_mutator!(|data: &mut [u8], size: usize, max_size: usize, seed: u32| {
    steersman_fuzz::json_mutator::mutate(data, size, max_size, seed, libfuzzer_sys::fuzzer_mutate)
});
