//! Optional libraries: where they may lie and how each tells its version.

use std::env;
use std::ffi::{CStr, c_char, c_int};
use std::fs;
use std::path::{Path, PathBuf};

use libloading::{Library as Loaded, Symbol};

/// A library that some backend needs.
pub(super) struct Library {
    pub(super) name: &'static str,
    pub(super) purpose: &'static str,
    pub(super) remedy: &'static str,
    /// Whether the CUDA backend loads it by name.
    pub(super) with_cuda: bool,
    /// File names, best first. Unversioned names come last: they belong to development packages.
    files: &'static [&'static str],
    version: fn(&Loaded) -> Option<(String, String)>,
}

/// A library that was loaded and told its version.
pub(super) struct Found {
    pub(super) file: String,
    pub(super) version: String,
    /// More worth knowing, e.g. the GPUs; often empty.
    pub(super) detail: String,
}

pub(super) const LIBRARIES: &[Library] = &[
    Library {
        name: "CUDA driver",
        purpose: "NVIDIA GPUs",
        remedy: "install NVIDIA's driver (580 or newer); it needs a GPU",
        with_cuda: false,
        files: &["libcuda.so.1"],
        version: cuda_driver,
    },
    Library {
        name: "NVRTC",
        purpose: "compiling GPU kernels",
        remedy: "pip install nvidia-cuda-nvrtc, or install the CUDA toolkit",
        with_cuda: true,
        files: &["libnvrtc.so.13", "libnvrtc.so.12", "libnvrtc.so"],
        version: nvrtc,
    },
    Library {
        name: "cuBLASLt",
        purpose: "matrix products on GPUs",
        remedy: "pip install nvidia-cublas, or install the CUDA toolkit",
        with_cuda: true,
        files: &["libcublasLt.so.13", "libcublasLt.so.12", "libcublasLt.so"],
        version: cublas_lt,
    },
    Library {
        name: "NCCL",
        purpose: "several GPUs",
        remedy: "pip install nvidia-nccl-cu13, or apt-get install libnccl2 from NVIDIA's packages",
        with_cuda: false,
        files: &["libnccl.so.2", "libnccl.so"],
        version: nccl,
    },
];

impl Library {
    /// Loads the first candidate that answers.
    pub(super) fn find(&self) -> Option<Found> {
        let elsewhere = folders();
        let by_loader = self.files.iter().map(PathBuf::from);
        let by_folder = self.files.iter().flat_map(|f| elsewhere.iter().map(move |d| d.join(f)));
        by_loader.chain(by_folder).find_map(|file| {
            // SAFETY: loading runs the library's initialisers; these are well-known system libraries, and the user
            // asked whether they work.
            let loaded = unsafe { Loaded::new(&file) }.ok()?;
            let (version, detail) = (self.version)(&loaded)?;
            // They start threads and register exit handlers: they must not be unloaded.
            std::mem::forget(loaded);
            Some(Found { file: file.display().to_string(), version, detail })
        })
    }
}

/// Where toolkits and Python wheels keep libraries that the loader does not know of.
fn folders() -> Vec<PathBuf> {
    let set = |name: &str| env::var_os(name).filter(|v| !v.is_empty()).map(PathBuf::from);
    let mut out: Vec<PathBuf> =
        ["CUDA_HOME", "CUDA_PATH"].iter().filter_map(|n| set(n)).map(|d| d.join("lib64")).collect();
    out.push("/usr/local/cuda/lib64".into());
    out.extend(set("CONDA_PREFIX").map(|d| d.join("lib")));
    if let Some(venv) = set("VIRTUAL_ENV") {
        for python in entries(&venv.join("lib")) {
            out.extend(entries(&python.join("site-packages/nvidia")).into_iter().map(|d| d.join("lib")));
        }
    }
    out
}

fn entries(dir: &Path) -> Vec<PathBuf> {
    let mut out: Vec<_> = fs::read_dir(dir).into_iter().flatten().flatten().map(|e| e.path()).collect();
    out.sort_unstable();
    out
}

