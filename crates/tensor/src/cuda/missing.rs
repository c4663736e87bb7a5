//! Libraries that are loaded at run time: what is missing, and what to do about it.

use cudarc::{cublaslt, driver, nvrtc};

use crate::error::{Error, Result};

fn refused(index: usize, library: &str, remedy: &str) -> Error {
    let problem =
        format!("{library} was not found\n  remedy: {remedy}, or compute on the cpu; `graphweft doctor` tells more");
    Error::Device { device: format!("cuda:{index}"), problem }
}

/// Fails without what kernels need: the driver, and the compiler.
pub(super) fn of_kernels(index: usize) -> Result<()> {
    // SAFETY: these only try to load the libraries.
    let [driver, nvrtc] = unsafe { [driver::sys::is_culib_present(), nvrtc::sys::is_culib_present()] };
    if !driver {
        return Err(refused(index, "the CUDA driver", "install NVIDIA's driver"));
    }
    if !nvrtc {
        return Err(refused(index, "NVRTC", "pip install nvidia-cuda-nvrtc, or install the CUDA toolkit"));
    }
    Ok(())
}

/// Fails without what products need.
pub(super) fn of_products(index: usize) -> Result<()> {
    // SAFETY: this only tries to load the library.
    if unsafe { cublaslt::sys::is_culib_present() } {
        return Ok(());
    }
    Err(refused(index, "cuBLASLt", "pip install nvidia-cublas, or install the CUDA toolkit"))
}
