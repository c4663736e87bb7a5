//! Kernels that were loaded, shared by all threads of the process that use a GPU: ranks on one GPU need the same ones,
//! and neither compiling nor loading them again would tell anything new.

use std::collections::HashMap;
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use cudarc::driver::{CudaContext, CudaModule};
use cudarc::nvrtc::Ptx;

use super::compile::{Defines, Source, machine_code};
use super::gpu::Architecture;

/// The GPU's number, the source's key and what it is specialised for.
type Key = (usize, &'static str, Defines);
/// Empty until somebody has loaded it; who needs the same waits meanwhile, others do not.
type SharedModule = Arc<Mutex<Option<Arc<CudaModule>>>>;

/// Never emptied: a process that used a GPU will use it again, and kernels are small.
static LOADED: Mutex<Option<HashMap<Key, SharedModule>>> = Mutex::new(None);

/// The kernels of `source`, compiled and loaded if nobody in this process did so before.
pub(super) fn module(
    context: &Arc<CudaContext>,
    source: &Source,
    defines: &Defines,
    architecture: Architecture,
    cache: Option<&Path>,
) -> Result<Arc<CudaModule>, String> {
    let key = (context.ordinal(), source.key(), defines.clone());
    let loaded = Arc::clone(locked(&LOADED).get_or_insert_default().entry(key).or_default());
    let mut loaded = locked(&loaded);
    if let Some(module) = &*loaded {
        return Ok(Arc::clone(module));
    }
    let code = Ptx::from_binary(machine_code(source, defines, architecture, cache)?);
    let module =
        context.load_module(code).map_err(|e| format!("cannot load the kernels of {}.cu: {e}", source.name))?;
    Ok(Arc::clone(loaded.insert(module)))
}

/// What a thread that panicked has left is whole: it is written at once.
fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