/// A function of a loaded library.
///
/// # Safety
/// `F` must be the function's true signature.
unsafe fn function<'a, F>(library: &'a Loaded, name: &str) -> Option<Symbol<'a, F>> {
    // SAFETY: the caller vouches for the signature.
    unsafe { library.get(name) }.ok()
}

/// The MPI that ranks as processes would use.
pub(super) fn mpi() -> super::Library {
    let found = graphweft_comm::mpi::library().ok();
    let version = found.as_ref().map_or(String::new(), |library| library.version.clone());
    super::Library {
        name: "MPI",
        purpose: "ranks as processes, also on several machines",
        remedy: "pip install mpich, or apt-get install openmpi-bin, or load your cluster's MPI module",
        found: found.map(|library| library.file),
        version,
        detail: String::new(),
    }
}

/// The version that a function of this name writes; nothing where it fails.
///
/// # Safety
/// It has this signature, and may be called first.
unsafe fn number_from(library: &Loaded, name: &str) -> Option<c_int> {
    let mut version: c_int = 0;
    // SAFETY: passed on.
    let failed = unsafe { function::<unsafe extern "C" fn(*mut c_int) -> c_int>(library, name)?(&raw mut version) };
    (failed == 0).then_some(version)
}

fn cuda_driver(library: &Loaded) -> Option<(String, String)> {
    // SAFETY: as in the CUDA driver API, where this needs no initialisation.
    let version = unsafe { number_from(library, "cuDriverGetVersion") }?;
    Some((format!("{}.{}", version / 1000, version % 1000 / 10), gpus(library).unwrap_or_default()))
}

fn gpus(library: &Loaded) -> Option<String> {
    // SAFETY: signatures from the CUDA driver API; each call follows a successful cuInit, and the name buffer's length
    // is passed along.
    unsafe {
        let init = function::<unsafe extern "C" fn(u32) -> c_int>(library, "cuInit")?;
        let count = function::<unsafe extern "C" fn(*mut c_int) -> c_int>(library, "cuDeviceGetCount")?;
        let name = function::<unsafe extern "C" fn(*mut c_char, c_int, c_int) -> c_int>(library, "cuDeviceGetName")?;
        let mut devices: c_int = 0;
        if init(0) != 0 || count(&raw mut devices) != 0 {
            return Some("(no GPU answers)".into());
        }
        let names = (0..devices).filter_map(|device| {
            let mut text = [0 as c_char; 256];
            let ok = name(text.as_mut_ptr(), 255, device) == 0;
            ok.then(|| CStr::from_ptr(text.as_ptr()).to_string_lossy().into_owned())
        });
        Some(format!("({})", names.collect::<Vec<_>>().join(", ")))
    }
}

fn nvrtc(library: &Loaded) -> Option<(String, String)> {
    let (mut major, mut minor): (c_int, c_int) = (0, 0);
    // SAFETY: signature from nvrtc.h.
    unsafe {
        let get = function::<unsafe extern "C" fn(*mut c_int, *mut c_int) -> c_int>(library, "nvrtcVersion")?;
        (get(&raw mut major, &raw mut minor) == 0).then(|| (format!("{major}.{minor}"), String::new()))
    }
}

fn cublas_lt(library: &Loaded) -> Option<(String, String)> {
    // SAFETY: signature from cublasLt.h.
    let version = unsafe { function::<unsafe extern "C" fn() -> usize>(library, "cublasLtGetVersion")?() };
    // 13.1.0 is 130100, as 12.8.4 was 120804.
    Some((format!("{}.{}.{}", version / 10000, version / 100 % 100, version % 100), String::new()))
}

fn nccl(library: &Loaded) -> Option<(String, String)> {
    // SAFETY: as in nccl.h.
    let version = unsafe { number_from(library, "ncclGetVersion") }?;
    Some((format!("{}.{}.{}", version / 10000, version / 100 % 100, version % 100), String::new()))
}
