#![no_main]
libfuzzer_sys::fuzz_target!(init: graphweft_graph::fuzz::single_thread(), |data: &[u8]| graphweft_graph::fuzz::parquet(data));
