//! Sets `cfg(numpy)` where Python (`$GRAPHWEFT_PYTHON`, or `python3`) has NumPy and SciPy, so that tests which need
//! them are reported as ignored elsewhere. Which Python that is is in `GRAPHWEFT_TEST_PYTHON`.

use std::env;
use std::process::Command;

pub(crate) fn main() {
    println!("cargo::rustc-check-cfg=cfg(numpy)");
    println!("cargo::rerun-if-env-changed=GRAPHWEFT_PYTHON");
    let python = env::var("GRAPHWEFT_PYTHON").unwrap_or_else(|_| "python3".into());
    println!("cargo::rustc-env=GRAPHWEFT_TEST_PYTHON={python}");
    let found = Command::new(&python).args(["-c", "import numpy, scipy.sparse"]).output();
    if found.is_ok_and(|out| out.status.success()) {
        println!("cargo::rustc-cfg=numpy");
    }
}
